"""``cacheaudit demo``: a real agent, run against the local engine and audited afterwards."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from cacheaudit.cli._machine import Machine
from cacheaudit.cli._options import output_options, prices_option
from cacheaudit.cli._output import Output, write_json
from cacheaudit.cli._progress import progress

FORMATS = ("text", "json")


@click.group("demo", short_help="A small agent on the local engine, before and after.")
def command() -> None:
    """Run an example end to end on this machine, and audit it."""


@command.command("agent", short_help="A coding agent: a naive loop against a careful one.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the recordings go; without it they are thrown away.",
)
@click.option(
    "--sessions", type=click.IntRange(1, 50), default=4, show_default=True, help="Conversations."
)
@click.option(
    "--issues",
    type=click.IntRange(1, 20),
    default=3,
    show_default=True,
    help="Issues in each conversation.",
)
@prices_option
@click.option("-v", "--verbose", is_flag=True, help="Every task and its lanes.")
@output_options(*FORMATS)
@click.pass_obj
def agent(
    machine: Machine,
    *,
    folder: Path | None,
    sessions: int,
    issues: int,
    prices: tuple[Path, ...],
    verbose: bool,
    as_json: bool,
    form: str | None,
    output: Path | None,
    quiet: bool,
    no_color: bool,
) -> None:
    """Let a small coding agent repair modules, twice, and compare what both ways cost.

    Tools, requests, their usage and their times are real; what the model says is scripted, since
    the small local model cannot reason. Before: a naive loop. After: scripts instead of single tool
    calls, cache markers, ordered reviewers, compaction, keep-alive. Nothing leaves this machine.
    Needs the extras `anthropic`, `local`, `tools` and `codemode`.
    """
    from cacheaudit.jobs.demo.agent import demo_agent
    from cacheaudit.jobs.inputs import Inputs

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
    inputs = Inputs(paths=(), environment=machine.environment, home=machine.home, prices=prices)
    with tempfile.TemporaryDirectory() as scratch, progress(quiet=quiet) as show:
        result = demo_agent(
            folder or Path(scratch),
            inputs,
            show,
            start=machine.clock.now(),
            sessions=sessions,
            per_session=issues,
        )
    if out.form == "json":
        out.write(lambda stream: write_json(result, stream))
        return
    from cacheaudit.report.demo_text import demo_text
    from cacheaudit.report.renderers.text import emit

    parts = list(demo_text(result, out.view, is_kept=folder is not None))
    out.write(lambda stream: emit(parts, stream, out.view))
