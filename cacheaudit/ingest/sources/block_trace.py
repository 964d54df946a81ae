"""Traces that tell a prompt by the hashes of its runs of tokens, with subagents inside."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from cacheaudit.ingest._agents import document
from cacheaudit.ingest._fields import read_count, read_seconds, text
from cacheaudit.ingest.block_pieces import Piece, Pieces
from cacheaudit.model.call import Call, Origin
from cacheaudit.model.ports import Capabilities, Head, ProblemSink
from cacheaudit.model.prompt import ContentBlock, Level, Marker, Prompt, chain
from cacheaudit.model.usage import Usage

_ORDER: Final[tuple[Level, ...]] = ("tools", "system", "messages")
_SIZE: Final = 64
_DEEPEST: Final = 16
_ASSUMED: Final = "one behind the system prompt and one at the end of each request is assumed"


class BlockTrace:
    """Reads agent conversations whose prompts are lists of hash numbers."""

    name = "block_trace"
    title = "Block-hash trace"
    capabilities = Capabilities(bodies=True, start_times="exact")

    def detect(self, head: Head) -> int:
        """Recognise a document with requests, the size of a run and numbers of runs."""
        if not head.data.lstrip().startswith(b"{"):
            return 0
        if not all(name in head.data for name in (b'"block_size"', b'"requests"', b'"hash_ids"')):
            return 0
        return 95 if b'"hash_id_scope"' in head.data else 85

    def read(self, path: Path, problems: ProblemSink) -> Iterator[Call]:
        """Yield one call for every request, those of subagents in lanes of their own."""
        whole = document(path, problems, dict)
        if whole is not None:
            yield from _Trace(path, whole, problems).calls()

    def usual_places(self, environment: Mapping[str, str], home: Path) -> Iterator[Path]:
        """Yield nothing: a trace lies where somebody put it."""
        del environment, home
        yield from ()


class _Entry(msgspec.Struct, frozen=True):
    """One request of a trace.

    Attributes:
        fields: As recorded.
        number: Place in the file, from 1.
        lane: Its lane.
        start: Seconds from the beginning of the conversation.
        total: Input tokens.
        ids: Numbers of its full runs.
        front: Tokens of tools, and of tools and system together.
        parent: Id of the request that a subagent was started from.
    """

    fields: Mapping[str, Any]
    number: int
    lane: str
    start: float
    total: int
    ids: Sequence[int | str]
    front: tuple[int, int]
    parent: str | None


class _Trace:
    """One file."""

    def __init__(self, path: Path, whole: Mapping[str, Any], problems: ProblemSink) -> None:
        self._path = path
        self._whole = whole
        self._problems = problems
        self._id = text(whole.get("id")) or path.stem
        self._size = read_count(whole.get("block_size")) or _SIZE
        self._number = 0

    def calls(self) -> Iterator[Call]:
        """Read, cut and yield all requests in order of their start."""
        entries = list(self._entries(self._whole, "main", 0.0, None, 0))
        entries.sort(key=lambda entry: entry.start)
        is_shared = self._whole.get("hash_id_scope") == "global"
        salt = b"" if is_shared else hashlib.blake2b(self._id.encode(), digest_size=16).digest()
        pieces = Pieces(self._size, salt)
        for entry in entries:
            pieces.add(entry.ids, entry.total, entry.front)
        if entries:
            self._problems("markers_assumed", str(self._path), _ASSUMED)
        previous: dict[str, Prompt] = {}
        for entry, cut in zip(entries, pieces.all(), strict=True):
            prompt = _prompt(entry, cut, self._size, previous.get(entry.lane))
            previous[entry.lane] = prompt
            yield self._call(entry, prompt)

    def _entries(
        self, holder: Mapping[str, Any], lane: str, base: float, parent: str | None, depth: int
    ) -> Iterator[_Entry]:
        listed = holder.get("requests")
        if not isinstance(listed, list):
            self._problems("wrong_type", self._where(), "requests is no list")
            return
        front = _front(holder)
        offset = base if _is_relative(listed, base) else 0.0
        last = parent
        for fields in listed:
            if not isinstance(fields, dict):
                self._problems("wrong_type", self._where(), "a request is no object")
                continue
            if isinstance(fields.get("requests"), list):
                yield from self._nested(fields, lane, offset, last, depth)
                continue
            self._number += 1
            entry = self._entry(fields, lane, offset, front, last if lane != "main" else None)
            if entry is not None:
                last = self._name(entry.number)
                yield entry

    def _nested(
        self, fields: Mapping[str, Any], lane: str, base: float, parent: str | None, depth: int
    ) -> Iterator[_Entry]:
        if depth >= _DEEPEST:
            self._problems("too_deep", self._where(), "subagents inside subagents")
            return
        name = text(fields.get("agent_id")) or f"subagent-{self._number}"
        inner = name if lane == "main" else f"{lane}/{name}"
        start = base + (read_seconds(fields.get("t")) or 0.0)
        yield from self._entries(fields, inner, start, parent, depth + 1)

    def _entry(
        self,
        fields: Mapping[str, Any],
        lane: str,
        base: float,
        front: tuple[int, int],
        parent: str | None,
    ) -> _Entry | None:
        start = read_seconds(fields.get("t"))
        ids = fields.get("hash_ids")
        total = read_count(_first(fields, "in", "input_length"))
        if start is None or not isinstance(ids, list) or not _are_numbers(ids):
            self._problems("wrong_type", self._where(), "a request without t or hash_ids")
            return None
        if total is None or total < max(0, len(ids) - 1) * self._size:
            self._problems("wrong_type", self._where(), "input tokens do not fit the hash_ids")
            total = len(ids) * self._size
        if not total:
            self._problems("missing_usage", self._where(), "no token count in this request")
            return None
        if total < len(ids) * self._size:  # the last run is a part of one
            ids = ids[:-1]
        return _Entry(fields, self._number, lane, base + start, total, ids, front, parent)

    def _call(self, entry: _Entry, prompt: Prompt) -> Call:
        fields = entry.fields
        took, first = read_seconds(fields.get("api_time")), read_seconds(fields.get("ttft"))
        model = text(fields.get("model"))
        return Call(
            id=self._name(entry.number),
            session=self._id,
            lane=entry.lane,
            parent=entry.parent,
            purpose="main" if entry.lane == "main" else "subagent",
            provider=_provider(model),
            model=model,
            started_at=entry.start,
            first_token_at=None if first is None else entry.start + first,
            ended_at=None if took is None else entry.start + took,
            usage=Usage(
                total_input=entry.total,
                output=read_count(_first(fields, "out", "output_length")),
                dialect=BlockTrace.name,
            ),
            prompt=prompt,
            stop_reason=text(fields.get("stop")),
            origin=Origin(str(self._path)),
            relative_time=True,
        )

    def _name(self, number: int) -> str:
        return f"{self._id}#{number}"

    def _where(self) -> str:
        return f"{self._path}#{self._number}"


def _front(holder: Mapping[str, Any]) -> tuple[int, int]:
    tools = read_count(holder.get("tool_tokens")) or 0
    return tools, tools + (read_count(holder.get("system_tokens")) or 0)


def _is_relative(listed: Sequence[Any], base: float) -> bool:
    """Whether a subagent's times count from its own start."""
    times = (read_seconds(item.get("t")) for item in listed if isinstance(item, dict))
    first = next((at for at in times if at is not None), None)
    return base > 0 and first is not None and first < base


