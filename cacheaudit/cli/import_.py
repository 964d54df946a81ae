"""``cacheaudit import``: recorded sessions into the store."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from cacheaudit.cli._group import say
from cacheaudit.cli._machine import Machine
from cacheaudit.cli._options import db_option
from cacheaudit.cli._progress import progress


@click.command("import", short_help="Put sessions into a database; again at any time.")
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(path_type=Path))
@db_option
@click.option(
    "--store-text",
    is_flag=True,
    help="Keep the text of prompts and errors too; by default only digests and sizes are kept.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="No progress bar and no report.")
@click.pass_obj
def command(
    machine: Machine,
    *,
    paths: tuple[Path, ...],
    db: str | None,
    store_text: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Put recorded sessions into the store; do it again at any time to add what is new.

    Files that are as they were are skipped. Without a path, the folders are read in which coding
    agents keep their sessions. Without --db, the store is a SQLite file in your data folder.
    """
    import msgspec

    from cacheaudit.jobs.import_ import ImportReport, import_files
    from cacheaudit.jobs.inputs import Inputs
    from cacheaudit.store import default_url, open_store

    inputs = Inputs(paths=paths, environment=machine.environment, home=machine.home)
    url = db or default_url(machine.environment, machine.home, sys.platform)
    with open_store(url, store_text=store_text) as store, progress(quiet=quiet) as show:
        report: ImportReport = import_files(inputs, store, machine.clock, show)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(_plain(report))).decode())
    elif not quiet:
        for line in described(report):
            say(line)


def _plain(report: object) -> dict[str, object]:
    """Return the report as the documented JSON object."""
    import msgspec

    fields: dict[str, object] = msgspec.to_builtins(report)
    problems = fields.pop("problems")
    rows = problems if isinstance(problems, tuple | list) else ()
    return {
        "schema": fields.pop("schema"),
        **fields,
        "problems": [
            {"kind": kind, "count": count, "examples": list(examples)}
            for kind, count, examples in rows
        ],
    }


def described(report: object) -> list[str]:
    """Say in a few lines what an import did."""
    fields = _plain(report)
    names = ("read", "continued", "skipped")
    files = ", ".join(f"{fields[f'files_{name}']} {name}" for name in names)
    names = ("new", "updated", "unchanged")
    calls = ", ".join(f"{fields[f'calls_{name}']} {name}" for name in names)
    lines = [f"Store: {fields['db']}", f"Files: {files}", f"Calls: {calls}"]
    rows = fields["problems"]
    for row in rows if isinstance(rows, list) else ():
        examples = row["examples"]
        lines.append(f"Problem: {row['kind']}, {row['count']} times ({examples[0]})")
    return lines
