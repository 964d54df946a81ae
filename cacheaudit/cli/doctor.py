"""``cacheaudit doctor``: what works on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from cacheaudit.cli._machine import Machine
from cacheaudit.cli._options import db_option, output_options
from cacheaudit.cli._output import Output, write_json

FORMATS = ("text", "json")


@click.command("doctor", short_help="What works on this machine.")
@db_option
@output_options(*FORMATS)
@click.pass_obj
def command(
    machine: Machine,
    *,
    db: str | None,
    as_json: bool,
    form: str | None,
    output: Path | None,
    quiet: bool,
    no_color: bool,
) -> None:
    """Say what works here: Python, optional parts, store, price tables, agents' folders.

    Nothing is changed, downloaded or sent.
    """
    from cacheaudit.jobs.doctor import doctor

    out = Output(
        form=form,
        as_json=as_json,
        output=output,
        quiet=quiet,
        no_color=no_color,
        environment=machine.environment,
        formats=FORMATS,
    )
    result = doctor(machine.environment, machine.home, machine.clock, db)
    if out.form == "json":
        out.write(lambda stream: write_json(result, stream))
        return
    from cacheaudit.report.lists import check_table
    from cacheaudit.report.renderers.text import emit

    parts = list(check_table(result.checks, result.version))
    out.write(lambda stream: emit(parts, stream, out.view))
