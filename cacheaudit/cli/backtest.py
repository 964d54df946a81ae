"""``cacheaudit backtest``: other lifetime settings, tried on everything that was recorded."""

from __future__ import annotations

from pathlib import Path

import click

from cacheaudit.cli._machine import Machine
from cacheaudit.cli._options import input_options, output_options
from cacheaudit.cli._output import Output, write_json
from cacheaudit.cli._progress import progress

FORMATS = ("text", "json")


@click.command("backtest", short_help="Other cache lifetimes tried on your history.")
@input_options
@click.option(
    "--policy",
    "policies",
    metavar="SETTING",
    multiple=True,
    help="Setting to try: 1h, 5m+keep-alive, main=1h,subagents=5m ...; may be repeated. "
    "Without it the usual ones are tried.",
)
@click.option(
    "--currency", default="USD", show_default=True, help="Currency that the bills are in."
)
@output_options(*FORMATS)
@click.pass_obj
def command(
    machine: Machine,
    *,
    paths: tuple[Path, ...],
    db: str | None,
    prices: tuple[Path, ...],
    since: float | None,
    until: float | None,
    policies: tuple[str, ...],
    currency: str,
    as_json: bool,
    form: str | None,
    output: Path | None,
    quiet: bool,
    no_color: bool,
) -> None:
    """Try other cache lifetimes on recorded sessions: what they save, how often they lose.

    Needs no requests: sizes and pauses tell what would have been read. Paths as in `audit`.
    """
    from cacheaudit.jobs.backtest import backtest
    from cacheaudit.jobs.inputs import Inputs
    from cacheaudit.report.backtest import backtest_text
    from cacheaudit.report.renderers.text import emit

    out = Output(
        form=form,
        as_json=as_json,
        output=output,
        quiet=quiet,
        no_color=no_color,
        environment=machine.environment,
        formats=FORMATS,
    )
    inputs = Inputs(
        paths=paths,
        environment=machine.environment,
        home=machine.home,
        prices=prices,
        since=since,
        until=until,
        db=db,
    )
    with progress(quiet=quiet) as show:
        result = backtest(inputs, show, policies, currency.upper())
    if out.form == "json":
        out.write(lambda stream: write_json(result, stream))
        return
    parts = list(backtest_text(result))
    out.write(lambda stream: emit(parts, stream, out.view))
