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
    text,
    usage_object,
)
from cacheaudit.ingest.claude_response import Response
from cacheaudit.ingest.claude_wire import (
    CompactMark,
    PlainLine,
    WireUsage,
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
        self._waiting: list[PlainLine] = []
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
            value = decode_any(stripped.removeprefix(codecs.BOM_UTF8))
        except RecursionError:
            self.problems("too_deep", where, "nested deeper than the decoder allows")
            return
        except msgspec.DecodeError as error:
            detail = str(error)
        else:
            if not isinstance(value, dict):
                self.problems("wrong_type", where, f"{type(value).__name__}, not an object")
            return
        better = mended(stripped)
        if better is None:
            self.problems(fault_of(stripped), where, detail)
            return
        self.problems("encoding", where, "not UTF-8; the wrong bytes were replaced")
        if b'"usage"' in stripped:
            self._whole_line(better, number)

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
        message = whole.message
        if whole.type != "assistant" or message is None or not bytes(message.usage):
            self._await(line)
            return
        if message.model == SYNTHETIC or bytes(message.usage) == b"null":
            return
        wire, raw = either(message.usage)
        if wire is None and raw is None:
            self.problems("wrong_type", where, "usage is no object")
            return
        identity = message.id or whole.request_id or where
        response = self._response(identity, whole.request_id, number)
        if whole.is_sidechain:
            self._hang(response, whole.uuid, whole.parent_uuid)
        if response.line == number:
            self._describe(response, message.model, whole.session_id, whole.is_sidechain)
            response.agent, response.version = whole.agent_id, whole.version
            response.first_at = whole.timestamp
        if wire is not None:
            self._take(response, wire, message.usage, 0)
        else:
            self._take_raw(response, raw or {})
        response.last_at = whole.timestamp
        response.stop_reason = message.stop_reason or response.stop_reason
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
            return
        self.problems("wrong_type", where, detail)
        message = value.get("message")
        usage = message.get("usage") if isinstance(message, dict) else None
        if not isinstance(message, dict) or not isinstance(usage, dict):
            return
        if message.get("model") == SYNTHETIC:
            return
        request = text(value.get("requestId"))
        response = self._response(text(message.get("id")) or request or where, request, number)
        if response.line == number:
            self._describe(
                response,
                text(message.get("model")),
                text(value.get("sessionId")),
                value.get("isSidechain") is True,
            )
            response.agent, response.version = (
                text(value.get("agentId")),
                text(value.get("version")),
            )
            response.first_at = text(value.get("timestamp"))
        response.last_at = text(value.get("timestamp"))
        self._take_raw(response, usage)

    def _response(self, message_id: str, request_id: str | None, number: int) -> Response:
        key = (message_id, request_id)
        found = self.responses.get(key)
        if found is None:
            found = self.responses[key] = Response(message_id, request_id, number)
        return found

    def _hang(self, response: Response, uuid: str | None, parent: str | None) -> None:
        """Place a line of a sidechain's response, which stays where its first line placed it."""
        if response.root is None:
            response.root = self._chains.root(uuid, parent)
        else:
            self._chains.join(uuid, response.root)

    def _describe(
        self, response: Response, model: str | None, session: str | None, sidechain: bool | None
    ) -> None:
        response.model, response.session = model, session
        response.sidechain = bool(sidechain)
        if self.timing:
            self._place(response)

    def _place(self, response: Response) -> None:
        """Say of a new response what it answers and what stands before it."""
        if self._waiting or self._user_line is not None:
            self._settle_waiting()
        response.user_at = self._user_at.get(response.root)
        if self._boundaries and not response.sidechain:
            response.boundaries = tuple(self._boundaries)
            self._boundaries.clear()

    def _settle_waiting(self) -> None:
        """Take the time of the newest user line since the last response."""
        for waiting in self._waiting:
            root = None
            if waiting.is_sidechain:
                root = self._chains.root(waiting.uuid, waiting.parent_uuid)
            self._user_at[root] = waiting.timestamp
        self._waiting.clear()
        waiting_line = self._user_line
        if waiting_line is not None:
            stamp = waiting_line if isinstance(waiting_line, str) else _time_of(*waiting_line)
            self._user_at[None] = later(stamp, self._user_at.get(None))
            self._user_line = None

    def _await(self, line: Bytes, *, side: bool = False) -> None:
        """Take a sound line that may be the one which the next response answers."""
        plain = plain_line(line) if self.timing else None
        if plain is None:
            return
        if side:
            self._side_line(plain)
        elif plain.type == "user":
            self._waiting.append(plain)

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
            self._waiting.append(plain)
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
        self, response: Response, wire: WireUsage, data: Bytes | msgspec.Raw, at: int
    ) -> None:
        """Keep the copy with the highest output; equal ones change nothing."""
        output = wire.output_tokens if wire.output_tokens is not None else 0
        if output <= response.output:
            return
        response.output = output
        if wire.iterations and not is_one_pass(wire):
            raw = usage_object(data, at)
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
