"""``cacheaudit lint``: what would be refused or never hit, before it is sent."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from cacheaudit.cli._machine import Machine
from cacheaudit.cli._options import output_options
from cacheaudit.cli._output import Output, write_json
from cacheaudit.cli._times import Moment

FORMATS = ("text", "json")
REFUSED = 1


@click.command("lint", short_help="What would be refused or never hit, before sending.")
@click.argument("bodies", metavar="BODY...", nargs=-1, required=True)
@click.option(
    "--surface",
    metavar="NAME",
    help="Where it will be sent, if not to the maker: bedrock, google_cloud, foundry ...",
)
@click.option(
    "--at",
    type=Moment(is_end=False),
    help="Apply the provider rules of that day instead of today's: 2026-08-01.",
)
@output_options(*FORMATS)
@click.pass_obj
def command(
    machine: Machine,
    *,
    bodies: tuple[str, ...],
    surface: str | None,
    at: float | None,
    as_json: bool,
    form: str | None,
    output: Path | None,
    quiet: bool,
    no_color: bool,
) -> None:
    """Say what the provider would refuse in a request, or could never serve from its cache.

    BODY is a JSON file with a request body, a list of them, a batch, a file with one body or
    recorded call a line, FILE#N or FILE#ID for one of them, or - for standard input. Exit code 1
    where a request would be refused.
    """
    from cacheaudit.jobs.lint import STDIN, lint

    out = Output(
        form=form,
        as_json=as_json,
        output=output,
        quiet=quiet,
        no_color=no_color,
        environment=machine.environment,
        formats=FORMATS,
    )
    stdin = sys.stdin.buffer.read() if STDIN in bodies else b""
    moment = machine.clock.now() if at is None else at
    result = lint(bodies, at=moment, surface=surface, stdin=stdin)
    if out.form == "json":
        out.write(lambda stream: write_json(result, stream))
    else:
        from cacheaudit.report.lint import lint_text
        from cacheaudit.report.renderers.text import emit

        parts = list(lint_text(result.problems, result.requests))
        out.write(lambda stream: emit(parts, stream, out.view))
    if result.has_refused:
        raise SystemExit(REFUSED)
