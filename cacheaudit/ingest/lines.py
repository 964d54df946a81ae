"""Reads files of one JSON value a line, of any size, whatever is broken in them.

A bad line is counted and skipped; the run goes on. Memory is bounded by the longest accepted line.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from cacheaudit.model.ports import ProblemSink

CHUNK = 1 << 19
# Of a buffer that is filled again and again: what malloc asks the system for anew is larger.
WINDOW = 120 << 10
MAX_LINE = 64 << 20
_GROWTH = 4 << 20
_BLANKS = b" \t\r\0"
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
# An escape: both halves of a pair, a half alone (the group), or any other.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
_decode = msgspec.json.Decoder().decode


def raw_lines(
    path: Path, problems: ProblemSink, start: int = 0, first_line: int = 1
) -> Iterator[tuple[int, int, bytes]]:
    """Yield (line number, byte offset behind the line, line) for every non-empty line.

    Args:
        path: The file.
        problems: Counts what is skipped.
        start: Byte offset at which to begin; must be the beginning of a line.
        first_line: Number of the line that begins there.
    """
    try:
        with path.open("rb") as stream:
            encoding = _skip_bom(stream) if start == 0 else "utf-8"
            if encoding != "utf-8":
                yield from _transcoded(path, encoding, problems)
                return
            if start:
                stream.seek(start)
            yield from _split(stream, stream.tell(), first_line, path, problems)
    except FileNotFoundError:
        problems("vanished_file", str(path))
    except OSError as error:
        problems("unreadable_file", str(path), error.strerror or str(error))


def json_lines(
    path: Path, problems: ProblemSink, start: int = 0, first_line: int = 1
) -> Iterator[tuple[int, Any]]:
    """Yield (line number, decoded value) for every line that is JSON."""
    for number, _, line in raw_lines(path, problems, start, first_line):
        try:
            value = _decode(line)
        except (msgspec.DecodeError, RecursionError):
            value = parse(line, f"{path}:{number}", problems)
        if value is not None:
            yield number, value


def parse(line: bytes, where: str, problems: ProblemSink) -> Any:
    """Decode one line; a failure is counted and gives ``None``."""
    try:
        return _decode(line)
    except msgspec.DecodeError as error:
        better = mended(line)
        if better is not None:
            return _repaired(better, where, problems)
        problems(fault_of(line), where, str(error))
    except RecursionError:
        problems("too_deep", where, "nested deeper than the decoder allows")
    return None


def is_utf8(data: bytes) -> bool:
    """Whether bytes are valid UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def fault_of(line: bytes) -> str:
    """Name what is wrong with a line that is no JSON: cut off, or wrong inside."""
    return "invalid_json" if line.rstrip().endswith((b"}", b"]")) else "truncated_line"


def mended(data: bytes) -> bytes | None:
    """Replace by U+FFFD what is no character: bytes that are no UTF-8, and halves of pairs.

    Programs that count in UTF-16 cut texts in the middle of a character and write the half that is
    left as an escape.

    Returns:
        ``None`` where there is nothing to replace.
    """
    better = data if is_utf8(data) else data.decode("utf-8", errors="replace").encode()
    if _HALF.search(better):
        better = _ESCAPE.sub(_whole_escape, better)
    return None if better == data else better


def _whole_escape(escape: re.Match[bytes]) -> bytes:
    return rb"\ufffd" if escape[1] else escape[0]


def _repaired(line: bytes, where: str, problems: ProblemSink) -> Any:
    """Read a line in which wrong bytes were replaced, and count that."""
    problems("encoding", where, "not UTF-8; the wrong bytes were replaced")
    try:
        return _decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None


def _skip_bom(stream: BinaryIO) -> str:
    head = stream.read(4)
    for bom, encoding in _BOMS:
        if head.startswith(bom):
            stream.seek(len(bom))
            return encoding
    stream.seek(0)
    return "utf-8"


def _transcoded(
    path: Path, encoding: str, problems: ProblemSink
) -> Iterator[tuple[int, int, bytes]]:
    problems("encoding", str(path), f"file is {encoding}, read as such")
    with path.open(encoding=encoding.split("-le")[0].split("-be")[0], errors="replace") as text:
        for number, line in enumerate(text, 1):
            stripped = line.strip()
            if stripped:
                yield number, 0, stripped.encode()


