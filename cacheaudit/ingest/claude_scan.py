"""Scans Claude Code transcripts at the speed of a search, not of a JSON parser.

A transcript repeats a response's usage on one line per content block, and most of its bytes are
content that an accounting never looks at. So the content is cut out, and what stands before and
behind it is decoded as one object: it is one only where both cuts lie in the same message. Lines
that do not have the usual shape are decoded whole. Both ways give the same records (a property test
compares them).

Cost: about 2 µs a line and 6 µs a response; memory is one chunk and one record a response of the
file at hand.
"""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import Any

import msgspec

from cacheaudit.ingest.claude_chains import Sidechains
from cacheaudit.ingest.claude_parts import (
    BAD,
    STAMP,
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
    NO_VALUE,
    CompactMark,
    Framed,
    PlainLine,
    Tail,
    WireUsage,
    decode_framed,
    decode_plain,
    decode_system,
    decode_tail,
    decode_whole,
    is_one_pass,
)
from cacheaudit.ingest.lines import MAX_LINE, fault_of, line_chunks, mended
from cacheaudit.model.call import Boundary
from cacheaudit.model.clock import parse_time
from cacheaudit.model.ports import ProblemSink

_TAIL = 1_200
_HEAD = 1_500
_STOP_DISTANCE = 300
# The first message object of a line says whose it is; inside a string its quotes were escaped.
_USER = b'"message":{"role":"user"'
_SIDECHAIN = b'"isSidechain":true'
_STOP_KEY = b'"stop_reason"'
_STOP = b'"stop_reason":'
_NEVER = b"\0"
_CLOSING = b"}\r \t\0"
SYNTHETIC = "<synthetic>"


