"""``cacheaudit explain``: one rule in full."""

from __future__ import annotations

from pathlib import Path

import click

from cacheaudit.cli._machine import Machine
from cacheaudit.cli._options import output_options
from cacheaudit.cli._output import Output, write_json
from cacheaudit.cli._text import write_text

FORMATS = ("text", "json", "md")


@click.command("explain", short_help="One rule: why it costs, what to do, examples.")
@click.argument("rule", metavar="ID")
@output_options(*FORMATS)
@click.pass_obj
def command(
    machine: Machine,
    *,
    rule: str,
    as_json: bool,
    form: str | None,
    output: Path | None,
    quiet: bool,
    no_color: bool,
) -> None:
    """Explain a rule: why it costs, what it rests on, when to ignore it, a bad and a good example.

    ID is a rule's id or name: TTL101 or ttl-expired.
    """
    from cacheaudit.jobs.rules import explain
    from cacheaudit.report.rules import rule_md, rule_text

    out = Output(
        form=form,
        as_json=as_json,
        output=output,
        quiet=quiet,
        no_color=no_color,
        environment=machine.environment,
        formats=FORMATS,
    )
    result = explain(rule)
    if out.form == "json":
        out.write(lambda stream: write_json(result, stream))
        return
    if out.form == "md":
        text = rule_md(result.markdown, result.rule, result.bad, result.good)
        out.write(lambda stream: write_text(text, stream))
        return
    from cacheaudit.report.renderers.text import emit

    parts = list(rule_text(result.markdown, result.rule, result.bad, result.good))
    out.write(lambda stream: emit(parts, stream, out.view))
