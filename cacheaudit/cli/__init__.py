"""The command line. A command's module is imported when that command is used, and no earlier."""

from __future__ import annotations

import click

from cacheaudit._version import __version__
from cacheaudit.cli._group import CommandFolder
from cacheaudit.cli._machine import Machine

__all__ = ["main"]


@click.group(
    cls=CommandFolder,
    package=__name__,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 fine, 1 a gate failed, 2 bad use or unreadable input.",
)
@click.version_option(__version__, "-V", "--version", package_name="cacheaudit")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Say why a prompt cache missed, what that cost, and whether a fix would have helped.

    Start with `cacheaudit audit`: without a path it looks where coding agents keep their sessions.
    Nothing that is read leaves this machine.
    """
    if ctx.obj is None:
        ctx.obj = Machine.real()
