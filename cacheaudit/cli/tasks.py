"""``cacheaudit tasks``: the ledger of whole tasks."""

from __future__ import annotations

from pathlib import Path

import click

from cacheaudit.cli._machine import Machine
from cacheaudit.cli._options import input_options, no_store_with_paths, output_options
from cacheaudit.cli._output import Output, write_json
from cacheaudit.cli._progress import progress

FORMATS = ("text", "json")


@click.command("tasks", short_help="What whole tasks cost, and for what.")
@input_options
@click.option("-v", "--verbose", is_flag=True, help="Every task, and its lanes.")
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
    verbose: bool,
    as_json: bool,
    form: str | None,
    output: Path | None,
    quiet: bool,
    no_color: bool,
) -> None:
    """Add up whole tasks: main line, subagents, summaries, keep-alive, warm-up, retries, probes.

    Says what each purpose cost, what an accepted task cost with failures included, and where the
    time went: first token, generation, tools. Paths as in `audit`.
    """
    from cacheaudit.jobs.inputs import Inputs
    from cacheaudit.jobs.tasks import tasks

    no_store_with_paths(paths, db)
    out = Output(
        form=form,
        as_json=as_json,
        output=output,
        quiet=quiet,
        no_color=no_color,
        environment=machine.environment,
        formats=FORMATS,
        verbose=verbose,
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
        result = tasks(inputs, show)
    if out.form == "json":
        out.write(lambda stream: write_json(result, stream))
        return
    from cacheaudit.report.renderers.text import emit
    from cacheaudit.report.tasks_text import tasks_text

    parts = list(tasks_text(result, out.view))
    out.write(lambda stream: emit(parts, stream, out.view))
