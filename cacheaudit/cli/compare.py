"""``cacheaudit compare``: the same tasks before and after."""

from __future__ import annotations

from pathlib import Path

import click

from cacheaudit.cli._machine import Machine
from cacheaudit.cli._options import output_options, prices_option
from cacheaudit.cli._output import Output, write_json
from cacheaudit.cli._progress import progress
from cacheaudit.cli._text import write_text

FORMATS = ("text", "json", "md", "html")


@click.command("compare", short_help="The same tasks before and after a change.")
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@prices_option
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Seed of the intervals' random draws."
)
@click.option("-v", "--verbose", is_flag=True, help="Every pair of tasks.")
@output_options(*FORMATS)
@click.pass_obj
def command(
    machine: Machine,
    *,
    before: Path,
    after: Path,
    prices: tuple[Path, ...],
    seed: int,
    verbose: bool,
    as_json: bool,
    form: str | None,
    output: Path | None,
    quiet: bool,
    no_color: bool,
) -> None:
    """Compare tasks before and after a change: accepted tasks, cost, time, cache use.

    BEFORE and AFTER are session files or folders. Tasks are paired by their `task`, else by session
    name, else by order. Nothing is concluded from fewer than ten pairs.
    """
    from cacheaudit.jobs.compare import compare
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
    with progress(quiet=quiet) as show:
        result = compare(before, after, inputs, show, seed=seed)
    if out.form == "json":
        out.write(lambda stream: write_json(result, stream))
    elif out.form == "text":
        from cacheaudit.report.comparison_text import comparison_text
        from cacheaudit.report.renderers.text import emit

        parts = list(comparison_text(result, verbose=verbose))
        out.write(lambda stream: emit(parts, stream, out.view))
    else:
        from cacheaudit.report.comparison_html import comparison_html
        from cacheaudit.report.comparison_text import comparison_md

        text = comparison_html(result) if out.form == "html" else comparison_md(result)
        out.write(lambda stream: write_text(text, stream))
