"""Reads what came back: bodies read in one piece, and streams with the moment of each piece."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from cacheaudit.agent.attempt import Attempt
from cacheaudit.dialects.detect import normalise
from cacheaudit.dialects.sse import SseDecoder
from cacheaudit.ingest.answers import Answer, is_event_stream, merged, read_answer
from cacheaudit.ingest.unpack import (
    UnpackError,
    aws_events,
    decompress,
    is_aws_stream,
    unbrotli,
)
from cacheaudit.model.ports import ProblemSink

# Counts in the headers of Bedrock's answers, by their name in the Converse API.
_BEDROCK_COUNTS: Final = {
    "x-amzn-bedrock-input-token-count": "inputTokens",
    "x-amzn-bedrock-output-token-count": "outputTokens",
    "x-amzn-bedrock-cache-read-input-token-count": "cacheReadInputTokens",
    "x-amzn-bedrock-cache-write-input-token-count": "cacheWriteInputTokens",
}
_WINDOWS: Final = {"gzip": 31, "x-gzip": 31, "deflate": 15}


class Heard(msgspec.Struct, frozen=True):
    """What a response said.

    Attributes:
        answer: Its content.
        first_token_at: Moment of the first token of a stream.
    """

    answer: Answer
    first_token_at: float | None = None


def hear(attempt: Attempt, request: Mapping[str, Any], problems: ProblemSink) -> Heard:
    """Read the response of an attempt, as far as it came.

    Args:
        attempt: The attempt.
        request: Fields of the request; they tell what null diagnostics mean.
        problems: Counts what cannot be read.
    """
    try:
        heard = _stream(attempt, request) if attempt.is_stream else _whole(attempt, request)
    except UnpackError as error:
        problems("unreadable_body", attempt.key, str(error))
        heard = Heard(Answer())
    if heard.answer.usage is None:
        counts = _counts(attempt.received)
        if counts:
            usage = normalise(counts)
            answer = msgspec.structs.replace(heard.answer, usage=usage)
            return Heard(answer, heard.first_token_at)
    return heard


def _whole(attempt: Attempt, request: Mapping[str, Any]) -> Heard:
    return Heard(Answer() if attempt.answer is None else read_answer(attempt.answer, request))


def _stream(attempt: Attempt, request: Mapping[str, Any]) -> Heard:
    chunks, times = list(attempt.chunks), list(attempt.times)
    kind = attempt.received.get("content-type", "")
    encoding = attempt.received.get("content-encoding", "").strip().lower()
    pieces = list(_plain(chunks, encoding))
    if is_aws_stream(pieces[0], kind):
        return Heard(merged(_until_cut(aws_events(b"".join(pieces))), request))
    if "event-stream" not in kind and not is_event_stream(pieces[0]):
        return Heard(read_answer(b"".join(pieces), request))
    first: list[float] = []

    def events() -> Iterator[Mapping[str, Any]]:
        decoder = SseDecoder()
        for piece, at in zip(pieces, times, strict=False):
            for sent in decoder.feed(piece):
                if (event := sent.json()) is not None:
                    if not first and _is_token(event):
                        first.append(at)
                    yield event
        for sent in decoder.close():
            if (event := sent.json()) is not None:
                yield event

    answer = merged(events(), request)
    return Heard(answer, first[0] if first else None)


def pieces_of(attempt: Attempt) -> bytes:
    """Return the whole body of a response, decompressed.

    Raises:
        UnpackError: It cannot be decompressed.
    """
    if attempt.answer is not None:
        return attempt.answer
    encoding = attempt.received.get("content-encoding", "").strip().lower()
    return b"".join(_plain(list(attempt.chunks), encoding))


def _plain(chunks: list[bytes], encoding: str) -> Iterable[bytes]:
    """Decompress piece by piece; what a cut stream holds so far is given out."""
    if not encoding or encoding == "identity":
        return chunks
    if encoding == "br":
        return unbrotli(chunks)[0]
    if encoding not in _WINDOWS:
        return [decompress(b"".join(chunks), encoding)]
    inflate = zlib.decompressobj(_WINDOWS[encoding]).decompress
    if encoding == "deflate" and chunks and not _is_zlib(chunks[0]):
        inflate = zlib.decompressobj(-15).decompress
    return _inflated(chunks, inflate)


def _inflated(chunks: list[bytes], inflate: Callable[[bytes], bytes]) -> list[bytes]:
    try:
        return [inflate(chunk) for chunk in chunks]
    except zlib.error as error:
        raise UnpackError("compressed body is damaged") from error


def _is_zlib(data: bytes) -> bool:
    return len(data) > 1 and data[0] & 15 == 8 and (data[0] << 8 | data[1]) % 31 == 0


def _until_cut(events: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the events of a stream that may have been left before its end."""
    try:
        yield from events
    except UnpackError:
        return


def _is_token(event: Mapping[str, Any]) -> bool:
    """Whether an event brings generated content."""
    kind = event.get("type")
    if isinstance(kind, str):
        return kind == "content_block_delta" or kind.endswith(".delta")
    choices = event.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        delta = choices[0].get("delta")
        return isinstance(delta, dict) and any(
            value for key, value in delta.items() if key not in ("role", "refusal")
        )
    return "candidates" in event


def _counts(headers: Mapping[str, str]) -> dict[str, int]:
    found = {
        field: int(text)
        for name, field in _BEDROCK_COUNTS.items()
        if (text := headers.get(name, "")).isdecimal() and len(text) < 13
    }
    return found if "inputTokens" in found else {}
