"""``cacheaudit proxy``: record agents that are written in another language."""

from __future__ import annotations

import signal
import sys
from types import FrameType

import click

from cacheaudit.cli._group import say
from cacheaudit.cli._machine import Machine
from cacheaudit.cli._options import db_option
from cacheaudit.errors import UsageError


@click.command("proxy", short_help="Record agents in any language, on their way to the API.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8484,
    show_default=True,
    help="Port on this machine; 0 for a free one.",
)
@click.option(
    "--upstream",
    metavar="NAME|URL",
    help="Where paths without a name go: anthropic, openai, deepseek or an address.",
)
@click.option(
    "--route",
    "routes",
    metavar="NAME=URL",
    multiple=True,
    help="A further upstream, reached under /NAME; may be repeated.",
)
@click.option("--session", metavar="NAME", help="File all calls under this session.")
@click.option("--store-text", is_flag=True, help="Keep the text of prompts too.")
@db_option
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but the address.")
@click.pass_obj
def command(
    machine: Machine,
    *,
    port: int,
    upstream: str | None,
    routes: tuple[str, ...],
    session: str | None,
    store_text: bool,
    db: str | None,
    quiet: bool,
) -> None:
    """Listen on this machine, pass requests on as they are, and record them.

    Point an agent's base URL at the address that is printed. Bodies are passed on byte for byte,
    streams piece by piece; keys are passed on and never stored. It ends with Ctrl-C.
    """
    from cacheaudit.agent.audit import CacheAudit
    from cacheaudit.agent.proxy.routes import Routes
    from cacheaudit.agent.proxy.server import RecordingProxy
    from cacheaudit.report.format import plural
    from cacheaudit.store import default_url, open_store

    where = Routes(dict(_pair(text) for text in routes), upstream)
    url = db or default_url(machine.environment, machine.home, sys.platform)
    open_store(url).close()  # a store that cannot be used is told now, not counted later
    with CacheAudit(url, "observe", store_text=store_text, clock=machine.clock) as audit:
        try:
            proxy = RecordingProxy(audit, where, port, session)
        except OSError as error:
            raise UsageError(
                f"Cannot listen on port {port}: {error.strerror or error}.",
                "Choose another one: --port 0 takes a free one.",
            ) from error
        click.echo(proxy.address)
        sys.stdout.flush()
        if not quiet:
            say(_hints(proxy.address))
        previous = signal.signal(signal.SIGTERM, _interrupt)
        try:
            proxy.serve()
        except KeyboardInterrupt:
            pass
        finally:
            signal.signal(signal.SIGTERM, previous)
            proxy.close()
        audit.flush()
        if not quiet:
            say(f"{plural(audit.state.written, 'call')} recorded in {url}")


def _interrupt(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise KeyboardInterrupt


def _pair(text: str) -> tuple[str, str]:
    name, equals, url = text.partition("=")
    if not equals:
        raise UsageError(f"{text!r} is no route.", "Write NAME=URL.")
    return name, url


def _hints(address: str) -> str:
    return (
        f"Claude and kin: ANTHROPIC_BASE_URL={address}\n"
        f"OpenAI and kin: OPENAI_BASE_URL={address}/v1\n"
        f"By name:        {address}/deepseek/v1, {address}/openai/v1, {address}/anthropic"
    )
