"""``cacheaudit export``: sessions out of the store, or out of any format, in the native form."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import BinaryIO

import click

from cacheaudit.cli._group import say
from cacheaudit.cli._machine import Machine
from cacheaudit.cli._options import db_option
from cacheaudit.cli._output import Output
from cacheaudit.cli._progress import progress


@click.command("export", short_help="Write sessions in one documented form.")
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(path_type=Path))
@db_option
@click.option("--session", "names", multiple=True, help="Only this session; may be repeated.")
@click.option(
    "--with-text",
    is_flag=True,
    help="Write the text of prompts and errors too, where it is known.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    help="File to write, by convention NAME.session.jsonl; standard output without it.",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress bar and no remarks.")
@click.pass_obj
def command(
    machine: Machine,
    *,
    paths: tuple[Path, ...],
    db: str | None,
    names: tuple[str, ...],
    with_text: bool,
    output: Path | None,
    quiet: bool,
) -> None:
    """Write sessions as *.session.jsonl, the form that every command reads.

    With paths, the files are read in whatever format they have and the store is left alone;
    without, the sessions of the store are written.
    """
    from cacheaudit.jobs.export import ExportReport, export_files, export_store
    from cacheaudit.jobs.inputs import Inputs
    from cacheaudit.report.format import plural
    from cacheaudit.store import default_url, open_store

    out = Output(
        form=None,
        as_json=False,
        output=output,
        quiet=quiet,
        no_color=True,
        environment=machine.environment,
    )
    done: list[ExportReport] = []

    def from_files(stream: BinaryIO) -> None:
        inputs = Inputs(paths=paths, environment=machine.environment, home=machine.home)
        with progress(quiet=quiet) as show:
            report, read = export_files(
                inputs, stream, machine.clock, show, names=names, with_text=with_text
            )
        done.append(report)
        for kind, count, examples in () if quiet else read.problems:
            say(f"Problem: {kind}, {plural(count, 'time')} ({examples[0]})")

    def from_store(stream: BinaryIO) -> None:
        url = db or default_url(machine.environment, machine.home, sys.platform)
        with open_store(url, create=False) as store:
            done.append(export_store(store, stream, names=names, with_text=with_text))

    out.write(from_files if paths else from_store)
    if not quiet and done:
        say(f"Exported {plural(done[0].sessions, 'session')}, {plural(done[0].calls, 'call')}")
