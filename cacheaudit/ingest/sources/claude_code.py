"""Claude Code transcripts: main files, ``subagents/``, inline sidechains, resumed copies.

One response stands on several lines, one a content block, which repeat its usage; the copy with
the highest output count is the response. Lines are stamped when a block is complete, so the start
of a request is known as an interval: after the user line before it, before its first line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec

from cacheaudit.dialects.detect import normalise
from cacheaudit.dialects.diagnostics import anthropic_reason
from cacheaudit.dialects.reading import LARGEST
from cacheaudit.ingest.claude_response import Response
from cacheaudit.ingest.claude_runs import scan
from cacheaudit.ingest.claude_scan import Scan
from cacheaudit.ingest.claude_wire import WireUsage
from cacheaudit.ingest.lines import line_before
from cacheaudit.ingest.records import UsageRecord
from cacheaudit.model.call import Call, MissReason, Origin, Span
from cacheaudit.model.clock import parse_text
from cacheaudit.model.money import decimal
from cacheaudit.model.ports import Capabilities, Head, ProblemSink
from cacheaudit.model.usage import FLAG_OUTPUT_LOWER_BOUND, Usage

# A response that was logged before it was complete carries the count of its first event.
_OVERLAP: Final = 1 << 20
_PLACEHOLDER_OUTPUT: Final = 8
_PLACEHOLDER_SHARE: Final = 0.95
_PLACEHOLDER_MIN: Final = 10
_KINDS: Final = frozenset(
    {"user", "assistant", "system", "progress", "summary", "queue-operation", "attachment"}
)
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_SURFACES: Final = {"msg_bdrk_": "bedrock", "msg_vrtx_": "google_cloud"}


class ClaudeCode:
    """Reads the transcripts that Claude Code keeps of its sessions."""

    name = "claude_code"
    title = "Claude Code"
    capabilities = Capabilities(
        reads=True,
        writes=True,
        ttl_split=True,
        start_times="interval",
        provider_reasons=True,
        output="lower_bound",
    )

    def detect(self, head: Head) -> int:
        """Say how sure we are: lines of the known kinds that carry a session and a message."""
        score = 0
        for line in head.lines:
            kind = line.get("type")
            if not isinstance(kind, str) or kind not in _KINDS:
                continue
            if _is_qwen(line):
                return 0
            if "sessionId" in line and ("uuid" in line or "timestamp" in line):
                if kind in ("user", "assistant") and isinstance(line.get("message"), dict):
                    return 98
                score = max(score, 90)
            elif kind == "assistant" and _is_message(line.get("message")):
                score = max(score, 70)
            elif kind == "summary" and "leafUuid" in line:
                score = max(score, 80)
        return score

    def read(self, path: Path, problems: ProblemSink) -> Iterator[Call]:
        """Yield one call a response, in the order of their first lines."""
        yield from _calls(scan(path, problems), path, problems)

    def read_from(
        self, path: Path, problems: ProblemSink, start: int, first_line: int
    ) -> Iterator[Call]:
        """Yield the calls of an appended part, and again the last ones before it.

        A response may have lines on both sides, and the user line that bounds a request's start
        may stand before ``start``; so reading begins a little earlier, and what was read already is
        recognised by its key.
        """
        try:
            low, lines = line_before(path, start, _OVERLAP)
        except OSError as error:
            problems("unreadable_file", str(path), error.strerror or str(error))
            return
        state = scan(path, problems, start=low, first_line=max(1, first_line - lines))
        yield from _calls(state, path, problems)

    def usages(self, path: Path, problems: ProblemSink) -> Iterator[UsageRecord]:
        """Yield what a total needs and nothing else; several times quicker than :meth:`read`."""
        state = scan(path, problems, timing=False)
        place = _Place(path)
        responses = list(state.responses.values())
        lower = _is_placeholder_file(responses)
        name = state.name
        for response in responses:
            wire = response.wire
            usage = _plain_usage(wire, lower) if wire is not None else None
            if usage is None:
                usage = _usage(response, lower, f"{name}:{response.line}", problems)
                if usage is None:
                    continue
            session, lane, purpose = place.of(response)
            yield UsageRecord(
                _key(response),
                session,
                lane,
                purpose,
                "anthropic" if _is_claude(response.model) else None,
                _surface(response.message_id),
                response.model,
                None if response.first_at is None else parse_text(response.first_at),
                usage,
                place.project,
                _cost(response.cost),
            )

    def usual_places(self, environment: Mapping[str, str], home: Path) -> Iterator[Path]:
        """Yield ``projects`` folders; ``CLAUDE_CONFIG_DIR`` may list several or be one."""
        configured = environment.get("CLAUDE_CONFIG_DIR")
        if configured:
            for part in configured.split(","):
                folder = Path(part.strip()).expanduser()
                yield folder if folder.name == "projects" else folder / "projects"
            return
        yield Path(environment.get("XDG_CONFIG_HOME", home / ".config")) / "claude" / "projects"
        yield home / ".claude" / "projects"

    def group(self, path: Path) -> str:
        """Name the session that a file belongs to, so that its subagents are read with it.

        A session that was resumed in another folder goes on in a file of the same name there.
        """
        place = _Place(path)
        return place.session if _UUID.match(place.session) else f"{place.folder}/{place.session}"

    def project(self, path: Path) -> str | None:
        """Name the folder of the project."""
        return _Place(path).project


class _Place:
    """What the path of a transcript says of its content."""

    def __init__(self, path: Path) -> None:
        self.agent: str | None = None
        if path.parent.name == "subagents":
            self.agent = path.stem
            self.session, self.folder = path.parents[1].name, path.parents[2]
        else:
            self.session, self.folder = path.stem, path.parent
            if path.stem.startswith("agent-"):
                self.agent = path.stem
        self.project = self.folder.name

    def of(self, response: Response) -> tuple[str, str, str]:
        """Return session, lane and purpose of a response."""
        session = response.session or self.session
        if self.agent is not None:
            return session, self.agent, "subagent"
        if response.sidechain:
            lane = response.agent or (
                f"sidechain-{response.root}" if response.root else "sidechain"
            )
            return session, lane, "subagent"
        return session, "main", "main"


def _calls(state: Scan, path: Path, problems: ProblemSink) -> Iterator[Call]:
    place = _Place(path)
    lower = _is_placeholder_file(list(state.responses.values()))
    ended: dict[str, float] = {}
    for response in state.responses.values():
        call = _call(response, place, state.name, lower, ended, problems)
        if call is not None:
            yield call


def _call(
    response: Response,
    place: _Place,
    name: str,
    lower: bool,
    ended: dict[str, float],
    problems: ProblemSink,
) -> Call | None:
    wire = response.wire
    usage = _plain_usage(wire, lower) if wire is not None else None
    if usage is None:
        usage = _usage(response, lower, f"{name}:{response.line}", problems)
        if usage is None:
            return None
    session, lane, purpose = place.of(response)
    first, last, user = response.first_at, response.last_at, response.user_at
    begun = None if first is None else parse_text(first)
    done = begun if last is first else None if last is None else parse_text(last)
    before = ended.get(lane)
    span = _start_span(None if user is None else parse_text(user), before, begun)
    if done is not None and (before is None or done > before):
        ended[lane] = done
    model, message, request = response.model, response.message_id, response.request_id
    # What few calls have is added below: Python hands over more than 15 names in a dictionary.
    call = Call(
        id=message,
        session=session,
        lane=lane,
        purpose=purpose,
        provider="anthropic" if model is not None and "claude" in model else None,
        surface=_SURFACES.get(message[:9]),
        model=model,
        start_span=span,
        ended_at=done,
        usage=usage,
        stop_reason=response.stop_reason,
        client=_client(response.version),
        boundaries=response.boundaries,
        origin=Origin(name, response.line),
        dedupe_key=message if request is None else f"{message}:{request}",
    )
    if response.diagnostics is None and response.cost is None:
        return call
    return msgspec.structs.replace(
        call,
        diagnostics=_reason(response.diagnostics),
        reported_cost=_cost(response.cost),
    )


@lru_cache(maxsize=64)
def _client(version: str | None) -> str:
    return f"claude-code {version}" if version else "claude-code"


def _start_span(user: float | None, previous_end: float | None, first: float | None) -> Span | None:
    """Bound the request start: behind what it answers, before its own first line."""
    if first is None:
        return None
    low = user
    if low is None or (previous_end is not None and previous_end > low):
        low = previous_end
    return Span(low if low is not None and low <= first else first, first)


def _usage(response: Response, lower: bool, where: str, problems: ProblemSink) -> Usage | None:
    """Normalise what :func:`_plain_usage` leaves."""
    wire = response.wire
    if wire is not None:
        raw = {k: v for k, v in msgspec.to_builtins(wire).items() if v is not None}
    else:
        raw = response.raw_usage or {}
    found = normalise(raw)
    if found is None:
        problems("missing_usage", where, "no token count is known")
        return None
    for flag in found.flags:
        problems(flag, where)
    if lower and FLAG_OUTPUT_LOWER_BOUND not in found.flags:
        found = msgspec.structs.replace(found, flags=(*found.flags, FLAG_OUTPUT_LOWER_BOUND))
    return found


def _plain_usage(wire: WireUsage, lower: bool) -> Usage | None:
    """Normalise the ordinary record without detour; ``None`` where anything is unusual."""
    fresh, read, write = (
        wire.input_tokens,
        wire.cache_read_input_tokens,
        wire.cache_creation_input_tokens,
    )
    split = wire.cache_creation
    output = wire.output_tokens
    if fresh is None or read is None or write is None or split is None or output is None:
        return None
    w5, w1 = split.ephemeral_5m_input_tokens, split.ephemeral_1h_input_tokens
    if w5 is None or w1 is None or w5 + w1 != write:
        return None
    total = fresh + read + write
    if fresh < 0 or read < 0 or w5 < 0 or w1 < 0 or output < 0 or total + output > LARGEST:
        return None
    details, tools = wire.output_tokens_details, wire.server_tool_use
    return Usage(
        total_input=total,
        uncached_input=fresh,
        cache_read=read,
        write_5m=w5,
        write_1h=w1,
        output=output,
        reasoning=details.thinking_tokens if details is not None else None,
        service_tier=wire.service_tier,
        speed=wire.speed,
        inference_geo=wire.inference_geo,
        web_searches=tools.web_search_requests if tools is not None else None,
        dialect="anthropic",
        flags=(FLAG_OUTPUT_LOWER_BOUND,) if lower else (),
    )


def _is_placeholder_file(responses: list[Response]) -> bool:
    """Whether the client logged first-event output counts throughout, as some releases did."""
    if len(responses) < _PLACEHOLDER_MIN:
        return False
    low = sum(1 for r in responses if r.output <= _PLACEHOLDER_OUTPUT and r.stop_reason is None)
    return low >= _PLACEHOLDER_SHARE * len(responses)


def _key(response: Response) -> str:
    if response.request_id is None:
        return response.message_id
    return f"{response.message_id}:{response.request_id}"


def _is_claude(model: str | None) -> bool:
    return model is not None and "claude" in model


def _surface(message_id: str) -> str | None:
    return _SURFACES.get(message_id[:9])


def _is_qwen(line: Mapping[str, Any]) -> bool:
    """Qwen Code writes the same envelope around Gemini's message form."""
    message = line.get("message")
    return "usageMetadata" in line or (isinstance(message, dict) and "parts" in message)


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("usage"), dict) and "model" in value


def _reason(raw: bytes | None) -> MissReason | None:
    if raw is None or raw == b"null":
        return None
    try:
        return anthropic_reason(msgspec.json.decode(raw))
    except (msgspec.DecodeError, RecursionError):
        return None


def _cost(raw: bytes | None) -> Decimal | None:
    if raw is None or raw == b"null":
        return None
    try:
        return decimal(raw.decode().strip('"'))
    except (ValueError, InvalidOperation):
        return None


SOURCE = ClaudeCode()
