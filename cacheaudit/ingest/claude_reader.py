"""What is known of a Claude Code transcript while it is read, and the long way to read a line.

Lines of the usual build are read by :mod:`cacheaudit.ingest.claude_scan`, which begins here.
"""

from __future__ import annotations

import codecs
from typing import Any

import msgspec

from cacheaudit.ingest.claude_chains import Sidechains
from cacheaudit.ingest.claude_parts import (
    BAD,
    Bytes,
    decode_any,
    either,
    last_stamp,
    later,
    plain_line,
    usage_object,
)
from cacheaudit.ingest.claude_response import Response
from cacheaudit.ingest.claude_wire import (
    CompactMark,
    Framed,
    PlainLine,
    WholeLine,
    WholeMessage,
    WireUsage,
    decode_odd,
    decode_system,
    decode_whole,
    is_one_pass,
)
from cacheaudit.ingest.lines import MAX_LINE, fault_of, mended
from cacheaudit.model.call import Boundary
from cacheaudit.model.clock import parse_time
from cacheaudit.model.ports import ProblemSink

SYNTHETIC = "<synthetic>"


class Reader:
    """What is known in one pass over one transcript.

    Args:
        name: What to call the file in messages.
        problems: Counts what cannot be read.
        timing: Whether the times of user lines and compaction marks are wanted (an audit wants
            them, plain totals do not).
    """

    def __init__(self, name: str, problems: ProblemSink, *, timing: bool = True) -> None:
        self.name = name
        self.problems = problems
        self.timing = timing
        self.responses: dict[tuple[str, str | None], Response] = {}
        # The newest user line since the last response: where it stands, or its time.
        self._user_line: tuple[Bytes, int, int] | str | None = None
        self._user_at: dict[str | None, str | None] = {}
        self._boundaries: list[Boundary] = []
        self._chains = Sidechains()
        self.lines = 0

    def _broken(self, line: Bytes, number: int) -> None:
        where = f"{self.name}:{number}"
        stripped = bytes(line).strip(b" \t\r\0")
        if not stripped:
            return
        try:
            sound = stripped.removeprefix(codecs.BOM_UTF8)
            value = decode_any(sound)
        except RecursionError:
            self.problems("too_deep", where, "nested deeper than the decoder allows")
            return
        except msgspec.DecodeError as error:
            detail = str(error)
        else:
            if not isinstance(value, dict):
                self.problems("wrong_type", where, f"{type(value).__name__}, not an object")
            elif len(sound) < len(line):
                self._sound_line(sound, number)
            return
        better = mended(stripped)
        if better is None:
            self.problems(fault_of(stripped), where, detail)
            return
        self.problems("encoding", where, "not UTF-8; the wrong bytes were replaced")
        if b'"usage"' in stripped:
            self._whole_line(better, number)

    def _sound_line(self, line: bytes, number: int) -> None:
        """Take an object that stood between a mark of the encoding, NULs or blanks."""
        if b'"usage"' in line:
            self._whole_line(line, number)
        else:
            self._await(line)

    def _whole_line(self, line: Bytes, number: int) -> None:
        """Decode a line whole: usage elsewhere than usual, or a broken line."""
        where = f"{self.name}:{number}"
        if len(line) > MAX_LINE:
            self.problems("too_long_line", where, f"over {MAX_LINE >> 20} MiB")
            return
        try:
            whole = decode_whole(line)
        except msgspec.ValidationError as error:
            self._odd_line(line, where, number, str(error))
            return
        except BAD:
            self._broken(line, number)
            return
        if whole.type != "assistant" or whole.message is None or not bytes(whole.message.usage):
            self._await(line)
        else:
            self._answer(whole, whole.message, where, number)

    def _answer(self, whole: WholeLine, message: WholeMessage, where: str, number: int) -> None:
        """Take a line of a response that was decoded whole."""
        if message.model == SYNTHETIC or bytes(message.usage) == b"null":
            if whole.is_sidechain:
                self._chains.root(whole.uuid, whole.parent_uuid)
            return
        usage = message.usage
        wire, raw = either(usage)
        if wire is None and raw is None and (better := mended(bytes(usage))) is not None:
            self.problems("encoding", where, "not UTF-8; the wrong bytes were replaced")
            usage = msgspec.Raw(better)
            wire, raw = either(usage)
        if wire is None and raw is None:
            self.problems("wrong_type", where, "usage is no object")
            return
        identity = message.id or whole.request_id or where
        response = self._response(identity, whole.request_id, number)
        self._place_line(response, whole, message.model, number)
        if wire is not None:
            self._take(response, wire, usage)
        else:
            self._take_raw(response, raw or {})
        if whole.timestamp is not None:
            response.last_at = whole.timestamp
        if message.stop_reason is not None:
            response.stop_reason = message.stop_reason
        response.diagnostics = bytes(message.diagnostics) or response.diagnostics
        response.cost = bytes(whole.cost) or response.cost

    def _odd_line(self, line: Bytes, where: str, number: int, detail: str) -> None:
        """Read a line in which a field has an unusual type: what can be used is used."""
        try:
            value = decode_any(line)
        except BAD:
            self._broken(line, number)
            return
        if not isinstance(value, dict) or value.get("type") != "assistant":
            self._await(line)
            return
        self.problems("wrong_type", where, detail)
        whole = decode_odd(line)
        if whole is not None and whole.message is not None:
            self._answer(whole, whole.message, where, number)

    def _response(self, message_id: str, request_id: str | None, number: int) -> Response:
        key = (message_id, request_id)
        found = self.responses.get(key)
        if found is None:
            found = self.responses[key] = Response(message_id, request_id, number)
        return found

    def _place_line(
        self, response: Response, line: WholeLine | Framed, model: str | None, number: int
    ) -> None:
        """Take of a response's first line what it belongs to, of a further one where it hangs."""
        if response.line == number:
            if line.is_sidechain:
                response.root = self._chains.root(line.uuid, line.parent_uuid)
            self._describe(response, model, line.session_id, line.is_sidechain)
            response.agent, response.version = line.agent_id, line.version
            response.first_at = line.timestamp
        elif response.root is not None:
            self._chains.join(line.uuid, response.root)

    def _describe(
        self, response: Response, model: str | None, session: str | None, sidechain: bool | None
    ) -> None:
        response.model, response.session = model, session
        response.sidechain = bool(sidechain)
        if self.timing:
            self._place(response)

    def _place(self, response: Response) -> None:
        """Say of a new response what it answers and what stands before it."""
        if self._user_line is not None:
            self._settle_user_line()
        response.user_at = self._user_at.get(response.root)
        if self._boundaries and not response.sidechain:
            response.boundaries = tuple(self._boundaries)
            self._boundaries.clear()

    def _settle_user_line(self) -> None:
        """Take the time of the newest user line since the last response."""
        waiting_line = self._user_line
        if waiting_line is not None:
            stamp = waiting_line if isinstance(waiting_line, str) else _time_of(*waiting_line)
            self._user_at[None] = later(stamp, self._user_at.get(None))
            self._user_line = None

    def _await(self, line: Bytes) -> None:
        """Take a line that is no response, if it is sound, for what it tells of time."""
        plain = plain_line(line) if self.timing else None
        if plain is not None:
            self._follow(plain, line)

    def _side_line(self, plain: PlainLine) -> None:
        """Follow a sidechain over a line of it."""
        root = self._chains.root(plain.uuid, plain.parent_uuid)
        if plain.type == "user":
            self._user_at[root] = plain.timestamp

    def _follow(self, plain: PlainLine, line: Bytes) -> None:
        """Take what a line that is no response tells of time."""
        if plain.is_sidechain:
            self._side_line(plain)
        elif plain.type == "user":
            self._user_line = plain.timestamp
        elif plain.type == "system" and line.find(b"compact_boundary") >= 0:
            self._system_line(line)

    def _system_line(self, line: Bytes) -> None:
        try:
            mark = decode_system(line)
        except BAD:
            return
        if mark.type != "system" or mark.subtype != "compact_boundary":
            return
        meta = mark.compact_metadata or CompactMark()
        self._boundaries.append(
            Boundary("compaction", parse_time(mark.timestamp), meta.trigger, meta.pre_tokens)
        )

    def _take(
        self,
        response: Response,
        wire: WireUsage,
        data: Bytes | msgspec.Raw,
        at: int = 0,
        end: int = 0,
    ) -> None:
        """Keep the copy with the highest output; equal ones change nothing.

        Args:
            response: What the usage is of.
            wire: The usage, decoded.
            data: The usage object itself, or a buffer in which its line goes on from ``at``, where
                it is or where a field of its message stands before it, to ``end``.
            at: See above.
            end: See above.
        """
        output = wire.output_tokens if wire.output_tokens is not None else 0
        if output <= response.output:
            return
        response.output = output
        if wire.iterations and not is_one_pass(wire):
            raw = usage_object(data, at, end)
            if raw is not None:
                response.wire, response.raw_usage = None, raw
                return
        response.wire, response.raw_usage = wire, None

    def _take_raw(self, response: Response, raw: dict[str, Any]) -> None:
        value = raw.get("output_tokens")
        output = value if isinstance(value, int) and not isinstance(value, bool) else 0
        if output > response.output:
            response.output = output
            response.wire, response.raw_usage = None, raw


def _time_of(data: Bytes, start: int, end: int) -> str | None:
    """Find the time of a line, however it is built."""
    stamp = last_stamp(data, start, end)
    if stamp is not None:
        return stamp
    plain = plain_line(data[start:end])
    return plain.timestamp if plain is not None else None