class Scan:
    """State of one pass over one transcript.

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
        self._by_id: dict[bytes, Response] = {}
        self._waiting: list[PlainLine] = []
        self._user_line: tuple[Bytes, int, int] | None = None
        self._user_at: dict[str | None, str | None] = {}
        self._boundaries: list[Boundary] = []
        self._chains = Sidechains()
        self.lines = 0

    def feed(self, data: Bytes, start: int, size: int) -> None:
        """Take the whole lines in ``data[start:size]``; nothing of it is kept but copies."""
        find, rfind = data.find, data.rfind
        number, timing = self.lines, self.timing
        while start < size:
            end = find(b"\n", start, size)
            if end < 0:
                end = size
            number += 1
            low = start + 600
            message = find(b'"message":{', start, low if low < end else end)  # noqa: FURB136 - hot
            if data.startswith(_USER, message):
                if data[end - 1] not in _CLOSING:
                    self._broken(data[start:end], number)
                elif timing:
                    if find(_SIDECHAIN, start, message) >= 0:
                        self._await(data[start:end], side=True)
                    else:
                        self._user_line = (data, start, end)
                start = end + 1
                continue
            low = end - _TAIL
            at = rfind(b'"usage":{', low if low > start else start, end)  # noqa: FURB136 - hot
            if at >= 0:
                self._usage_line(data, start, end, at, number)
            elif find(b'"usage"', start, end) >= 0:
                self._whole_line(data[start:end], number)
            else:
                self._other_line(data[start:end], number)
            start = end + 1
        self.lines = number
        if self._user_line is not None:
            d, low, high = self._user_line
            self._user_line = d[low:high], 0, high - low

    def _other_line(self, line: Bytes, number: int) -> None:
        """Take a line that is neither a user line nor a response, for what it tells of time."""
        plain = None
        if line.startswith(b"{"):
            try:
                plain = decode_plain(line)
            except msgspec.ValidationError:  # an object of another program's
                if self.timing and _SIDECHAIN not in line:
                    self._system_line(line)
                return
            except BAD:
                pass
        if plain is None:
            self._broken(line, number)
        elif not self.timing:
            return
        elif plain.is_sidechain:
            self._side_line(plain)
        elif plain.type == "user":
            self._waiting.append(plain)
        elif plain.type == "system" and line.find(b"compact_boundary") >= 0:
            self._system_line(line)

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

    def _usage_line(self, data: Bytes, start: int, end: int, at: int, number: int) -> None:
        """Take a line with a usage object near its end; most repeat what is known."""
        low = at - _STOP_DISTANCE
        stop = data.rfind(_STOP, low if low > start else start, at)  # noqa: FURB136 - hot
        here = data.find(b'"id":"', start, start + _HEAD) + 6
        known = self._by_id.get(bytes(data[here : data.find(b'"', here, here + 90)]))
        if known is None or stop < 0:
            self._assistant(data, start, end, at if stop < 0 else stop, number)
        elif (
            data.startswith(known.known_tail, stop)
            and (stamp := data.rfind(STAMP, stop + len(known.known_tail), end) + 13) > 12
            and (behind := data.find(b'"', stamp, end)) >= 0
        ):
            if self.timing:
                known.last_at = data[stamp:behind].decode(errors="replace")
        elif not self._again(known, data, stop, end):
            self._assistant(data, start, end, stop, number)

    def _assistant(self, data: Bytes, start: int, end: int, at: int, number: int) -> None:
        """Take a line whose usage object stands near its end."""
        content = data.find(b'"content":', start, start + _HEAD)
        if not 0 <= content < at:
            self._whole_line(data[start:end], number)
            return
        try:
            framed = decode_framed(data[start:content] + data[at:end])
        except BAD:
            self._whole_line(data[start:end], number)
            return
        if framed.type != "assistant":
            # A tool's own result can carry a usage object; it is not this transcript's.
            self._await(data[start:end])
            return
        message = framed.message
        if message.model is None or (
            message.stop_reason is None
            and not data.startswith(_STOP, at)
            and data.find(_STOP_KEY, content, at) >= 0
        ):  # it stands behind the content, far before the usage
            self._whole_line(data[start:end], number)
            return
        if message.model == SYNTHETIC:
            return
        response = self._response(message.id, framed.request_id, number)
        if framed.is_sidechain:
            response.root = self._chains.root(framed.uuid, framed.parent_uuid)
        if response.line == number:
            self._describe(response, message.model, framed.session_id, framed.is_sidechain)
            response.agent, response.version = framed.agent_id, framed.version
            response.first_at = framed.timestamp
        self._finish(response, framed, data, at, end)
        if response.known_tail:
            self._by_id[message.id.encode()] = response

    def _again(self, response: Response, data: Bytes, at: int, end: int) -> bool:
        """Take a later line of a known response from its end alone; say whether that was it."""
        try:
            tail = decode_tail(b'{"message":{' + data[at:end])
        except BAD:
            return False
        if tail.type != "assistant" or tail.request_id != response.request_id:
            return False
        if tail.timestamp is None:
            return False  # it stands in front
        if response.root is not None:
            self._chains.join(tail.uuid, response.root)
        self._finish(response, tail, data, at, end)
        return True

    def _finish(
        self, response: Response, tail: Tail | Framed, data: Bytes, at: int, end: int
    ) -> None:
        """Take what stands behind the content."""
        message = tail.message
        self._take(response, message.usage, data, at)
        if tail.timestamp is not None:
            response.last_at = tail.timestamp
        if message.stop_reason is not None:
            response.stop_reason = message.stop_reason
        if message.diagnostics is not NO_VALUE:
            response.diagnostics = bytes(message.diagnostics)
        if tail.cost is not NO_VALUE:
            response.cost = bytes(tail.cost)
        behind = data.find(b'"requestId":"', at, end)
        if behind < 0 or not tail.request_id:
            return
        if response.root is not None:
            # Every line of a sidechain is looked at, since the next one names it as its parent.
            response.known_tail = _NEVER
            return
        response.known_tail = data[at : behind + 14 + len(tail.request_id)]

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
            response.root = self._chains.root(whole.uuid, whole.parent_uuid)
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

    def _describe(
        self, response: Response, model: str | None, session: str | None, sidechain: bool | None
    ) -> None:
        response.model, response.session = model, session
        response.sidechain = bool(sidechain)
        if not self.timing:
            return
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
        if self._user_line is not None:
            data, start, end = self._user_line
            stamp = last_stamp(data, start, end)
            if stamp is None:
                plain = plain_line(data[start:end])
                stamp = plain.timestamp if plain is not None else None
            self._user_at[None] = later(stamp, self._user_at.get(None))
            self._user_line = None

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


def scan(
    path: Path,
    problems: ProblemSink,
    *,
    timing: bool = True,
    start: int = 0,
    first_line: int = 1,
) -> Scan:
    """Scan one transcript; what cannot be read is counted and the rest is read.

    ``start`` is the byte offset of the beginning of line ``first_line``.
    """
    state = Scan(str(path), problems, timing=timing)
    state.lines = first_line - 1
    try:
        for data, low, stop in line_chunks(path, problems, start):
            state.feed(data, low, stop)
    except FileNotFoundError:
        problems("vanished_file", str(path))
    except OSError as error:
        problems("unreadable_file", str(path), error.strerror or str(error))
    return state