def _split(
    stream: BinaryIO, offset: int, number: int, path: Path, problems: ProblemSink
) -> Iterator[tuple[int, int, bytes]]:
    pieces: list[bytes] = []  # of the line that the chunk before did not end
    held = 0
    skipping = False
    while chunk := stream.read(CHUNK):
        lines = chunk.split(b"\n")
        rest = lines.pop()
        if lines and skipping:
            offset += len(lines.pop(0)) + 1
            problems("too_long_line", f"{path}:{number}", f"over {MAX_LINE >> 20} MiB")
            number += 1
            skipping = False
        elif lines and pieces:
            pieces.append(lines[0])
            lines[0] = b"".join(pieces)
            pieces.clear()
        for line in lines:
            offset += len(line) + 1
            if line.strip(_BLANKS):
                yield number, offset, line.rstrip(b"\r")
            number += 1
        held = len(rest) + (0 if lines or not pieces else held)
        if skipping or held > MAX_LINE:
            offset += sum(map(len, pieces)) + len(rest)
            pieces.clear()
            skipping = True
        elif rest:
            pieces.append(rest)
    if skipping:
        problems("too_long_line", f"{path}:{number}", f"over {MAX_LINE >> 20} MiB")
    elif (last := b"".join(pieces)).strip(_BLANKS):
        yield number, offset + len(last), last


def line_chunks(
    path: Path, problems: ProblemSink, start: int = 0
) -> Iterator[tuple[bytearray, int, int]]:
    """Yield runs of whole lines as (buffer, start, stop), without copying them apart.

    The buffer is filled anew for the next run, so that memory is taken from the system once a file:
    what is to be kept has to be copied. A line over ``MAX_LINE`` is dropped and counted. ``start``
    is the beginning of a line.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb", buffering=0) as stream:
        if start:
            stream.seek(start)
        buffer = bytearray(WINDOW)
        held, dropping = 0, False  # bytes of a line in front that has not ended
        base, dropped = start, 0  # places in the file: of the buffer, of a line that is dropped
        while count := stream.readinto(memoryview(buffer)[held:]):
            end = held + count
            if not base and buffer.startswith(_UTF16):
                yield from _transcoded_chunks(path, problems)
                return
            cut = buffer.rfind(b"\n", held, end) + 1
            if not cut:
                if not dropping and end > MAX_LINE:
                    dropping, dropped = True, base
                held = 0 if dropping else end
                base += end - held
                if held == len(buffer):
                    buffer += bytes(min(held, _GROWTH))
                continue
            first = 0
            if dropping:
                _count_too_long(path, dropped, problems)
                first = buffer.find(b"\n")  # the end of the dropped line is a line of its own
                dropping = False
            yield buffer, first, cut
            base += cut
            held = end - cut
            rest = buffer[cut:end]
            if len(buffer) > WINDOW >= 2 * held:
                buffer = bytearray(WINDOW)
            buffer[:held] = rest
        if dropping:
            _count_too_long(path, dropped, problems)
        elif held:
            yield buffer, 0, held


def _count_too_long(path: Path, place: int, problems: ProblemSink) -> None:
    """Count the line that begins at a byte; its number is worked out now, since few are."""
    number, left = 1, place
    with path.open("rb", buffering=0) as stream:
        while left and (chunk := stream.read(min(left, CHUNK))):
            number += chunk.count(b"\n")
            left -= len(chunk)
    problems("too_long_line", f"{path}:{number}", f"over {MAX_LINE >> 20} MiB")


def _transcoded_chunks(path: Path, problems: ProblemSink) -> Iterator[tuple[bytearray, int, int]]:
    encoding = "utf-16"
    problems("encoding", str(path), f"file is {encoding}, read as such")
    with path.open(encoding=encoding, errors="replace") as text:
        for line in text:
            data = bytearray(line.encode())
            yield data, 0, len(data)


def line_before(path: Path, offset: int, distance: int) -> tuple[int, int]:
    """Find the beginning of a line at most ``distance`` bytes before ``offset``.

    Returns:
        Its byte offset, and the number of lines from there to ``offset``.

    Raises:
        OSError: The file cannot be read.
    """
    low = max(0, offset - distance)
    with path.open("rb") as stream:
        stream.seek(low)
        data = stream.read(offset - low)
    first = data.find(b"\n") + 1 if low else 0
    return low + first, data.count(b"\n", first)
