"""``cacheaudit diff``: the first change between two requests."""

from __future__ import annotations

from pathlib import Path

import click

from cacheaudit.cli._machine import Machine
from cacheaudit.cli._options import output_options, prices_option
from cacheaudit.cli._output import Output, write_json

FORMATS = ("text", "json")


@click.command("diff", short_help="The first change between two requests, and its cost.")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@prices_option
@click.option("--show-text", is_flag=True, help="Show the changed text; it is masked otherwise.")
@output_options(*FORMATS)
@click.pass_obj
def command(
    machine: Machine,
    *,
    a: str,
    b: str,
    prices: tuple[Path, ...],
    show_text: bool,
    as_json: bool,
    form: str | None,
    output: Path | None,
    quiet: bool,
    no_color: bool,
) -> None:
    """Show the first change from request A to request B and what it costs.

    Each of A and B is a JSON file with a request body, FILE#ID (a recorded call by its id) or
    FILE#N (line N of a file of records, from 1).
    """
    from cacheaudit.jobs.diff import diff

    out = Output(
        form=form,
        as_json=as_json,
        output=output,
        quiet=quiet,
        no_color=no_color,
        environment=machine.environment,
        formats=FORMATS,
    )
    result = diff(a, b, prices=prices, show_text=show_text)
    if out.form == "json":
        out.write(lambda stream: write_json(result, stream))
        return
    from cacheaudit.report.diff import diff_text
    from cacheaudit.report.renderers.text import emit

    parts = list(diff_text(result))
    out.write(lambda stream: emit(parts, stream, out.view))
