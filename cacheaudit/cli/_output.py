"""Where a result goes: standard output or a file, and in which form."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, TextIO

from cacheaudit.cli._group import say
from cacheaudit.errors import UsageError
from cacheaudit.report.renderer import View

_SUFFIXES = {
    ".json": "json",
    ".html": "html",
    ".htm": "html",
    ".md": "md",
    ".csv": "csv",
    ".sarif": "sarif",
    ".txt": "text",
}
_NARROWEST, _WIDEST = 60, 160


class Output:
    """One result's way out of a command."""

    def __init__(
        self,
        *,
        form: str | None,
        as_json: bool,
        output: Path | None,
        quiet: bool,
        no_color: bool,
        environment: Mapping[str, str],
        formats: tuple[str, ...] = (),
        verbose: bool = False,
    ) -> None:
        if as_json and form not in (None, "json"):
            raise UsageError(f"--json and --format {form} contradict each other.", "Give one.")
        self.path = None if output is None or str(output) == "-" else output
        self.quiet = quiet
        self.form = "json" if as_json else form or _by_suffix(self.path, formats) or "text"
        self._no_color = no_color
        self._environment = environment
        self._verbose = verbose

    @property
    def view(self) -> View:
        """How the result is to be shown where it goes."""
        is_terminal = self.path is None and _is_terminal(sys.stdout)
        wanted = not (self._no_color or self._environment.get("NO_COLOR"))
        return View(
            width=_width(self._environment, is_terminal),
            color=wanted and is_terminal and self._environment.get("TERM") != "dumb",
            verbose=self._verbose,
            encoding="utf-8" if self.path is not None else _encoding(),
        )

    def write(self, render: Callable[[BinaryIO], None]) -> None:
        """Let ``render`` write the result.

        A reader that goes away early is no error; nobody wants the rest then.

        Raises:
            UsageError: The file cannot be written.
        """
        if self.path is None:
            _to_standard_output(render)
            return
        try:
            with _replacing(self.path) as stream:
                render(stream)
        except OSError as error:
            reason = error.strerror or str(error)
            raise UsageError(
                f"Cannot write {str(self.path)!r}: {reason}.", "Choose another file with -o."
            ) from error
        if not self.quiet:
            say(f"Wrote {self.path}")


def write_json(value: object, stream: BinaryIO) -> None:
    """Write a result that is small enough to be indented."""
    import msgspec

    stream.write(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")


def _by_suffix(path: Path | None, formats: tuple[str, ...]) -> str | None:
    found = _SUFFIXES.get(path.suffix.lower()) if path is not None else None
    return found if not formats or found in formats else None


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def _encoding() -> str:
    return getattr(sys.stdout, "encoding", None) or "utf-8"


def _width(environment: Mapping[str, str], is_terminal: bool) -> int:
    columns = environment.get("COLUMNS", "")
    if columns.isdigit() and int(columns) > 0:
        return max(_NARROWEST, min(int(columns), _WIDEST))
    if is_terminal:
        import shutil

        return max(_NARROWEST, min(shutil.get_terminal_size((100, 24)).columns, _WIDEST))
    return 100


def _to_standard_output(render: Callable[[BinaryIO], None]) -> None:
    if sys.stdout is None:  # closed by whoever started us
        with Path(os.devnull).open("wb") as nowhere:
            render(nowhere)
        return
    try:
        sys.stdout.flush()
        stream = sys.stdout.buffer
        render(stream)
        stream.flush()
    except BrokenPipeError:
        _silence_standard_output()
    except OSError as error:
        _silence_standard_output()
        reason = error.strerror or str(error)
        raise UsageError(
            f"Cannot write to standard output: {reason}.", "Write to a file with -o."
        ) from error


def _silence_standard_output() -> None:
    """Point standard output at nothing, so that the interpreter's last flush cannot fail."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """Write beside the file and put the whole in its place, so that no half report is ever seen."""
    if path.exists() and not path.is_file():  # a pipe or a device
        with path.open("wb") as stream:
            yield stream
        return
    target = path.resolve()
    draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with draft.open("wb") as stream:
            yield stream
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
