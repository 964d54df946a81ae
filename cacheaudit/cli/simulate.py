"""``cacheaudit simulate``: predicted against reported, call by call."""

from __future__ import annotations

from pathlib import Path

import click

from cacheaudit.cli._group import BAD_USE, say
from cacheaudit.cli._machine import Machine
from cacheaudit.cli._options import output_options, prices_option, switch_option
from cacheaudit.cli._output import Output, write_json

FORMATS = ("text", "json")


@click.command("simulate", short_help="Predicted against billed; what a change would save.")
@click.argument(
    "paths", metavar="SESSION...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option(
    "--ttl",
    type=click.Choice(("5m", "1h")),
    help="Simulate as if all markers had asked for this lifetime.",
)
@click.option(
    "--edit",
    "edit_texts",
    metavar="NAME[:OPTION=VALUE,...]",
    multiple=True,
    help="Change the session before simulating it; may be repeated. "
    "docs/guide/what-if.md lists the edits.",
)
@switch_option
@click.option(
    "--known",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="JSON file with what is known of calls that have no body, by call id.",
)
@prices_option
@output_options(*FORMATS)
@click.pass_obj
def command(
    machine: Machine,
    *,
    paths: tuple[Path, ...],
    ttl: str | None,
    edit_texts: tuple[str, ...],
    switches: tuple[str, ...],
    known: Path | None,
    prices: tuple[Path, ...],
    as_json: bool,
    form: str | None,
    output: Path | None,
    quiet: bool,
    no_color: bool,
) -> None:
    """Play sessions through the provider's cache rules and compare with what was billed.

    Requests that were recorded are simulated exactly; calls of which only the usage is known are
    simulated from their sizes, and where those do not suffice nothing is predicted. With --edit or
    --ttl, what the changes would have saved is shown too: each alone, all together, step by step.
    A change that the record does not allow is left out, and the exit code is 2.
    """
    from cacheaudit.cli._progress import progress
    from cacheaudit.jobs.inputs import Inputs
    from cacheaudit.jobs.simulate import simulate
    from cacheaudit.simulate.edit import parse_edit
    from cacheaudit.simulate.switches import Switches

    out = Output(
        form=form,
        as_json=as_json,
        output=output,
        quiet=quiet,
        no_color=no_color,
        environment=machine.environment,
        formats=FORMATS,
    )
    inputs = Inputs(paths=paths, environment=machine.environment, home=machine.home, prices=prices)
    edits = [parse_edit(text) for text in edit_texts]
    if ttl is not None:
        edits.append(parse_edit(f"ttl:ttl={ttl}"))
    with progress(quiet=quiet) as told:
        result = simulate(
            inputs, told, switches=Switches.of_texts(switches), known=known, edits=edits
        )
    if out.form == "json":
        out.write(lambda stream: write_json(result, stream))
        _refuse(result.refused)
        return
    from cacheaudit.report.renderers.text import emit
    from cacheaudit.report.simulation import simulation_text

    parts = list(simulation_text(result))
    if result.what_if is not None:
        from cacheaudit.report.whatif import what_if_text

        parts += ["", *what_if_text(result.what_if, result.totals.currency)]
    out.write(lambda stream: emit(parts, stream, out.view))
    _refuse(result.refused)


def _refuse(refused: dict[str, str]) -> None:
    """Say which edits the record does not allow; the result is out, but not what was asked for."""
    for text, reason in refused.items():
        say(f"Error: --edit {text} was left out. {reason}")
    if refused:
        raise SystemExit(BAD_USE)
