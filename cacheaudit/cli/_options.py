"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from cacheaudit.cli._group import say
from cacheaudit.cli._times import Moment
from cacheaudit.errors import UsageError
from cacheaudit.report.renderer import names

Command = TypeVar("Command", bound=Callable[..., Any])
_FILE = click.Path(path_type=Path, dir_okay=False, allow_dash=True)


def output_options(*formats: str) -> Callable[[Command], Command]:
    """Add ``--json``, ``--format``, ``-o``, ``--quiet`` and ``--no-color``."""
    kinds = click.Choice(formats or names())

    def add(command: Command) -> Command:
        for option in (
            click.option(
                "--no-color", is_flag=True, help="No colours; the variable NO_COLOR does the same."
            ),
            click.option("-q", "--quiet", is_flag=True, help="No progress bar and no remarks."),
            click.option(
                "-o",
                "--output",
                type=_FILE,
                help="Write to a file; its ending sets the format unless --format is given.",
            ),
            click.option("--format", "form", type=kinds, help="Form of the result."),
            click.option("--json", "as_json", is_flag=True, help="Short for --format json."),
        ):
            command = option(command)
        return command

    return add


def input_options(command: Command) -> Command:
    """Add paths, ``--db``, ``--prices``, ``--since`` and ``--until``."""
    for option in (
        click.option(
            "--until", type=Moment(is_end=True), help="Only calls up to then; a date includes it."
        ),
        click.option(
            "--since",
            type=Moment(is_end=False),
            help="Only calls from then on: 2026-11-03, a full time, today, or 7d for a week ago.",
        ),
        prices_option,
        click.option(
            "--db",
            metavar="URL",
            help="Read a store (SQLAlchemy URL) that `cacheaudit import` filled, not files.",
        ),
        click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(path_type=Path)),
    ):
        command = option(command)
    return command


def prices_option(command: Command) -> Command:
    """Add ``--prices``."""
    return click.option(
        "--prices",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        multiple=True,
        help="Price file that goes before the built-in tables; may be repeated.",
    )(command)


def switch_option(command: Command) -> Command:
    """Add ``--switch``."""
    return click.option(
        "--switch",
        "switches",
        metavar="NAME=VALUE",
        multiple=True,
        help="Set a disputed provider rule; may be repeated. docs/guide/simulator.md lists them.",
    )(command)


def db_option(command: Command) -> Command:
    """Add ``--db`` for commands that work on the store itself."""
    return click.option(
        "--db",
        metavar="URL",
        envvar="CACHEAUDIT_DB",
        help="SQLAlchemy URL of the store; the variable CACHEAUDIT_DB does the same.",
    )(command)


def no_store_with_paths(paths: tuple[Path, ...], db: str | None) -> None:
    """Refuse to read files and a store at once.

    Raises:
        UsageError: Both are named.
    """
    if paths and db is not None:
        raise UsageError(
            "PATH and --db name two different things to read.",
            f"Put the files into the store first: cacheaudit import {paths[0]} --db {db}",
        )


def remark_on_empty_span(calls: int, *, since: float | None, until: float | None) -> None:
    """Say that it may be the span of time that left nothing over."""
    if not calls and (since is not None or until is not None):
        say("No call lies in the span of time that --since and --until leave.")
