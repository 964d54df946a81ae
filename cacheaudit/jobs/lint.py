"""What a request body would be refused for, or would never hit, before it is sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from cacheaudit.errors import CacheAuditError, PromptError, UsageError
from cacheaudit.jobs.linting.catalogue import LEVELS, Problem
from cacheaudit.jobs.linting.implicit import implicit
from cacheaudit.jobs.linting.reach import prewarm_marks, reach, volatile
from cacheaudit.jobs.linting.refused import count, order, prewarm, refused
from cacheaudit.jobs.linting.subject import Subject
from cacheaudit.model.prompt import Prompt
from cacheaudit.model.tokens import with_recorded_tokens
from cacheaudit.providers.facts import RULES_VERSION
from cacheaudit.providers.registry import expand

LINT_SCHEMA: Final = "cacheaudit.lint/1"
STDIN: Final = "-"
_FIELDS: Final = ("messages", "input", "contents", "instructions")
_HOLDERS: Final = ("request", "body", "params")
_MARKED_MACHINES: Final = ("claude", "qwen", "minimax")


class LintResult(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was found.

    Attributes:
        problems: In order of the files, of the requests in them, and of weight.
        requests: Requests that were checked.
        rules_version: Date of the newest provider rule.
        schema: Name of this shape.
    """

    problems: list[Problem]
    requests: int
    rules_version: str
    schema: str = LINT_SCHEMA

    @property
    def has_refused(self) -> bool:
        """Whether a request would be answered with an error."""
        return any(item.level == "refused" for item in self.problems)


class _Found(msgspec.Struct, frozen=True):
    """A body and what stands around it."""

    where: str
    body: Mapping[str, Any]
    prefix: str = ""
    around: Mapping[str, Any] = {}
    is_batch: bool = False


def lint(
    specs: Sequence[str],
    *,
    at: float | None = None,
    surface: str | None = None,
    stdin: bytes = b"",
) -> LintResult:
    """Check request bodies.

    Args:
        specs: Files that hold a body, a list of bodies, a batch, or one body or recorded call a
            line; ``file#n`` and ``file#id`` name one of them, ``-`` is standard input.
        at: Moment whose provider rules apply; ``None``: the newest.
        surface: Surface that the requests go to, such as ``bedrock``.
        stdin: What standard input holds.

    Raises:
        UsageError: A file cannot be read, or holds no request.
        PromptError: A body has the shape of no supported API.
    """
    problems: list[Problem] = []
    requests = 0
    several = len(specs) > 1
    for spec in specs:
        bodies = list(_bodies(spec, stdin))
        named = several or len(bodies) > 1
        for found in bodies:
            requests += 1
            checked = _checked(found, at, surface)
            problems.extend(_placed(item, found, named) for item in checked)
    return LintResult(problems=problems, requests=requests, rules_version=RULES_VERSION)


def lint_body(
    body: Mapping[str, Any],
    *,
    provider: str | None = None,
    surface: str | None = None,
    at: float | None = None,
    is_batch: bool = False,
    prompt: Prompt | None = None,
) -> list[Problem]:
    """Check one body, heaviest problems first.

    Args:
        body: The request as it would be sent; never changed.
        provider: Provider, where known; else the model and the body's shape tell.
        surface: Surface that it goes to.
        at: Moment whose provider rules apply; ``None``: the newest.
        is_batch: It is an entry of a batch.
        prompt: The body expanded, for instance with recorded sizes.

    Raises:
        PromptError: The body has the shape of no supported API.
    """
    subject = Subject(
        body, provider=provider, surface=surface, at=at, is_batch=is_batch, prompt=prompt
    )
    found = {(item.rule, item.path): item for item in _run(subject)}
    return sorted(found.values(), key=lambda item: LEVELS.index(item.level))


def _run(subject: Subject) -> Iterator[Problem]:
    machine = subject.machine
    if machine == "claude" and subject.wire in ("messages", "converse", "chat"):
        if subject.wire == "chat":
            yield from _chat_markers(subject)
        else:
            yield from refused(subject)
            yield from prewarm_marks(subject)
        yield from reach(subject)
    elif machine in _MARKED_MACHINES and subject.marked:
        yield from reach(subject)
    elif machine is None and subject.wire == "messages":
        yield from prewarm(subject)
        yield from volatile(subject, subject.marked)
    elif machine is not None:
        yield from implicit(subject)


