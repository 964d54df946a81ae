"""Keeps the rows of a long history on disk, so that a result needs little memory."""

from __future__ import annotations

import io
import weakref
from collections.abc import Iterator
from typing import IO

import msgspec

from cacheaudit.report.result import CallRow

IN_MEMORY_BYTES = 4 << 20
_FLUSH_ROWS = 256
_BLOCK_BYTES = 256 << 10
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(CallRow)


class CallSpool:
    """Call rows in the order in which they were added; may be read any number of times.

    Rows are kept as lines of JSON; the first 4 MiB stay in memory.
    """

    def __init__(self) -> None:
        self._file: IO[bytes] = io.BytesIO()
        self._pending: list[CallRow] = []
        self._amended: dict[str, tuple[int, str | None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, row: CallRow) -> None:
        """Add a row."""
        self._pending.append(row)
        self._count += 1
        if len(self._pending) >= _FLUSH_ROWS:
            self._flush()

    def amend(self, call_id: str, output: int, cost: str | None) -> None:
        """Replace output and cost of a row that was added before."""
        self._amended[call_id] = (output, cost)

    def __iter__(self) -> Iterator[CallRow]:
        for line in self._lines():
            yield self._current(_decoder.decode(line))

    def json_rows(self) -> Iterator[bytes]:
        """Yield all rows as JSON, any number of them at a time with ``,`` and a line end between.

        Cheaper than decoding and encoding them again.
        """
        if self._amended:
            yield from (_encoder.encode(row) for row in self)
            return
        for block in self._blocks():
            yield block[:-1].replace(b"\n", b",\n")

    def _current(self, row: CallRow) -> CallRow:
        newer = self._amended.get(row.id)
        if newer is None:
            return row
        return msgspec.structs.replace(row, output=newer[0], cost=newer[1])

    def _lines(self) -> Iterator[bytes]:
        for block in self._blocks():
            yield from block.splitlines(keepends=True)

    def _blocks(self) -> Iterator[bytes]:
        """Yield whole lines, many at a time."""
        self._flush()
        position = 0
        while True:
            # Re-seek for each piece, so that two readers do not disturb each other.
            self._file.seek(position)
            block = self._file.read(_BLOCK_BYTES) + self._file.readline()
            if not block:
                return
            position += len(block)
            yield block

    def _flush(self) -> None:
        if self._pending:
            self._file.seek(0, 2)
            self._file.write(_encoder.encode_lines(self._pending))
            self._pending.clear()
            if isinstance(self._file, io.BytesIO) and self._file.tell() > IN_MEMORY_BYTES:
                self._file = self._on_disk(self._file)

    def _on_disk(self, held: io.BytesIO) -> IO[bytes]:
        import tempfile

        file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the object, in silence
        weakref.finalize(self, file.close)
        file.write(held.getbuffer())
        return file
