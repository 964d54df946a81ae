"""``cacheaudit rules``: the catalogue."""

from __future__ import annotations

from pathlib import Path

import click

from cacheaudit.cli._machine import Machine
from cacheaudit.cli._options import output_options
from cacheaudit.cli._output import Output, write_json
from cacheaudit.cli._text import write_text

FORMATS = ("text", "json", "md")


@click.command("rules", short_help="The catalogue of causes, and the checks of lint.")
@click.option("--family", metavar="ABC", help="Only one family: PFX, TOL, MDL, TTL, CMP ...")
@output_options(*FORMATS)
@click.pass_obj
def command(
    machine: Machine,
    *,
    family: str | None,
    as_json: bool,
    form: str | None,
    output: Path | None,
    quiet: bool,
    no_color: bool,
) -> None:
    """List the rules that `audit` applies, what each needs, and the checks of `lint`."""
    from cacheaudit.jobs.rules import rules
    from cacheaudit.report.rules import rules_md, rules_text

    out = Output(
        form=form,
        as_json=as_json,
        output=output,
        quiet=quiet,
        no_color=no_color,
        environment=machine.environment,
        formats=FORMATS,
    )
    result = rules(family)
    if out.form == "json":
        out.write(lambda stream: write_json(result, stream))
        return
    if out.form == "md":
        text = rules_md(result.rules, result.lint)
        out.write(lambda stream: write_text(text, stream))
        return
    from cacheaudit.report.renderers.text import emit

    parts = list(rules_text(result.rules, result.lint))
    out.write(lambda stream: emit(parts, stream, out.view))
