"""Calls, prompts and a small recorded format for the tests of the store."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import strategies as st

from cacheaudit.ingest.lines import parse, raw_lines
from cacheaudit.jobs.inputs import Inputs
from cacheaudit.model.call import (
    PURPOSES,
    Boundary,
    Call,
    CallError,
    MissReason,
    Origin,
    Session,
    Span,
)
from cacheaudit.model.money import is_sane
from cacheaudit.model.ports import Capabilities, Head, ProblemSink
from cacheaudit.model.prompt import ContentBlock, Marker, Parameter, Prompt, chain, digest
from cacheaudit.model.usage import TTLS, Usage, UsagePart

COUNTS = (
    "total_input",
    "uncached_input",
    "cache_read",
    "write_5m",
    "write_1h",
    "write_30m",
    "write_12h",
    "write_other",
    "output",
    "reasoning",
    "context_input",
    "web_searches",
)
PART_COUNTS = COUNTS[1:9]
LEVELS = ("tools", "system", "messages")

counts = st.none() | st.integers(0, 10**12)
words = st.text(max_size=8) | st.sampled_from(["nul\0", "\ud800", "\ue000", "\ue0000000", "ä€"])
maybe_words = st.none() | words
moments = st.floats(0, 4e9, allow_nan=False)
maybe_moments = st.none() | moments
# Others are refused where they are read: they are damage.
decimals = st.decimals(allow_nan=False, allow_infinity=False, min_value=0, max_value=10**6).filter(
    is_sane
)

parts = st.builds(
    UsagePart,
    kind=st.sampled_from(["message", "compaction", "advisor_message"]),
    model=maybe_words,
    **dict.fromkeys(PART_COUNTS, counts),
)
usages = st.builds(
    Usage,
    **dict.fromkeys(COUNTS, counts),
    write_other_ttl=st.none() | st.sampled_from(TTLS),
    service_tier=maybe_words,
    speed=maybe_words,
    inference_geo=maybe_words,
    parts=st.lists(parts, max_size=3).map(tuple),
    dialect=words,
    flags=st.lists(st.sampled_from(["negative_part", "fields_disagree"]), unique=True).map(tuple),
)
markers = st.none() | st.builds(Marker, ttl=st.none() | st.sampled_from(["5m", "1h"]))


@st.composite
def blocks(draw: st.DrawFn, level: str, index: int) -> ContentBlock:
    canonical = json.dumps({"text": draw(st.sampled_from("abcdef")), "n": index % 3}).encode()
    tokens = draw(counts)
    return ContentBlock(
        level=level,
        path=f"{level}[{index}]",
        kind=draw(st.sampled_from(["text", "tool", "image"])),
        role=draw(st.sampled_from([None, "user", "assistant"])),
        name=draw(st.none() | st.sampled_from(["read", "toolu_1"])),
        message=index if level == "messages" else -1,
        canonical=canonical,
        digest=digest(canonical),
        tokens=tokens,
        tokens_origin=None if tokens is None else draw(st.sampled_from(["recorded", "counted"])),
        marker=draw(markers),
        media_bytes=draw(st.sampled_from([0, 0, 1000])),
    )


@st.composite
def prompts(draw: st.DrawFn) -> Prompt:
    made: list[ContentBlock] = []
    for level in LEVELS:
        size = draw(st.integers(0, 4))
        made.extend(draw(blocks(level, index)) for index in range(size))
    parameters = tuple(
        Parameter(name, level, value)
        for name, level, value in draw(
            st.lists(
                st.tuples(
                    st.sampled_from(["model", "tool_choice"]),
                    st.sampled_from(LEVELS),
                    st.sampled_from([b'"m"', b"true", b'"' + b"x" * 100 + b'"']),
                ),
                max_size=2,
            )
        )
    )
    return Prompt(
        provider=draw(st.sampled_from(["anthropic", "openai"])),
        model=draw(st.none() | st.sampled_from(["m-1"])),
        level_order=LEVELS,
        parameters=parameters,
        blocks=tuple(made),
        prefix_digests=chain(LEVELS, parameters, tuple(made)),
        automatic_marker=draw(markers),
    )


extras = st.dictionaries(
    st.sampled_from(["a", "b"]),
    st.none() | st.integers(-(2**70), 2**70) | st.booleans() | st.text("abc", max_size=5),
    max_size=2,
)


@st.composite
def calls(draw: st.DrawFn, name: str = "c") -> Call:
    span = draw(st.none() | st.tuples(moments, moments))
    return Call(
        id=name,
        session="s",
        lane=draw(st.sampled_from(["main", "sub"])),
        parent=draw(maybe_words),
        task=draw(maybe_words),
        purpose=draw(st.sampled_from(PURPOSES)),
        provider=draw(maybe_words),
        surface=draw(maybe_words),
        model=draw(maybe_words),
        started_at=draw(maybe_moments),
        start_span=None if span is None else Span(min(span), max(span)),
        first_token_at=draw(maybe_moments),
        ended_at=draw(maybe_moments),
        attempt=draw(st.integers(0, 5)),
        usage=draw(st.none() | usages),
        prompt=draw(st.none() | prompts()),
        diagnostics=draw(st.none() | st.builds(MissReason, type=words, missed_tokens=counts)),
        stop_reason=draw(maybe_words),
        error=draw(st.none() | st.builds(CallError, type=maybe_words, status=counts)),
        tool_seconds=draw(maybe_moments),
        outcome=draw(st.none() | st.sampled_from(["accepted", "rejected"])),
        reported_cost=draw(st.none() | decimals),
        client=draw(maybe_words),
        boundaries=tuple(
            draw(
                st.lists(
                    st.builds(
                        Boundary,
                        kind=st.sampled_from(["compaction", "clear"]),
                        at=maybe_moments,
                        trigger=st.none() | st.just("auto"),
                        tokens_before=counts,
                    ),
                    max_size=2,
                )
            )
        ),
        origin=draw(st.none() | st.builds(Origin, file=words, line=st.integers(0, 9))),
        dedupe_key=draw(st.sampled_from([None, f"key {name}"])),
        relative_time=draw(st.booleans()),
        requests=draw(st.sampled_from([1, None, 12])),
        extra=draw(extras),
    )


@st.composite
def sessions(draw: st.DrawFn) -> Session:
    """A session as sources make it: in order of time wherever every call has one."""
    made = [draw(calls(f"c{index}")) for index in range(draw(st.integers(1, 5)))]
    if all(call.at is not None for call in made):
        made.sort(key=lambda call: call.at or 0.0)
    return Session(id="s", source="test", calls=tuple(made))


def _without_quotes(call: Call) -> Call:
    error, miss, stop = call.error, call.diagnostics, call.stop_reason
    return msgspec.structs.replace(
        call,
        error=error and CallError(error.type and _named(error.type), error.status),
        diagnostics=miss and MissReason(_named(miss.type), miss.missed_tokens),
        stop_reason=stop and _named(stop),
    )


def _named(kind: str) -> str:
    return kind if kind.isascii() and kind.isprintable() and " " not in kind else "other"


def without_canonical(call: Call) -> Call:
    """What is left of a call when no text is stored, worked out the plain way."""
    call = _without_quotes(call)
    prompt = call.prompt
    if prompt is None:
        return call
    bare = tuple(
        msgspec.structs.replace(block, canonical=b"", canonical_bytes=len(block.canonical))
        for block in prompt.blocks
    )
    parameters = tuple(
        p
        if len(p.value) <= 64
        else msgspec.structs.replace(p, value=f'"blake2b:{digest(p.value).hex()}"'.encode())
        for p in prompt.parameters
    )
    prompt = msgspec.structs.replace(prompt, blocks=bare, parameters=parameters)
    return msgspec.structs.replace(call, prompt=prompt)


class ToySource:
    """One JSON object a line: ``toy``, ``s`` (session), ``id``, ``out``, ``in`` and ``key``."""

    name = "toy"
    title = "Toy"
    capabilities = Capabilities(reads=True)

    def __init__(self, version: int = 1) -> None:
        self.version = version

    def detect(self, head: Head) -> int:
        return 100 if head.lines and "toy" in head.lines[0] else 0

    def read(self, path: Path, problems: ProblemSink) -> Iterator[Call]:
        return self._read(path, problems, 0, 1)

    def usual_places(self, environment: Mapping[str, str], home: Path) -> Iterator[Path]:
        yield home / ".toy"

    def _read(self, path: Path, problems: ProblemSink, start: int, first: int) -> Iterator[Call]:
        for number, _, line in raw_lines(path, problems, start, first):
            value = parse(line, f"{path}:{number}", problems)
            if isinstance(value, dict):
                yield self.call(value, path, number)

    def call(self, value: dict[str, Any], path: Path, number: int) -> Call:
        return Call(
            id=value["id"],
            session=value.get("s", path.stem),
            started_at=value.get("at"),
            usage=Usage(
                total_input=value.get("in"),
                output=value.get("out"),
                parts=(UsagePart(kind="message", output=value.get("out")),),
            ),
            reported_cost=Decimal("0.001") * self.version,
            dedupe_key=value.get("key"),
            origin=Origin(str(path), number),
        )


class ContinuingToy(ToySource):
    """The same, able to begin in the middle; notes where it began."""

    def __init__(self, version: int = 1) -> None:
        super().__init__(version)
        self.started: list[tuple[int, int]] = []

    def read_from(
        self, path: Path, problems: ProblemSink, start: int, first_line: int
    ) -> Iterator[Call]:
        self.started.append((start, first_line))
        return self._read(path, problems, start, first_line)


def line(name: str, **fields: Any) -> str:
    return json.dumps({"toy": 1, "id": name, "in": 10, "out": 1, "key": name, **fields}) + "\n"


def inputs(*paths: Path) -> Inputs:
    return Inputs(paths=paths, environment={}, home=Path("/nonexistent"))
