"""A group whose commands are the modules of one folder; errors become text in one place."""

from __future__ import annotations

import importlib
import os
import pkgutil
from typing import Any

import click

from cacheaudit.cli._types import override
from cacheaudit.errors import CacheAuditError

BAD_USE = 2
INTERRUPTED = 130


class CommandFolder(click.Group):
    """Finds ``<package>/<name>.py`` and takes ``command`` from it.

    A name that Python does not allow as a module's ends in an underscore: ``import_.py``.
    """

    def __init__(self, *args: Any, package: str, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._package = package

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands; imports none."""
        del ctx
        folder = importlib.import_module(self._package).__path__
        modules = (info.name for info in pkgutil.iter_modules(folder))
        return sorted(name.rstrip("_") for name in modules if not name.startswith("_"))

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in self.list_commands(ctx):
            return None
        for name in (cmd_name, f"{cmd_name}_"):
            full = f"{self._package}.{name}"
            try:
                module = importlib.import_module(full)
            except ModuleNotFoundError as error:
                if error.name != full:
                    raise
                continue
            command: click.Command = module.command
            return command
        return None

    @override
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the nearest command where one is misspelt, and ``audit`` for a bare path."""
        name = args[0] if args else ""
        if name and not name.startswith("-") and self.get_command(ctx, name) is None:
            if os.path.exists(name):  # noqa: PTH110 - a Path of a bad name can raise
                raise click.UsageError(f"{name!r} is no command. Run: cacheaudit audit {name}", ctx)
            import difflib

            near = difflib.get_close_matches(name, self.list_commands(ctx), n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"{name!r} is no command.{hint}", ctx)
        return super().resolve_command(ctx, args)

    @override
    def invoke(self, ctx: click.Context) -> Any:
        """Run; an error becomes a message on standard error and an exit code."""
        try:
            return super().invoke(ctx)
        except CacheAuditError as error:
            complain(error)
            ctx.exit(BAD_USE)
        except KeyboardInterrupt:
            say("Interrupted.")
            ctx.exit(INTERRUPTED)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except Exception:  # a fault of ours must not look like a failed gate, which is exit code 1
            import traceback

            say(traceback.format_exc())
            say("This is a fault of cacheaudit, not of your data. Please report the lines above.")
            ctx.exit(BAD_USE)


def complain(error: CacheAuditError) -> None:
    """Print what happened, where, and what to do."""
    say(f"Error: {error.message}")
    if error.hint:
        say(f"  {error.hint}")


def say(text: str) -> None:
    """Print to standard error; a closed one is no reason to fail."""
    try:
        click.echo(text, err=True)
    except OSError:
        return