def _chat_markers(subject: Subject) -> Iterator[Problem]:
    """A gateway passes markers on: the number and order of them is all that can be told."""
    yield from count(subject)
    yield from order(subject)


def _placed(item: Problem, found: _Found, named: bool) -> Problem:
    prefix = found.prefix
    return msgspec.structs.replace(
        item,
        path=prefix + item.path,
        paths=tuple(prefix + path for path in item.paths),
        file=found.where if named else None,
    )


def _checked(found: _Found, at: float | None, surface: str | None) -> list[Problem]:
    around = found.around
    provider = around.get("provider")
    known = around.get("surface")
    try:
        return lint_body(
            found.body,
            provider=provider if isinstance(provider, str) else None,
            surface=surface or (known if isinstance(known, str) else None),
            at=at,
            is_batch=found.is_batch,
            prompt=_prompt(found, provider if isinstance(provider, str) else None),
        )
    except CacheAuditError as error:
        raise type(error)(f"{found.where}: {error.message}", error.hint) from error
    except RecursionError as error:
        raise PromptError(f"{found.where} is nested deeper than can be read.") from error


def _prompt(found: _Found, provider: str | None) -> Prompt | None:
    """Expand with the recorded sizes, where there are any that fit."""
    counts = found.around.get("content_tokens")
    if not isinstance(counts, list) or not all(type(n) is int and n >= 0 for n in counts):
        return None
    prompt = expand(found.body, provider=provider)
    return with_recorded_tokens(prompt, counts) if len(counts) == len(prompt.blocks) else prompt


def _bodies(spec: str, stdin: bytes) -> Iterator[_Found]:
    path, fragment = _split(spec)
    data = stdin if path == STDIN else _read(path)
    shown = "standard input" if path == STDIN else path
    chosen = [
        found
        for number, value in _values(data, shown)
        for found in _unwrapped(value, shown, number)
        if fragment is None or _is_named(found, fragment, number)
    ]
    if not chosen:
        named = f" at {fragment!r}" if fragment is not None else ""
        raise UsageError(
            f"{shown} holds no request{named}.",
            "Expected is JSON with messages, input or contents, or one such object a line.",
        )
    yield from chosen


def _split(spec: str) -> tuple[str, str | None]:
    if spec == STDIN or Path(spec).exists():
        return spec, None
    name, mark, fragment = spec.rpartition("#")
    if mark and fragment and Path(name).exists():
        return name, fragment
    raise UsageError(f"There is no {spec!r}.", "Name a JSON file that holds a request body.")


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"Cannot read {path!r}: {reason}.", "Name a JSON file.") from error


def _values(data: bytes, where: str) -> list[tuple[int, Any]]:
    """Decode one JSON value, the entries of a list, or one value a line; count from 1."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        lines = _lines(data, where, str(error))
    except RecursionError as error:
        raise UsageError(f"{where} is nested deeper than can be read.") from error
    else:
        lines = list(enumerate(value, 1)) if isinstance(value, list) else [(0, value)]
    return lines


def _lines(data: bytes, where: str, whole: str) -> list[tuple[int, Any]]:
    found: list[tuple[int, Any]] = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            found.append((number, msgspec.json.decode(line)))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            if not found:
                raise UsageError(f"{where} is no JSON: {whole}.", "Send a file of JSON.") from error
            raise UsageError(
                f"{where}, line {number}, is no JSON: {error}.", "Repair or remove the line."
            ) from error
    return found


def _unwrapped(value: Any, where: str, number: int) -> Iterator[_Found]:
    if not isinstance(value, Mapping):
        return
    place = f"{where}#{number}" if number else where
    entries = value.get("requests")
    if isinstance(entries, list):
        for index, entry in enumerate(entries):
            inner = entry.get("params") if isinstance(entry, Mapping) else None
            if isinstance(inner, Mapping):
                prefix = f"requests[{index}].params."
                yield _Found(place, inner, prefix, entry, is_batch=True)
        return
    for holder in _HOLDERS:
        inner = value.get(holder)
        if isinstance(inner, Mapping) and any(name in inner for name in _FIELDS):
            yield _Found(place, inner, "", value, is_batch="custom_id" in value)
            return
    if any(name in value for name in _FIELDS):
        yield _Found(place, value)


def _is_named(found: _Found, fragment: str, number: int) -> bool:
    ident = found.around.get("id") or found.around.get("custom_id")
    return ident == fragment or (fragment.isdigit() and int(fragment) == (number or 1))
