"""HAR files: what a browser or a proxy recorded of HTTP traffic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from cacheaudit.ingest._fields import dig, mapping, text
from cacheaudit.ingest.documents import json_records
from cacheaudit.ingest.exchange import Exchange, Exchanges
from cacheaudit.ingest.unpack import UnpackError, decompress, header, json_object, unbase64
from cacheaudit.model.call import Call
from cacheaudit.model.clock import parse_time
from cacheaudit.model.ports import Capabilities, Head, ProblemSink

# "ssl" is left out: the format counts it inside "connect".
_LONGEST_MS: Final = 1e11
_BEFORE_ANSWER: Final = ("blocked", "dns", "connect", "send", "wait")


class HarSource:
    """Reads the model calls of a HAR file; everything else in it is passed over."""

    name = "har"
    title = "HTTP archive (HAR)"
    capabilities = Capabilities(
        reads=True,
        writes=True,
        ttl_split=True,
        bodies=True,
        start_times="exact",
        provider_reasons=True,
    )

    def detect(self, head: Head) -> int:
        """Say how sure we are that the file is an HTTP archive."""
        entries = dig(head.document, "log", "entries")
        if isinstance(entries, list):
            return 95
        start = head.data[:4096].removeprefix(b"\xef\xbb\xbf").lstrip()
        if start[:1] != b"{" or b'"log"' not in start[:200]:
            return 0
        return 90 if b'"entries"' in head.data or b'"creator"' in start else 0

    def read(self, path: Path, problems: ProblemSink) -> Iterator[Call]:
        """Yield one call an entry that went to a model."""
        exchanges = Exchanges(str(path), path.stem, problems)
        for number, entry in json_records(path, problems, "log", "entries"):
            exchange = _exchange(entry, number, f"{path}:{number}", problems)
            call = exchanges.call(exchange) if exchange is not None else None
            if call is not None:
                yield call

    def usual_places(self, environment: Mapping[str, str], home: Path) -> Iterator[Path]:
        """Yield nothing: archives lie where their owner saved them."""
        del environment, home
        yield from ()


def _exchange(
    entry: dict[str, Any], number: int, where: str, problems: ProblemSink
) -> Exchange | None:
    request, response = mapping(entry.get("request")), mapping(entry.get("response"))
    if not request:
        problems("wrong_type", where, "entry without a request")
        return None
    if (text(request.get("method")) or "POST").upper() != "POST":
        return None
    started = parse_time(entry.get("startedDateTime"))
    if started is None:
        problems("wrong_type", where, "startedDateTime is no time")
    status = response.get("status")
    return Exchange(
        request=_request_body(request, where, problems),
        response=_response_body(response, where, problems),
        url=text(request.get("url")),
        request_headers=request.get("headers"),
        response_headers=response.get("headers"),
        status=status if type(status) is int and status > 0 else None,
        started_at=started,
        first_token_at=_first_byte(entry, started),
        ended_at=_end(entry, started),
        error=text(response.get("_error")) if status in (0, None) else None,
        number=number,
    )


def _request_body(
    request: Mapping[str, Any], where: str, problems: ProblemSink
) -> dict[str, Any] | None:
    post = mapping(request.get("postData"))
    encoding = header(request.get("headers"), "content-encoding")
    data = _bytes(post, encoding, where, problems)
    body = json_object(data) if data else None
    if body is None and data and "json" in (text(post.get("mimeType")) or ""):
        problems("invalid_json", where, "request body")
    return body


def _response_body(response: Mapping[str, Any], where: str, problems: ProblemSink) -> bytes | None:
    content = mapping(response.get("content"))
    encoding = header(response.get("headers"), "content-encoding")
    return _bytes(content, encoding, where, problems)


def _bytes(
    part: Mapping[str, Any], encoding: str | None, where: str, problems: ProblemSink
) -> bytes | None:
    """Return a recorded body as it was before transport."""
    body = part.get("text")
    if not isinstance(body, str) or not body:
        return None
    stated = text(part.get("encoding")) or text(part.get("_encoding")) or ""
    try:
        data = unbase64(body) if stated.lower() == "base64" else body.encode(errors="replace")
        return decompress(data, encoding)
    except UnpackError as error:
        problems("unreadable_body", where, str(error))
        return None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= _LONGEST_MS else None


def _end(entry: Mapping[str, Any], started: float | None) -> float | None:
    took = _number(entry.get("time"))
    return None if started is None or took is None else started + took / 1000


def _first_byte(entry: Mapping[str, Any], started: float | None) -> float | None:
    timings = mapping(entry.get("timings"))
    if started is None or _number(timings.get("wait")) is None:
        return None
    return started + sum(_number(timings.get(part)) or 0.0 for part in _BEFORE_ANSWER) / 1000


SOURCE = HarSource()
