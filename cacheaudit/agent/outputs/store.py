"""Full outputs in files that are named after their content.

The handle is a digest of the content: the same output has the same handle on every machine, so
that a prompt which names it keeps its bytes. Files are written aside and moved into place, which
makes the store safe for several processes and for a sudden end; removing the oldest is done under
a lock where the system has one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import msgspec

from cacheaudit.errors import OutputError
from cacheaudit.model.clock import Clock, SystemClock

_HANDLE: Final = re.compile(r"out_[0-9a-f]{32}")
_DIGEST: Final = 16
_UNFINISHED: Final = 3600.0
_CHUNK: Final = 1 << 20


class Stored(msgspec.Struct, frozen=True):
    """One output in the store.

    Attributes:
        handle: What it is called.
        size: Bytes, UTF-8.
        used_at: When it was last written or read, in seconds since the epoch.
    """

    handle: str
    size: int
    used_at: float


class OutputStore:
    """Keeps outputs for later.

    Args:
        folder: Where; made where it is missing, readable by its owner only.
        quota: Bytes that all outputs together may take; the longest unused make room.
        expiry: Seconds after its last use at which an output is removed; ``None``: never.
        clock: Tells the time.
        durable: Wait until the disk has it; slower, and needed only where a handle must outlive
            the loss of power.

    Raises:
        OutputError: The folder cannot be used.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        quota: int = 1 << 30,
        expiry: float | None = 7 * 86_400.0,
        clock: Clock | None = None,
        durable: bool = False,
    ) -> None:
        if quota <= 0 or (expiry is not None and expiry <= 0):
            raise OutputError("A store needs a quota and an expiry above 0.")
        self._folder = Path(folder)
        self._quota = quota
        self._expiry = expiry
        self._clock = clock or SystemClock()
        self._durable = durable
        self._sound: set[tuple[str, int, int]] = set()
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise _broken("make the folder", error) from error

    @property
    def quota(self) -> int:
        """Bytes that all outputs together may take."""
        return self._quota

    def put(self, content: str | bytes) -> Stored:
        """Keep an output, and make room for it.

        Args:
            content: Text, or bytes of text. What is no UTF-8 is replaced by U+FFFD.

        Raises:
            OutputError: It alone is larger than the quota, or cannot be written.
        """
        data = _utf8(content)
        handle = f"out_{hashlib.blake2b(data, digest_size=_DIGEST).hexdigest()}"
        if len(data) > self._quota:
            raise OutputError(
                f"An output of {len(data):,} bytes is larger than the store's quota of"
                f" {self._quota:,}.",
                "Raise the quota.",
            )
        now = self._clock.now()
        path = self._path(handle)
        try:
            if not self._is_sound(path, handle):
                self._write(path, data)
            with self._lock():
                self._settle(path, handle, data, now)
                self._make_room(now, keep=handle)
        except OSError as error:
            raise _broken("write an output", error) from error
        return Stored(handle, len(data), now)

    def _settle(self, path: Path, handle: str, data: bytes, now: float) -> None:
        """Mark an output as used now; another process may just have removed it."""
        if not self._is_sound(path, handle):
            self._write(path, data)
        try:
            _touch(path, now)
        except FileNotFoundError:  # it had expired
            self._write(path, data)
            _touch(path, now)

    @contextlib.contextmanager
    def open(self, handle: str) -> Iterator[IO[str]]:
        """Open an output for reading, line by line; counts as a use.

        Raises:
            OutputError: It is no handle, or nothing is kept under it (any more).
        """
        try:
            file = self.path(handle).open(encoding="utf-8", newline="\n")
        except FileNotFoundError:  # another process has just removed it
            raise _gone(handle) from None
        with file:
            yield file

    def path(self, handle: str) -> Path:
        """Return the file of an output, for programs of this machine; counts as a use.

        Raises:
            OutputError: It is no handle, or nothing is kept under it (any more).
        """
        if not isinstance(handle, str) or not _HANDLE.fullmatch(handle):
            raise OutputError(
                f"{str(handle)[:60]!r} is no handle of an output.",
                "Handles look like out_ and 32 hexadecimal digits.",
            )
        path = self._path(handle)
        now = self._clock.now()
        try:
            info = path.lstat()
        except OSError:
            raise _gone(handle) from None
        expired = self._expiry is not None and now - info.st_mtime > self._expiry
        if expired or not self._is_sound(path, handle):
            path.unlink(missing_ok=True)
            raise _gone(handle)
        with contextlib.suppress(OSError):
            _touch(path, now)
        return path

    def text(self, handle: str) -> str:
        """Return a whole output.

        Raises:
            OutputError: As for ``open``.
        """
        with self.open(handle) as file:
            return file.read()

    def entries(self) -> list[Stored]:
        """List what is kept, the longest unused first."""
        found = []
        with contextlib.suppress(OSError), os.scandir(self._folder) as listing:
            for entry in listing:
                with contextlib.suppress(OSError):
                    if _HANDLE.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                        info = entry.stat(follow_symlinks=False)
                        found.append(Stored(entry.name, info.st_size, info.st_mtime))
        return sorted(found, key=lambda item: (item.used_at, item.handle))

    def sweep(self) -> int:
        """Remove what has expired, and what exceeds the quota; returns how many went."""
        with self._lock():
            return self._make_room(self._clock.now(), keep=None)

    def remove(self, handle: str) -> None:
        """Remove an output; nothing happens where none is kept under the handle.

        Raises:
            OutputError: It is no handle.
        """
        if not _HANDLE.fullmatch(handle):
            raise OutputError(f"{handle[:60]!r} is no handle of an output.")
        self._path(handle).unlink(missing_ok=True)

    def _path(self, handle: str) -> Path:
        return self._folder / handle

    def _write(self, path: Path, data: bytes) -> None:
        aside = self._folder / f".{path.name}.{secrets.token_hex(6)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        try:
            with os.fdopen(os.open(aside, flags, 0o600), "wb") as file:
                file.write(data)
                if self._durable:
                    file.flush()
                    os.fsync(file.fileno())
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)

    def _is_sound(self, path: Path, handle: str) -> bool:
        """Tell whether a file still holds what its name says; looked at once as long as it lasts.

        A sudden end of the machine can leave a file without its content.
        """
        try:
            info = path.lstat()
            key = (handle, info.st_ino, info.st_size)
            if key in self._sound:
                return True
            digest = hashlib.blake2b(digest_size=_DIGEST)
            flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
            with os.fdopen(os.open(path, flags), "rb") as file:
                while chunk := file.read(_CHUNK):
                    digest.update(chunk)
        except OSError:
            return False
        sound = handle == f"out_{digest.hexdigest()}"
        if sound:
            self._sound.add(key)
        return sound

    def _make_room(self, now: float, keep: str | None) -> int:
        """Remove expired outputs, leftovers, and the longest unused beyond the quota."""
        self._remove_leftovers(now)
        entries = self.entries()
        total = sum(entry.size for entry in entries)
        removed = 0
        for entry in entries:
            expired = self._expiry is not None and now - entry.used_at > self._expiry
            if entry.handle == keep or not (expired or total > self._quota):
                continue
            self._path(entry.handle).unlink(missing_ok=True)
            total -= entry.size
            removed += 1
        return removed

    def _remove_leftovers(self, now: float) -> None:
        """Remove what a process that died had begun to write."""
        with contextlib.suppress(OSError), os.scandir(self._folder) as listing:
            for entry in listing:
                with contextlib.suppress(OSError):
                    old = now - entry.stat(follow_symlinks=False).st_mtime > _UNFINISHED
                    if entry.name.startswith(".out_") and old:
                        Path(entry.path).unlink(missing_ok=True)

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        with (self._folder / ".lock").open("ab") as file:
            _exclude_others(file)
            yield


def _utf8(content: str | bytes) -> bytes:
    """Make valid UTF-8 of anything, without changing what is valid already."""
    if isinstance(content, str):
        try:
            return content.encode()
        except UnicodeEncodeError:
            content = content.encode("utf-8", "surrogatepass")
    return content.decode("utf-8", "replace").encode()


def _exclude_others(file: IO[bytes]) -> None:
    """Wait for other processes until the file is closed, on systems that have such locks.

    Without one, two processes that make room at once may remove a few outputs too many.
    """
    with contextlib.suppress(ImportError):
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX)


def _touch(path: Path, at: float) -> None:
    os.utime(path, (at, at))


def _gone(handle: str) -> OutputError:
    return OutputError(
        f"No output is kept under {handle}: it has expired, made room for others, or was never"
        " stored here.",
        "Run the tool again to get it anew.",
    )


def _broken(what: str, error: OSError) -> OutputError:
    return OutputError(f"The store of outputs could not {what}: {error.strerror}.")
