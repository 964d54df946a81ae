"""``cacheaudit probe``: does an endpoint reuse a prefix? Four requests tell."""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cacheaudit.cli._group import say
from cacheaudit.cli._machine import Machine
from cacheaudit.cli._options import output_options, prices_option
from cacheaudit.cli._output import Output
from cacheaudit.errors import UsageError

if TYPE_CHECKING:
    from cacheaudit.agent.probe.requests import Probe
    from cacheaudit.agent.probe.service import Target

FORMATS = ("text", "json")
NOT_CONFIRMED = 1
_CELL_REQUESTS = 12


@click.command("probe", short_help="Four requests tell whether an endpoint reuses a prefix.")
@click.argument("document", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--base-url",
    metavar="URL",
    default="https://api.anthropic.com",
    show_default=True,
    help="Address of the API.",
)
@click.option("--model", help="Model id; an endpoint on this machine is asked for its first one.")
@click.option(
    "--api",
    type=click.Choice(("messages", "chat")),
    help="What is spoken there; without it, what the address suggests.",
)
@click.option("--ttl", type=click.Choice(("5m", "1h")), help="Lifetime to ask for.")
@click.option("--key-env", metavar="NAME", help="Variable that holds the key.")
@click.option(
    "--pause",
    type=click.FloatRange(0, 600),
    default=0.0,
    metavar="SECONDS",
    help="Wait between requests, for endpoints that store with a delay.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(1, 3600),
    default=180.0,
    metavar="SECONDS",
    help="Seconds without a byte after which a request is given up.",
)
@click.option(
    "--fan-out",
    is_flag=True,
    help="Send three requests that share the document, in four ways (12 requests), instead.",
)
@click.option("-y", "--yes", is_flag=True, help="Send without asking; the price is still shown.")
@prices_option
@output_options(*FORMATS)
@click.pass_context
def command(
    ctx: click.Context,
    *,
    document: Path,
    base_url: str,
    model: str | None,
    api: Any,
    ttl: str | None,
    key_env: str | None,
    pause: float,
    timeout: float,
    fan_out: bool,
    yes: bool,
    prices: tuple[Path, ...],
    as_json: bool,
    form: str | None,
    output: Path | None,
    quiet: bool,
    no_color: bool,
) -> None:
    """Send at most four requests with the text of DOCUMENT and see what is read from the cache.

    Prepare, confirm, another question, another beginning: it stops where a request fails, and
    where the second one reads nothing. Nothing is sent twice. What it costs at most is shown
    first and must be confirmed, unless the endpoint is on this machine.

    With --json every request is one line, as it ends; the last line says what they show. Exit code
    1: reuse was not confirmed.
    """
    from cacheaudit.agent.probe import service

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
    found = service.target(base_url, api, key_env)
    key = _key(found, machine)
    server = service.server(found, key, timeout=timeout)
    plan = service.plan(
        found, model or _first_model(found, timeout), _read(document), uuid.uuid4().hex, ttl
    )
    _confirm(found, plan, machine, prices, _CELL_REQUESTS if fan_out else 4, is_sure=yes)

    def wait() -> None:
        if pause:
            time.sleep(pause)

    if fan_out:
        from cacheaudit.agent.fan_out.cells import four_cells

        cells = four_cells(plan, server, time.perf_counter)
        is_fine = _show_cells(_announced(cells, quiet, 4), out)
    else:
        from cacheaudit.agent.probe.run import probe

        is_fine = _show(_announced(probe(plan, server, time.perf_counter, wait), quiet, 4), out)
    if not is_fine:
        ctx.exit(NOT_CONFIRMED)


def _read(document: Path) -> str:
    try:
        return document.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{document} is no UTF-8 text: byte {error.start}.", "Convert it first."
        ) from error


def _key(found: Target, machine: Machine) -> str | None:
    if found.key_name is None:
        return None
    key = machine.environment.get(found.key_name)
    if key:
        return key
    if _is_interactive():
        typed: str = click.prompt(f"Key ({found.key_name} is not set)", hide_input=True, err=True)
        return typed
    raise UsageError(f"The variable {found.key_name} is not set.", "It must hold the API key.")


def _first_model(found: Target, timeout: float) -> str:
    """Ask an endpoint on this machine which model it serves."""
    if not found.is_local:
        raise UsageError("Which model?", "Name one: --model claude-haiku-4-5")
    from cacheaudit.agent.probe.http import first_model

    name = first_model(found.base_url, timeout)
    if name is None:
        raise UsageError(f"{found.base_url} does not list its models.", "Name one: --model NAME")
    return name


def _confirm(
    found: Target,
    plan: Probe,
    machine: Machine,
    prices: tuple[Path, ...],
    requests: int,
    *,
    is_sure: bool,
) -> None:
    """Say what it costs, and ask.

    Raises:
        UsageError: Nobody can be asked, or the text is too short.
    """
    from cacheaudit.agent.probe import service
    from cacheaudit.agent.probe.show import offer
    from cacheaudit.pricing.book import PriceBook

    if found.is_local:
        return
    said = service.cost(found, plan, PriceBook(prices), machine.clock.now(), requests)
    say(offer(said, plan.model, found.base_url))
    if is_sure:
        return
    if not _is_interactive():
        raise UsageError("Nobody is there to confirm.", "Say --yes to send without being asked.")
    click.confirm("Send?", abort=True, err=True)


def _is_interactive() -> bool:
    try:
        return os.isatty(sys.stdin.fileno())
    except (OSError, ValueError, AttributeError):
        return False


def _announced(steps: Iterable[Any], quiet: bool, most: int) -> Iterable[Any]:
    number = 0
    for number, step in enumerate(steps, 1):
        if not quiet and sys.stderr.isatty():
            say(f"{number} of {most}")
        yield step


def _show(rows: Iterable[Any], out: Output) -> bool:
    from cacheaudit.agent.probe.conclude import conclude
    from cacheaudit.agent.probe.show import rows_table
    from cacheaudit.report.renderers.text import emit

    if out.form == "json":
        kept = _lines(
            rows, out, lambda found: {"schema": found[0].schema, "conclusion": conclude(found)}
        )
        return conclude(kept).verdict == "confirmed"
    kept = list(rows)
    found = conclude(kept)
    parts = list(rows_table(kept, found))
    out.write(lambda stream: emit(parts, stream, out.view))
    return found.verdict == "confirmed"


def _show_cells(cells: Iterable[Any], out: Output) -> bool:
    from cacheaudit.agent.probe.show import cells_table
    from cacheaudit.report.renderers.text import emit

    if out.form == "json":
        kept = _lines(cells, out, None)
    else:
        kept = list(cells)
        parts = list(cells_table(kept))
        out.write(lambda stream: emit(parts, stream, out.view))
    return all(row.complete for cell in kept for row in cell.rows)


def _lines(steps: Iterable[Any], out: Output, last: Any) -> list[Any]:
    """Write one line a step, as it ends, and return all of them."""
    import msgspec

    kept: list[Any] = []

    def write(stream: Any) -> None:
        for step in steps:
            kept.append(step)
            stream.write(msgspec.json.encode(step) + b"\n")
            stream.flush()
        if last is not None and kept:
            stream.write(msgspec.json.encode(last(kept)) + b"\n")

    out.write(write)
    return kept
