"""OpenAI's caches: they keep the end of a prompt by themselves, and need little help.

From GPT-5.6 on only breakpoints are kept, and one stands at the end of the latest message unasked;
what other conversations share, the instructions, needs one of its own. It costs nothing: those
tokens are written with the rest. A key there parts the cache (:mod:`~.keys`). Earlier models keep
the longest prefix; a key keeps requests with one beginning on one server.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from cacheaudit.agent.planner.apply import Spot, marked
from cacheaudit.agent.planner.keys import keyed
from cacheaudit.model.tokens import BYTES_PER_TOKEN
from cacheaudit.providers.shape import is_responses

if TYPE_CHECKING:
    from cacheaudit.agent.plan import Outgoing
    from cacheaudit.agent.planner.memory import Line, SessionMemory
    from cacheaudit.agent.planner.policy import PlanPolicy
    from cacheaudit.agent.planner.target import Target

_MARKER: Final = {"mode": "explicit"}
_FIELD: Final = "prompt_cache_breakpoint"
_LEADING: Final = ("system", "developer")
_TEXTS: Final = ("text", "input_text")
# A key should see no more requests than that in a minute.
_A_MINUTE: Final = 15
_KEYS: Final = 512
_encode: Final = msgspec.json.encode


class Routes:
    """How busy each routing key is."""

    def __init__(self) -> None:
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def choose(self, stem: str, at: float) -> str:
        """Return the first key of a family that is not busy."""
        number = 0
        while True:
            key = stem if not number else f"{stem}-{number}"
            times = self._times.get(key)
            if times is None or len(times) < _A_MINUTE or at - times[0] > 60:
                return key
            number += 1

    def used(self, key: str, at: float) -> None:
        """Note a request."""
        times = self._times.setdefault(key, deque(maxlen=_A_MINUTE))
        times.append(at)
        self._times.move_to_end(key)
        while len(self._times) > _KEYS:
            self._times.popitem(last=False)


def plan(
    request: Outgoing,
    body: Mapping[str, Any],
    session: SessionMemory,
    line: Line,
    target: Target,
    policy: PlanPolicy,
    routes: Routes,
) -> Mapping[str, Any]:
    """Return the request with breakpoints, key or question; itself where nothing is missing."""
    facts = target.facts
    if facts is None:
        return body
    least = facts.integer("minimum_tokens", 1024)
    front = _front(body)
    line.logical = request.logical
    if facts.machine == "openai_v1":
        return _routed(request, body, session, policy, routes, front, least)
    made, reason = _with_breakpoints(body, front, least)
    session.notes.marked += made is not body
    session.notes.roles["system"] += made is not body
    made = keyed(made, session, target, policy)
    if made is body and reason is not None:
        session.notes.leave(reason)
    return _compared(made, line, target, policy)


def continued(
    body: Mapping[str, Any], session: SessionMemory, target: Target | None, policy: PlanPolicy
) -> Mapping[str, Any]:
    """Return a request that goes on with a stored response, with the key that this one had."""
    facts = None if target is None else target.facts
    if target is None or facts is None or facts.machine != "openai_v2" or not is_responses(body):
        return body
    return keyed(body, session, target, policy)


def _routed(
    request: Outgoing,
    body: Mapping[str, Any],
    session: SessionMemory,
    policy: PlanPolicy,
    routes: Routes,
    front: bytes,
    least: int,
) -> Mapping[str, Any]:
    if not policy.routing or body.get("prompt_cache_key") is not None:
        session.notes.leave("the provider caches by itself: there is nothing to mark")
        return body
    if len(_encode(body)) / BYTES_PER_TOKEN < least:
        session.notes.leave("shorter than the model caches")
        return body
    stem = "front-" + hashlib.blake2b(front, digest_size=8).hexdigest()
    key = session.route.get(stem)
    if key is None:
        key = session.route[stem] = routes.choose(stem, request.at)
    routes.used(key, request.at)
    session.notes.hints["routing key set"] += 1
    return {**body, "prompt_cache_key": key}


def _with_breakpoints(
    body: Mapping[str, Any], front: bytes, least: int
) -> tuple[Mapping[str, Any], str | None]:
    """Return a request with its breakpoint, or itself and why there is none."""
    if b'"prompt_cache_breakpoint"' in _encode(body) or _options(body).get("mode") == "explicit":
        return body, "the caller placed markers"
    field = "input" if is_responses(body) else "messages"
    text = "input_text" if field == "input" else "text"
    turns = body.get(field)
    end = _leading_end(turns)
    if end is None or len(front) / BYTES_PER_TOKEN < least:
        return body, "no instructions that a breakpoint could keep apart"
    spot = Spot("messages", end[0], end[1], _MARKER, field=_FIELD, text=text)
    return marked(body, [spot], turns=field), None


def _compared(
    body: Mapping[str, Any], line: Line, target: Target, policy: PlanPolicy
) -> Mapping[str, Any]:
    """Ask why the prefix of the response before was not reused, where that is answered."""
    options = _options(body)
    is_answered = policy.diagnostics and target.surface == "openai" and is_responses(body)
    if not is_answered or line.answer is None or "comparison_response_id" in options:
        return body
    return {**body, "prompt_cache_options": {**options, "comparison_response_id": line.answer}}


def _options(body: Mapping[str, Any]) -> Mapping[str, Any]:
    options = body.get("prompt_cache_options")
    return options if isinstance(options, Mapping) else {}


def _front(body: Mapping[str, Any]) -> bytes:
    """Write down what conversations share: tools and instructions."""
    turns = body.get("input") if is_responses(body) else body.get("messages")
    end = _leading_end(turns)
    leading = turns[: end[0] + 1] if end is not None and isinstance(turns, list) else []
    return _encode([body.get("tools"), body.get("instructions"), leading])


def _leading_end(turns: Any) -> tuple[int, int] | None:
    """Return message and part where the instructions that open a conversation end."""
    found = None
    for index, turn in enumerate(turns if isinstance(turns, list) else ()):
        if not isinstance(turn, dict) or turn.get("role") not in _LEADING:
            break
        content = turn.get("content")
        if isinstance(content, str) and content.strip():
            found = (index, 0)
        elif isinstance(content, list) and content and _is_text(content[-1]):
            found = (index, len(content) - 1)
    return found


def _is_text(part: Any) -> bool:
    return (
        isinstance(part, dict)
        and part.get("type") in _TEXTS
        and isinstance(part.get("text"), str)
        and bool(part["text"].strip())
    )
