"""``cacheaudit prices``: price rows with date and source."""

from __future__ import annotations

from pathlib import Path

import click

from cacheaudit.cli._machine import Machine
from cacheaudit.cli._options import output_options, prices_option
from cacheaudit.cli._output import Output, write_json
from cacheaudit.cli._times import Moment

FORMATS = ("text", "json")


@click.command("prices", short_help="Price rows with dates and sources.")
@click.argument("model", required=False)
@click.option("--at", type=Moment(is_end=False), help="Only prices that hold then: 2026-11-03.")
@click.option("--provider", help="Only this provider's table: anthropic, openai, bedrock …")
@prices_option
@output_options(*FORMATS)
@click.pass_obj
def command(
    machine: Machine,
    *,
    model: str | None,
    at: float | None,
    provider: str | None,
    prices: tuple[Path, ...],
    as_json: bool,
    form: str | None,
    output: Path | None,
    quiet: bool,
    no_color: bool,
) -> None:
    """Show what a MODEL costs, with dates and sources; without one, every model.

    MODEL is an id as records have it (dates, regions and vendor prefixes are understood) or a part
    of one.
    """
    from cacheaudit.jobs import prices as job

    out = Output(
        form=form,
        as_json=as_json,
        output=output,
        quiet=quiet,
        no_color=no_color,
        environment=machine.environment,
        formats=FORMATS,
    )
    result = job.prices(model, provider=provider, at=at, files=prices)
    if out.form == "json":
        out.write(lambda stream: write_json(result, stream))
        return
    from cacheaudit.report.lists import price_table
    from cacheaudit.report.renderers.text import emit

    parts = list(price_table(result.rows))
    out.write(lambda stream: emit(parts, stream, out.view))
