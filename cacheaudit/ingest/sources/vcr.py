"""VCR cassettes: recorded exchanges that tests play back, of Python, Ruby and their relatives."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from cacheaudit._lazy import need
from cacheaudit.errors import MissingExtraError
from cacheaudit.ingest._fields import mapping, text
from cacheaudit.ingest.documents import as_utf8, count_unreadable, json_records, read_whole
from cacheaudit.ingest.exchange import Exchange, Exchanges
from cacheaudit.ingest.unpack import (
    UnpackError,
    decompress,
    header,
    json_object,
    unbase64,
)
from cacheaudit.model.call import Call, Span
from cacheaudit.model.clock import moment, parse_time
from cacheaudit.model.ports import Capabilities, Head, ProblemSink

_LISTS: Final = ("interactions", "http_interactions")
_TOP: Final = re.compile(rb"^(?:interactions|http_interactions):", re.MULTILINE)
_ITEM: Final = re.compile(r"^( {0,4})- ", re.MULTILINE)
# Clients give up after ten minutes, so a request began at most that long before its answer.
_LONGEST: Final = 600.0


class VcrSource:
    """Reads cassettes in YAML and JSON; one interaction is one call."""

    name = "vcr"
    title = "VCR cassette"
    capabilities = Capabilities(
        reads=True,
        writes=True,
        ttl_split=True,
        bodies=True,
        start_times="interval",
        provider_reasons=True,
    )

    def detect(self, head: Head) -> int:
        """Say how sure we are that the file is a cassette."""
        if isinstance(head.document, dict):
            return 95 if any(isinstance(head.document.get(k), list) for k in _LISTS) else 0
        start = head.data[:4096].removeprefix(b"\xef\xbb\xbf").lstrip()
        if start[:1] == b"{":
            return 85 if any(b'"' + k.encode() + b'"' in start[:400] for k in _LISTS) else 0
        return 95 if _TOP.search(start) and b"request:" in head.data else 0

    def read(self, path: Path, problems: ProblemSink) -> Iterator[Call]:
        """Yield one call an interaction with a model."""
        exchanges = Exchanges(str(path), path.stem, problems)
        for number, interaction in _interactions(path, problems):
            exchange = _exchange(interaction, number, f"{path}:{number}", problems)
            # Ids in cassettes are often blotted out, so equal ids do not mean equal calls.
            call = exchanges.call(exchange, unique_ids=False) if exchange is not None else None
            if call is not None:
                yield call

    def usual_places(self, environment: Mapping[str, str], home: Path) -> Iterator[Path]:
        """Yield nothing: cassettes lie in the folders of their projects."""
        del environment, home
        yield from ()


def _interactions(path: Path, problems: ProblemSink) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        with path.open("rb") as stream:
            head = as_utf8(stream.read(64)).lstrip()
    except OSError as error:
        count_unreadable(path, error, problems)
        return
    if head[:1] == b"{":
        yield from json_records(path, problems, *_LISTS)
        return
    try:
        yaml = need("yaml", "yaml")
    except MissingExtraError as error:
        problems("missing_extra", str(path), str(error))
        return
    yield from _from_yaml(yaml, path, problems)


def _from_yaml(
    yaml: ModuleType, path: Path, problems: ProblemSink
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read the whole cassette; where it is broken, every interaction for itself."""
    data = read_whole(path, problems)
    if not data:
        return
    try:
        content = data.decode()
    except UnicodeDecodeError as error:
        problems("encoding", str(path), error.reason)
        content = data.decode(errors="replace")
    loader = _loader(yaml)
    try:
        document = yaml.load(content, Loader=loader)
        pieces: list[Any] = next(
            (document[name] for name in _LISTS if isinstance(document.get(name), list)), []
        )
    except (yaml.YAMLError, RecursionError, ValueError, AttributeError) as error:
        problems("invalid_yaml", str(path), str(error).splitlines()[0][:200])
        pieces = list(_each(yaml, loader, content))
    for number, item in enumerate(pieces, 1):
        if isinstance(item, dict):
            yield number, item
        else:
            problems("wrong_type", f"{path}:{number}", "interaction is not an object")


