"""Caches that need no marker: OpenAI's two generations, and the longest-prefix kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cacheaudit.jobs.linting.catalogue import Problem, problem
from cacheaudit.jobs.linting.reach import below_minimum, volatile
from cacheaudit.jobs.linting.sizes import bounds
from cacheaudit.jobs.linting.subject import Subject

_CHAT_LONGEST: Final = "30m"


def implicit(subject: Subject) -> Iterator[Problem]:
    """Yield what such a cache cannot use."""
    if subject.machine == "openai_v2":
        yield from _breakpoints(subject)
        yield from _lifetime(subject)
    elif subject.machine == "openai_v1":
        yield from _older(subject)
    if subject.blocks and not subject.is_partial:
        # Any part of the prompt can be read, from nothing up to all of it.
        yield from volatile(subject, [-1, len(subject.blocks) - 1])


def _options(subject: Subject) -> Mapping[str, Any]:
    options = subject.body.get("prompt_cache_options")
    return options if isinstance(options, Mapping) else {}


def _breakpoints(subject: Subject) -> Iterator[Problem]:
    paths = tuple(subject.blocks[index].path for index in subject.marked)
    is_explicit = _options(subject).get("mode") == "explicit"
    most = subject.integer("most_writes")
    if is_explicit and not paths and not subject.is_partial:
        yield problem(
            "explicit-mode-without-breakpoint",
            "prompt_cache_options.mode",
            "In explicit mode only breakpoints are written, and there is none.",
        )
    room = None if most is None else most if is_explicit else most - 1
    if room is not None and len(paths) > room:
        rest = "" if is_explicit else " besides the one at the end of the prompt"
        message = (
            f"{len(paths)} breakpoints; a request writes the latest {room}{rest}:"
            f" {', '.join(paths)}. Earlier ones serve to read only."
        )
        yield problem("more-breakpoints-than-written", paths[0], message, paths)
    if paths and not subject.is_partial:
        yield from below_minimum(subject, subject.marked[-1])


def _lifetime(subject: Subject) -> Iterator[Problem]:
    ttl = _options(subject).get("ttl")
    path = "prompt_cache_options.ttl"
    offered = subject.lifetimes
    if ttl is None:
        return
    if ttl not in offered:
        message = f"The lifetime {ttl!r} is not offered; choose {' or '.join(offered)}."
        yield problem("marker-lifetime-unknown", path, message)
    elif subject.wire == "chat" and ttl != _CHAT_LONGEST:
        message = f"Chat Completions offers {_CHAT_LONGEST} only; {ttl} needs the Responses API."
        yield problem("marker-lifetime-unknown", path, message)


def _older(subject: Subject) -> Iterator[Problem]:
    paths = tuple(subject.blocks[index].path for index in subject.marked)
    if paths:
        message = (
            f"{subject.model} caches by itself and knows no breakpoints; these do nothing:"
            f" {', '.join(paths)}."
        )
        yield problem("breakpoints-not-supported", paths[0], message, paths)
    minimum = subject.minimum
    size = bounds(subject.blocks)
    if subject.body.get("prompt_cache_key") or minimum is None or size.low < minimum:
        return
    message = (
        f"About {size.middle:,} tokens (estimated) and no prompt_cache_key: requests with one"
        " beginning may be sent to different servers. Give requests that share a beginning the"
        " same key, up to about 15 requests a minute each."
    )
    yield problem("no-cache-key", "prompt_cache_key", message)
