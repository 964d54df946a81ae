"""``cacheaudit usage``: totals only, fast."""

from __future__ import annotations

from pathlib import Path

import click

from cacheaudit.cli._machine import Machine
from cacheaudit.cli._options import (
    input_options,
    no_store_with_paths,
    output_options,
    remark_on_empty_span,
)
from cacheaudit.cli._output import Output
from cacheaudit.cli._progress import progress

FORMATS = ("text", "json", "csv", "md")
KEYS = ("day", "session", "model", "purpose", "agent", "project")


@click.command("usage", short_help="Total tokens and money, fast.")
@input_options
@click.option(
    "--by", type=click.Choice(KEYS), default="day", show_default=True, help="What to group by."
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
    by: str,
    as_json: bool,
    form: str | None,
    output: Path | None,
    quiet: bool,
    no_color: bool,
) -> None:
    """Add up tokens and money by day, session, model, purpose, agent or project.

    The fast path: it prices what was used and looks for no causes. Paths as in `audit`.
    """
    from cacheaudit.jobs.inputs import Inputs
    from cacheaudit.jobs.usage import usage
    from cacheaudit.report.renderer import renderer

    no_store_with_paths(paths, db)
    out = Output(
        form=form,
        as_json=as_json,
        output=output,
        quiet=quiet,
        no_color=no_color,
        environment=machine.environment,
        formats=FORMATS,
    )
    writer = renderer(out.form)
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
        result = usage(inputs, by, show)
    out.write(lambda stream: writer.usage(result, stream, out.view))
    if not quiet:
        remark_on_empty_span(result.scope.calls, since=since, until=until)
