"""What a Messages or Converse API answers with an error before anything is cached."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cacheaudit.jobs.linting.catalogue import Problem, problem
from cacheaudit.jobs.linting.markers import Place, is_blank_text
from cacheaudit.jobs.linting.subject import Subject

_THINKING: Final = ("thinking", "redacted_thinking")
_FORCED: Final = ("any", "tool")
_FORCED_TOOL: Final = (
    "a forced tool; that tool_choice stays out of the cache key is disputed, the provider"
    " documents that a change of it loses the cached messages"
)


def refused(subject: Subject) -> Iterator[Problem]:
    """Yield what a service with Claude's rules refuses."""
    yield from count(subject)
    for place in subject.places:
        yield from _shape(subject, place)
        yield from _spot(place)
    yield from order(subject)
    yield from _automatic(subject)
    if subject.wire == "messages":
        yield from prewarm(subject)


def count(subject: Subject) -> Iterator[Problem]:
    """Yield more markers than are allowed, with every place."""
    most = subject.integer("most_markers")
    places = [place for place in subject.places if place.spot != "loose"]
    if most is None or len(places) <= most:
        return
    paths = tuple(place.path for place in places)
    automatic = subject.automatic
    if automatic is not None and len(places) == most + 1:
        message = (
            f"The automatic marker takes a slot, and {most} blocks carry markers of their own"
            f" already: {', '.join(paths)}. Remove one."
        )
        yield problem("too-many-markers", automatic.path, message, paths)
        return
    message = (
        f"{len(places)} markers, {most} are allowed"
        f"{', the automatic one included' if automatic is not None else ''}: {', '.join(paths)}."
        " Markers that a proxy adds count too."
    )
    yield problem("too-many-markers", paths[most], message, paths)


def _shape(subject: Subject, place: Place) -> Iterator[Problem]:
    value = place.value
    wanted = "default" if subject.wire == "converse" else "ephemeral"
    if not isinstance(value, Mapping) or value.get("type") != wanted:
        kind = value.get("type") if isinstance(value, Mapping) else value
        shown = repr(kind)[:40]
        message = f"The marker's type is {shown}; the only one that exists is {wanted!r}."
        yield problem("marker-type-unknown", place.path, message)
    offered = subject.lifetimes
    if place.ttl is not None and offered and place.ttl not in offered:
        message = f"The lifetime {place.ttl!r} is not offered; choose {' or '.join(offered)}."
        yield problem("marker-lifetime-unknown", f"{place.path}.ttl", message)


def _spot(place: Place) -> Iterator[Problem]:
    owner = place.owner
    kind = owner.get("type")
    if place.spot == "inner":
        yield problem(
            "marker-inside-tool-result",
            place.path,
            "Inside a tool result only the last block may carry a marker; put it on the"
            " tool_result itself.",
        )
    elif place.spot == "citation":
        yield problem(
            "marker-on-citation",
            place.path,
            "A citation cannot be marked; mark the content block that holds it.",
        )
    elif place.spot == "tool" and owner.get("defer_loading") is True:
        yield problem(
            "marker-on-deferred-tool",
            place.path,
            "A tool with defer_loading is not in the prefix; mark the last tool that is.",
        )
    if kind in _THINKING:
        yield problem(
            "marker-on-thinking",
            place.path,
            "A thinking block cannot be marked; mark the block behind it: thinking is cached with"
            " what follows.",
        )
    if place.spot != "automatic" and is_blank_text(owner):
        yield problem(
            "marker-on-empty-text", place.path, "A text block without text cannot be marked."
        )
    if place.is_cleared:
        yield problem(
            "marker-on-cleared-message",
            place.path,
            "A message with clear_at is taken out again; mark a block before it.",
        )


def order(subject: Subject) -> Iterator[Problem]:
    """In render order lifetimes may only become shorter."""
    shortest: tuple[float, Place] | None = None
    for place in subject.places:
        seconds = subject.lifetime(place.ttl)
        if seconds is None or (place.spot == "automatic" and _own_last(subject) is not None):
            continue
        if shortest is not None and seconds > shortest[0]:
            message = (
                f"This marker lives longer than the one before it on {shortest[1].path};"
                " in the order tools, system, messages lifetimes may only become shorter."
            )
            paths = (shortest[1].path, place.path)
            yield problem("marker-lifetimes-out-of-order", place.path, message, paths)
        if shortest is None or seconds < shortest[0]:
            shortest = (seconds, place)


def _automatic(subject: Subject) -> Iterator[Problem]:
    automatic = subject.automatic
    if automatic is None or subject.rules is None:
        return
    if not subject.rules.flag("automatic_marker", default=True):
        message = (
            f"{subject.model} on {subject.rules.surface or 'this surface'} takes no marker on the"
            " request itself; mark a content block."
        )
        yield problem("automatic-marker-not-offered", automatic.path, message)
    own = _own_last(subject)
    if own is not None and subject.lifetime(own.ttl) != subject.lifetime(automatic.ttl):
        message = (
            f"The last block carries a marker of its own ({own.path}) with another lifetime than"
            " the automatic one; give both the same, or drop one."
        )
        paths = (own.path, automatic.path)
        yield problem("automatic-marker-conflict", automatic.path, message, paths)


def _own_last(subject: Subject) -> Place | None:
    """Return the marker that the last block carries itself."""
    if subject.automatic_index is None:
        return None
    last = subject.blocks[subject.automatic_index].path
    places = [p for p in subject.places if p.block == last and p.spot != "automatic"]
    return places[-1] if places else None


def prewarm(subject: Subject) -> Iterator[Problem]:
    """Yield what ``max_tokens: 0`` cannot be sent with."""
    body = subject.body
    if body.get("max_tokens") != 0 or isinstance(body.get("max_tokens"), bool):
        return
    for path, is_set, what in (
        ("stream", body.get("stream") is True, "a streamed response"),
        ("thinking.type", _field(body, "thinking", "type") == "enabled", "thinking switched on"),
        (
            "output_config.format",
            _field(body, "output_config", "format") is not None,
            "an output format",
        ),
        (
            "tool_choice.type",
            _field(body, "tool_choice", "type") in _FORCED,
            _FORCED_TOOL,
        ),
        ("max_tokens", subject.is_batch, "a batch"),
    ):
        if is_set:
            message = f"max_tokens 0 is refused together with {what}."
            yield problem("prewarm-conflict", path, message)


def _field(body: Mapping[str, Any], outer: str, inner: str) -> Any:
    value = body.get(outer)
    return value.get(inner) if isinstance(value, Mapping) else None