def _each(yaml: ModuleType, loader: Any, content: str) -> Iterator[Any]:
    """Cut a broken cassette at its list items and decode each; ``None`` for the broken ones."""
    starts = list(_ITEM.finditer(content))
    indent = min((match[1] for match in starts), key=len, default="")
    cuts = [match.start() for match in starts if match[1] == indent]
    for begin, end in itertools.pairwise([*cuts, len(content)]):
        try:
            decoded = yaml.load(content[begin:end], Loader=loader)
        except (yaml.YAMLError, RecursionError, ValueError):
            yield None
            continue
        yield decoded[0] if isinstance(decoded, list) and decoded else None


def _loader(yaml: ModuleType) -> Any:
    """Make a safe loader that reads foreign tags as the plain values under them."""
    base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    loader = type("_CassetteLoader", (base,), {})

    def plain(this: Any, suffix: str, node: Any) -> Any:
        del suffix
        if isinstance(node, yaml.MappingNode):
            return this.construct_mapping(node, deep=True)
        if isinstance(node, yaml.SequenceNode):
            return this.construct_sequence(node, deep=True)
        return this.construct_scalar(node)

    yaml.add_multi_constructor("!", plain, Loader=loader)
    yaml.add_multi_constructor("tag:yaml.org,2002:python/", plain, Loader=loader)
    return loader


def _exchange(
    interaction: dict[str, Any], number: int, where: str, problems: ProblemSink
) -> Exchange | None:
    request, response = mapping(interaction.get("request")), mapping(interaction.get("response"))
    if not request or not response:
        problems("wrong_type", where, "interaction without request and response")
        return None
    if (text(request.get("method")) or "POST").upper() != "POST":
        return None
    answered = _date(interaction, response)
    return Exchange(
        request=_json(request, where, problems),
        response=_body(response, where, problems),
        url=text(request.get("uri")) or text(request.get("url")),
        request_headers=request.get("headers"),
        response_headers=response.get("headers"),
        status=_status(response),
        start_span=None if answered is None else Span(answered - _LONGEST, answered + 1.0),
        number=number,
    )


def _json(request: Mapping[str, Any], where: str, problems: ProblemSink) -> dict[str, Any] | None:
    body = _body(request, where, problems)
    if isinstance(body, bytes):
        return json_object(body)
    return body if isinstance(body, dict) else None


def _body(
    part: Mapping[str, Any], where: str, problems: ProblemSink
) -> bytes | dict[str, Any] | None:
    """Return a body as bytes, or decoded where the recorder kept it so."""
    parsed = part.get("parsed_body")
    if isinstance(parsed, dict):
        return parsed
    body: Any = part.get("body", part.get("content"))
    coded = False
    if isinstance(body, Mapping):
        if "base64_string" in body:
            body, coded = body["base64_string"], True
        elif "string" in body:
            body = body["string"]
        else:
            return dict(body)
    if isinstance(body, str):
        body = body.encode(errors="replace")
    if not isinstance(body, bytes) or not body:
        return None
    try:
        return _plain(body, coded=coded, encoding=header(part.get("headers"), "content-encoding"))
    except UnpackError as error:
        problems("unreadable_body", where, str(error))
        return None


def _plain(body: bytes, *, coded: bool, encoding: str | None) -> bytes:
    """Undo base64, which some recorders use without saying so, and compression."""
    if coded or body.startswith((b"H4sI", b"KLUv")):
        body = unbase64(body)
    return decompress(body, encoding)


def _status(response: Mapping[str, Any]) -> int | None:
    status = response.get("status", response.get("status_code"))
    code = mapping(status).get("code", status)
    return code if type(code) is int else None


def _date(interaction: Mapping[str, Any], response: Mapping[str, Any]) -> float | None:
    """Return when the answer came: its date header, else when the recorder noted it."""
    stated = header(response.get("headers"), "date")
    answered = None if stated is None else _mail_date(stated)
    return _recorded_at(interaction) if answered is None else answered


def _mail_date(stated: str) -> float | None:
    """Read a date as headers have it; without a zone it is UTC."""
    try:
        found = parsedate_to_datetime(stated)
        return moment(found.replace(tzinfo=found.tzinfo or UTC).timestamp())
    except (ValueError, TypeError, OverflowError):
        return None


def _recorded_at(interaction: Mapping[str, Any]) -> float | None:
    stated = text(interaction.get("recorded_at"))
    if stated is None:
        return None
    answered = _mail_date(stated)
    return parse_time(stated) if answered is None else answered


SOURCE = VcrSource()