def _are_numbers(ids: Sequence[Any]) -> bool:
    return all(type(number) is int or isinstance(number, str) for number in ids)


def _first(fields: Mapping[str, Any], *names: str) -> object:
    return next((fields[name] for name in names if fields.get(name) is not None), None)


def _provider(model: str | None) -> str | None:
    return "anthropic" if model is not None and model.startswith("claude") else None


def _prompt(entry: _Entry, pieces: Sequence[Piece], size: int, previous: Prompt | None) -> Prompt:
    tools, front = (round(tokens / size) * size for tokens in entry.front)
    blocks: list[ContentBlock] = []
    counts: dict[Level, int] = dict.fromkeys(_ORDER, 0)
    is_marked = _provider(text(entry.fields.get("model"))) is not None
    for piece in pieces:
        level: Level = "messages"
        if piece.end <= front:
            level = "tools" if piece.end <= tools else "system"
        is_end = piece is pieces[-1] or piece.end == front
        blocks.append(_block(piece, level, counts[level], is_marked=is_marked and is_end))
        counts[level] += 1
    drawn = tuple(blocks)
    return Prompt(
        provider=_provider(text(entry.fields.get("model"))) or "",
        model=text(entry.fields.get("model")),
        level_order=_ORDER,
        parameters=(),
        blocks=drawn,
        prefix_digests=chain(_ORDER, (), drawn, previous),
    )


def _block(piece: Piece, level: Level, number: int, *, is_marked: bool) -> ContentBlock:
    is_message = level == "messages"
    return ContentBlock(
        level=level,
        path=f"messages[{number}].content[0]" if is_message else f"{level}[{number}]",
        kind="tool" if level == "tools" else "text",
        role="user" if is_message else None,
        message=number if is_message else -1,
        canonical=b"",
        digest=piece.digest,
        tokens=piece.end - piece.start,
        tokens_origin="recorded",
        marker=Marker() if is_marked else None,
    )


SOURCE = BlockTrace()
