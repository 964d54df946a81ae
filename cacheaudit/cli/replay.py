"""``cacheaudit replay``: send a recorded session to an engine and compare."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cacheaudit.cli._group import BAD_USE, say
from cacheaudit.cli._machine import Machine
from cacheaudit.cli._options import output_options, switch_option
from cacheaudit.cli._output import Output, write_json
from cacheaudit.errors import UsageError

if TYPE_CHECKING:
    from cacheaudit.jobs.replay import Outlook

FORMATS = ("text", "json")
FAILED = 1
_LOCAL = "local"


@click.command("replay", short_help="Send a session to an engine; predicted, reported, replayed.")
@click.argument(
    "paths", metavar="SESSION...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option(
    "--backend",
    metavar="local|URL",
    default=_LOCAL,
    show_default=True,
    help="The local engine, started for this replay, or the address of a server.",
)
@click.option(
    "--clock",
    type=click.Choice(("recorded", "fast")),
    default="recorded",
    show_default=True,
    help="Let recorded pauses pass on the server's clock, or let time stand still.",
)
@click.option(
    "--scale",
    type=click.IntRange(1, 100_000),
    metavar="N",
    help="Divide all sizes by N. Without it the local engine gets what it can do in seconds.",
)
@click.option(
    "--edit",
    "edit_texts",
    metavar="NAME[:OPTION=VALUE,...]",
    multiple=True,
    help="Change the session before sending it; may be repeated. docs/guide/what-if.md lists the "
    "edits.",
)
@click.option(
    "--rules",
    type=click.Choice(("anthropic", "implicit", "deepseek")),
    help="Cache rules of the local engine; without it, those of each call's provider.",
)
@click.option("--model", default="tiny", show_default=True, help="Model of the local engine.")
@click.option(
    "--pages",
    type=click.IntRange(1),
    help="Pages of the local engine's cache, to see what a small one evicts.",
)
@click.option(
    "--bodies",
    is_flag=True,
    help="Send the recorded requests themselves; otherwise filler of the same sizes is sent.",
)
@click.option("--key-env", metavar="NAME", help="Variable that holds the key of a server.")
@click.option("-y", "--yes", is_flag=True, help="Send to another machine without asking.")
@switch_option
@output_options(*FORMATS)
@click.pass_context
def command(
    ctx: click.Context,
    *,
    paths: tuple[Path, ...],
    backend: str,
    clock: str,
    scale: int | None,
    edit_texts: tuple[str, ...],
    rules: str | None,
    model: str,
    pages: int | None,
    bodies: bool,
    key_env: str | None,
    yes: bool,
    switches: tuple[str, ...],
    as_json: bool,
    form: str | None,
    output: Path | None,
    quiet: bool,
    no_color: bool,
) -> None:
    """Send recorded sessions to an engine with a real cache, in order and with their pauses.

    For every call the tokens read and written stand side by side as the rules predict them, as
    they were billed, and as the engine did it; where they differ, it says why. Requests are filled
    with text that means nothing, sized like the record; from usage alone they are drawn from
    sizes. Exit code 1: a request failed.
    """
    from cacheaudit.jobs.inputs import Inputs
    from cacheaudit.jobs.replay import ReplayOptions, replay
    from cacheaudit.simulate.edit import parse_edit
    from cacheaudit.simulate.switches import Switches

    machine: Machine = ctx.obj
    out = Output(
        form=form,
        as_json=as_json,
        output=output,
        quiet=quiet,
        no_color=no_color,
        environment=machine.environment,
        formats=FORMATS,
    )
    inputs = Inputs(paths=paths, environment=machine.environment, home=machine.home)
    options = ReplayOptions(
        backend=backend,
        clock=clock,
        scale=scale,
        edits=tuple(parse_edit(text) for text in edit_texts),
        switches=Switches.of_texts(switches),
        rules=rules,  # type: ignore[arg-type]
        model=model,
        pages=pages,
        bodies=bodies,
        key=_key(key_env, machine),
    )
    with _progress(quiet=quiet) as told:
        result = replay(
            inputs,
            told,
            options,
            tick=time.perf_counter,
            name=uuid.uuid4().hex,
            allow=_consent(backend, is_sure=yes),
        )
    if out.form == "json":
        out.write(lambda stream: write_json(result, stream))
    else:
        from cacheaudit.report.renderers.text import emit
        from cacheaudit.report.replay_text import replay_text

        parts = list(replay_text(result))
        out.write(lambda stream: emit(parts, stream, out.view))
    for text, reason in result.refused.items():
        say(f"Error: --edit {text} was left out. {reason}")
    if result.refused:
        ctx.exit(BAD_USE)
    if result.totals.failed_calls:
        ctx.exit(FAILED)


def _key(name: str | None, machine: Machine) -> str | None:
    if name is None:
        return None
    key = machine.environment.get(name)
    if not key:
        raise UsageError(f"The variable {name} is not set.", "It must hold the API key.")
    return key


def _consent(backend: str, *, is_sure: bool) -> Callable[[Outlook], None]:
    """Ask before anything is sent to another machine, where it may cost money."""
    from urllib.parse import urlsplit

    from cacheaudit.jobs.replaying.client import is_near

    def allow(outlook: Outlook) -> None:
        host = urlsplit(backend).hostname
        # What is no address is refused later.
        if backend == _LOCAL or host is None or is_near(host):
            return
        say(
            f"{outlook.requests:,} requests with about {outlook.tokens:,} input tokens would go "
            f"to {backend}."
        )
        if is_sure:
            return
        if not sys.stdin or not _is_terminal():
            raise UsageError(
                "Nobody is there to confirm.", "Say --yes to send without being asked."
            )
        click.confirm("Send?", abort=True, err=True)

    return allow


def _is_terminal() -> bool:
    try:
        return os.isatty(sys.stdin.fileno())
    except (OSError, ValueError, AttributeError):
        return False


@contextlib.contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """Show on a terminal's standard error how many calls were sent."""
    stream = sys.stderr
    if quiet or stream is None or not stream.isatty():
        yield lambda _done, _whole: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("Replaying"), BarColumn(24), MofNCompleteColumn())
    with Progress(*columns, console=Console(file=stream), transient=True) as bar:
        task = bar.add_task("calls", total=None)
        yield lambda done, whole: bar.update(task, completed=done, total=whole)
