"""``cacheaudit serve``: start the local engine as a server. It runs in a process of its own."""

from __future__ import annotations

import sys

import click

_MODULE = "local_backend.server"
_HELP = ("-h", "--help")


@click.command(
    "serve",
    short_help="The local engine as a server of the Messages API.",
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    options_metavar="[OPTIONS]",
)
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="")
@click.pass_context
def command(ctx: click.Context, options: tuple[str, ...]) -> None:
    """Serve a local model, with a real KV cache and a provider's cache rules in front of it.

    Prints one line with its address when it is ready. Needs the extra `local`; the options are
    those of `python -m local_backend.server`, and docs/guide/server.md describes them.
    """
    import importlib.util

    # Only looked for: this package never imports that one.
    if importlib.util.find_spec(_MODULE.partition(".")[0]) is None:
        if any(option in _HELP for option in options):
            click.echo(ctx.get_help())
            return
        from cacheaudit.errors import MissingExtraError

        raise MissingExtraError(
            "The local engine is not installed.", "Run: pip install 'cacheaudit[local]'"
        )
    ctx.exit(_run([sys.executable, "-m", _MODULE, *options]))


def _run(arguments: list[str]) -> int:
    """Run a process until it ends by itself; signals that ask for its end are handed on."""
    import signal
    import subprocess
    from types import FrameType

    with subprocess.Popen(arguments) as child:  # noqa: S603 - our own interpreter and module

        def hand_on(number: int, frame: FrameType | None) -> None:
            del frame
            child.send_signal(number)

        before = signal.signal(signal.SIGTERM, hand_on)
        # From a keyboard the child gets this one as well.
        interrupted = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            code = child.wait()
        finally:
            signal.signal(signal.SIGTERM, before)
            signal.signal(signal.SIGINT, interrupted)
    return code if code >= 0 else 128 - code
