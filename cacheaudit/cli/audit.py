"""``cacheaudit audit``: the main job."""

from __future__ import annotations

from pathlib import Path

import click

from cacheaudit.cli._gate import Limit, LimitType, judge
from cacheaudit.cli._group import say
from cacheaudit.cli._machine import Machine
from cacheaudit.cli._options import (
    input_options,
    no_store_with_paths,
    output_options,
    remark_on_empty_span,
    switch_option,
)
from cacheaudit.cli._output import Output
from cacheaudit.cli._progress import progress
from cacheaudit.errors import UsageError

GATE_FAILED = 1


@click.command("audit", short_help="Diagnose recorded sessions: cost, losses, causes.")
@input_options
@click.option(
    "--fail-over",
    type=LimitType(),
    help="Exit with 1 where misses cost more: an amount (5usd) or a share of the bill (10%).",
)
@click.option(
    "--show-text", is_flag=True, help="Show the text where prompts change; it is masked otherwise."
)
@click.option(
    "--select",
    metavar="RULES",
    multiple=True,
    help="Run these rules only: ids, names or families (TTL101,PFX), or none; may be repeated.",
)
@click.option(
    "--ignore", metavar="RULES", multiple=True, help="Do not run these rules; may be repeated."
)
@click.option(
    "--quick", is_flag=True, help="Calls, tokens and cost only: no rule is run, no cache simulated."
)
@click.option(
    "--replayed",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    help="Result of `cacheaudit replay --json`; a loss that it reproduced has it as evidence. May "
    "be repeated.",
)
@switch_option
@click.option("-v", "--verbose", is_flag=True, help="Every finding in full, every session.")
@output_options()
@click.pass_obj
def command(
    machine: Machine,
    *,
    paths: tuple[Path, ...],
    db: str | None,
    prices: tuple[Path, ...],
    since: float | None,
    until: float | None,
    fail_over: Limit | None,
    show_text: bool,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    quick: bool,
    replayed: tuple[Path, ...],
    switches: tuple[str, ...],
    verbose: bool,
    as_json: bool,
    form: str | None,
    output: Path | None,
    quiet: bool,
    no_color: bool,
) -> None:
    """Find, read, price and diagnose recorded sessions, and report what misses cost.

    PATH is a session file or a folder of them; any supported format is recognised by its content.
    Without a path, the folders are read in which coding agents keep their sessions.
    """
    from cacheaudit.jobs.audit import audit
    from cacheaudit.jobs.inputs import Inputs
    from cacheaudit.jobs.selection import parse_selection
    from cacheaudit.report.renderer import renderer
    from cacheaudit.simulate.switches import Switches

    no_store_with_paths(paths, db)
    if quick and (select or ignore or fail_over is not None):
        raise UsageError(
            "With --quick nothing is diagnosed, so there are no rules to choose and no losses to "
            "judge.",
            "Leave out --quick, or --select, --ignore and --fail-over.",
        )
    selection = parse_selection(select, ignore)
    if fail_over is not None and not selection.rules():
        raise UsageError(
            "No rule is left to run, so that there are no losses for --fail-over to judge.",
            "Leave out --fail-over, or choose rules with --select and --ignore.",
        )
    out = Output(
        form=form,
        as_json=as_json,
        output=output,
        quiet=quiet,
        no_color=no_color,
        environment=machine.environment,
        verbose=verbose,
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
        switches=Switches.of_texts(switches),
        selection=selection,
        quick=quick,
        replayed=replayed,
    )
    with progress(quiet=quiet) as show:
        result = audit(inputs, show, show_text=show_text)
    out.write(lambda stream: writer.audit(result, stream, out.view))
    if not quiet:
        remark_on_empty_span(result.scope.calls, since=since, until=until)
    if fail_over is None:
        return
    judgement = judge(result, fail_over)
    if not judgement.holds:
        say(f"Gate failed: {judgement.text}")
        raise SystemExit(GATE_FAILED)
    if not quiet:
        say(f"Gate holds: {judgement.text}")
