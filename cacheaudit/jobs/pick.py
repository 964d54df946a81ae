"""Finds one request that a user names: ``file``, ``file#id`` or ``file#n``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISDIR, S_ISFIFO, S_ISREG
from typing import Any

import msgspec

from cacheaudit.errors import CacheAuditError, UsageError
from cacheaudit.ingest._fields import decode
from cacheaudit.ingest.detect import recognise
from cacheaudit.ingest.lines import parse, raw_lines
from cacheaudit.ingest.names import shown
from cacheaudit.ingest.problems import Problems
from cacheaudit.model.call import Call
from cacheaudit.model.prompt import Prompt
from cacheaudit.model.tokens import calibrated
from cacheaudit.providers.registry import expand
from cacheaudit.providers.threads import ThreadStore

_LARGEST_DOCUMENT = 64 << 20
_BODY_FIELDS = ("messages", "input", "contents")
_HOLDERS = ("body", "request")


class Picked(msgspec.Struct, frozen=True):
    """A request and what is known of its call.

    Attributes:
        where: As the user named it.
        prompt: Its content blocks.
        provider: Who served it, where that is recorded.
        model: Model, as recorded or as sent.
        at: When it was sent.
        total_input: Its input tokens, where they are recorded.
        surface: Surface, as recorded.
    """

    where: str
    prompt: Prompt
    provider: str | None = None
    model: str | None = None
    at: float | None = None
    total_input: int | None = None
    surface: str | None = None


def pick(spec: str) -> Picked:
    """Find the request that ``spec`` names.

    Raises:
        UsageError: There is no such file, no such call, or it holds no request.
        PromptError: The request has the shape of no supported API.
    """
    path, fragment = _split(spec)
    try:
        return _from_document(path, fragment, spec) or _from_records(path, fragment, spec)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"Cannot read {str(path)!r}: {reason}.", "Check the path.") from error


def _split(spec: str) -> tuple[Path, str | None]:
    name, mark, fragment = spec.rpartition("#")
    for path, place in ((spec, None), (name, fragment)):
        if os.path.exists(path) and place != "":  # noqa: PTH110 - never raises
            _require_file(path)
            return Path(path), place
    raise UsageError(
        f"There is no {shown(name if mark else spec)!r}.",
        "Name a JSON file with a request body, or FILE#ID or FILE#LINE of a recording.",
    )


def _require_file(name: str) -> None:
    """Refuse what has no end or no content; a pipe, as a shell makes one, can be read."""
    mode = os.stat(name).st_mode  # noqa: PTH116
    if S_ISREG(mode) or S_ISFIFO(mode):
        return
    what = "a folder" if S_ISDIR(mode) else "a socket or device"
    raise UsageError(f"{shown(name)!r} is {what}, not a file.", "Name a file.")


def _from_document(path: Path, fragment: str | None, spec: str) -> Picked | None:
    """Read a file that is one JSON value: a body, something around it, or a list of them."""
    if path.stat().st_size > _LARGEST_DOCUMENT:
        return None
    value = decode(path.read_bytes())
    if isinstance(value, list) and fragment is not None and fragment.isdigit():
        place = int(fragment)
        if not 1 <= place <= len(value):
            raise UsageError(f"{path} has {len(value)} entries, no number {place}.", None)
        value = value[place - 1]
    elif fragment not in (None, "1") and not _has_id(value, fragment):
        return None
    if _is_recorded_call(value):
        return None
    body = _body(value)
    return None if body is None else _picked(body, spec)


def _from_records(path: Path, fragment: str | None, spec: str) -> Picked:
    """Read a file of many records: through its source where it has one, else line by line."""
    wanted = fragment
    if wanted is None:
        wanted = _only_line(path)
    call = _recorded(path, wanted)
    if call is not None and call.prompt is not None:
        usage = call.usage
        return Picked(
            where=spec,
            prompt=call.prompt,
            provider=call.provider,
            model=call.model or call.prompt.model,
            at=None if call.relative_time else call.at,
            total_input=usage.total_input if usage is not None else None,
            surface=call.surface,
        )
    body = _raw_body(path, wanted)
    if body is not None:
        return _picked(body, spec)
    if call is not None:
        raise UsageError(
            f"{spec} was recorded without its request.",
            "Only recordings that hold request bodies can be compared.",
        )
    kind = "line" if wanted.isdigit() else "call"
    raise UsageError(
        f"{path} has no request at {kind} {wanted!r}.", "Name another one as FILE#LINE or FILE#ID."
    )


def _only_line(path: Path) -> str:
    count = sum(1 for _ in zip(raw_lines(path, Problems()), range(2), strict=False))
    if count > 1:
        raise UsageError(
            f"{path} holds several records.",
            f"Say which one: {path}#2 for line 2, or {path}#ID for a call's id.",
        )
    return "1"


def _recorded(path: Path, wanted: str) -> Call | None:
    """Look the call up through the source that reads this format."""
    source = recognise(path)
    if source is None or not source.capabilities.bodies:
        return None
    line = int(wanted) if wanted.isdigit() else None
    for number, call in enumerate(source.read(path, Problems()), 1):
        place = call.origin.line if call.origin is not None and call.origin.line else number
        if call.id == wanted or place == line:
            return call
    return None


def _raw_body(path: Path, wanted: str) -> dict[str, Any] | None:
    problems = Problems()
    for number, value in _candidates(path, wanted, problems):
        if (wanted.isdigit() and number == int(wanted)) or _has_id(value, wanted):
            return _body(value)
    return None


def _candidates(path: Path, wanted: str, problems: Problems) -> Iterator[tuple[int, Any]]:
    """Decode only lines that can be the one."""
    needle = wanted.encode()
    for number, _, line in raw_lines(path, problems):
        if needle in line or str(number) == wanted:
            yield number, parse(line, f"{path}:{number}", problems)


def _has_id(value: Any, wanted: str | None) -> bool:
    return isinstance(value, dict) and value.get("id") == wanted


def _is_recorded_call(value: Any) -> bool:
    return isinstance(value, dict) and str(value.get("schema", "")).startswith("cacheaudit.call/")


def _body(value: Any) -> dict[str, Any] | None:
    if not isinstance(value, dict):
        return None
    for holder in _HOLDERS:
        inner = value.get(holder)
        if isinstance(inner, dict) and any(name in inner for name in _BODY_FIELDS):
            return inner
    return value if any(name in value for name in _BODY_FIELDS) else None


def _picked(body: dict[str, Any], spec: str) -> Picked:
    whole = ThreadStore().rebuild(body)
    if whole.body is None:
        # What a body of its own holds is the end of a prompt whose beginning is elsewhere.
        raise UsageError(
            f"{spec} holds only what its thread adds. {whole.reason}",
            "Name the call in a recording that holds the thread from its beginning.",
        )
    try:
        prompt = expand(body)
    except CacheAuditError as error:
        raise type(error)(f"{spec}: {error.message}", error.hint) from error
    return Picked(where=spec, prompt=prompt, provider=prompt.provider, model=prompt.model)


def sized(picked: Picked) -> Prompt:
    """Give unknown sizes an estimate that adds up to the recorded total, where there is one."""
    if picked.total_input is None:
        return picked.prompt
    return calibrated(picked.prompt, picked.total_input)
