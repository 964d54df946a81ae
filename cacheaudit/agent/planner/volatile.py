"""System text that changes between requests: reported, and where allowed sent behind the markers.

Judged from two requests of one line of conversation, never from the form of one text alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from cacheaudit.agent.planner.memory import Cut, Line, SessionMemory
from cacheaudit.agent.planner.order import is_same
from cacheaudit.agent.planner.policy import PlanPolicy
from cacheaudit.diagnose.volatile import Variation, explain
from cacheaudit.providers.facts import Rules

_MOVABLE: Final = frozenset({"clock", "day", "id", "counter", "git", "workspace"})
_PLAIN: Final = frozenset({"type", "text"})
# What is moved stays short: a whole prompt is no volatile text.
_MOST_MOVED: Final = 4_000
# Texts beyond that are compared for equality and not looked into: it would hold up the call.
_LONGEST: Final = 200_000


def taken_out(
    body: Mapping[str, Any],
    line: Line,
    session: SessionMemory,
    policy: PlanPolicy,
    facts: Rules,
) -> tuple[Mapping[str, Any], str]:
    """Note what changed in the system prompt, and take out what may be moved.

    Args:
        body: The request; never changed.
        line: Its line of conversation; the request before is taken from it.
        session: Its session.
        policy: Whether text may be moved.
        facts: Rules of the model.

    Returns:
        The request without the text that moves, and that text; the request itself and no text
        where nothing moves.
    """
    shown = _texts(body.get("system"))
    before, line.shown = line.shown, shown
    for index, (old, new) in enumerate(zip(before, shown, strict=False)):
        if old == new or max(len(old), len(new)) > _LONGEST:
            continue
        path = f"system[{index}]"
        if session.notes.is_known(path) and _is_covered(line, index, new, policy):
            continue
        found = explain(old, new)
        if found is not None:
            session.notes.changed(path, found.kind)
            _learn(line, index, old, new, found)
    if len(before) != len(shown) and before:
        session.notes.changed("system", "number of blocks")
    if not policy.move_volatile or not line.cuts or not _may_move(body, facts):
        return body, ""
    return _without(body, shown, line, session)


def tools_changed(before: Sequence[bytes], after: Sequence[bytes], session: SessionMemory) -> None:
    """Note which tools differ from those of the request before, and how."""
    if len(before) != len(after):
        session.notes.changed("tools", "added or removed")
        return
    if sorted(before) == sorted(after):
        session.notes.changed("tools", "order")
        return
    for index, (old, new) in enumerate(zip(before, after, strict=True)):
        path = f"tools[{index}]"
        if old == new or max(len(old), len(new)) > _LONGEST or session.notes.is_known(path):
            continue
        if len(old) == len(new) and is_same(msgspec.json.decode(old), msgspec.json.decode(new)):
            session.notes.changed(path, "key order")
            continue
        found = explain(old.decode(), new.decode())
        session.notes.changed(path, "other" if found is None else found.kind)


def put_behind(body: Mapping[str, Any], text: str) -> Mapping[str, Any]:
    """Append text to the last user message, behind everything that is marked."""
    messages = list(body["messages"])
    last = dict(messages[-1])
    content = last["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
    last["content"] = [*blocks, {"type": "text", "text": text}]
    messages[-1] = last
    return {**body, "messages": messages}


def _is_covered(line: Line, index: int, text: str, policy: PlanPolicy) -> bool:
    """Whether nothing more has to be learned of a change: none moves, or what moves is known."""
    cut = line.cuts.get(index)
    if not policy.move_volatile:
        return True
    return cut is not None and text.startswith(cut.head) and text.endswith(cut.tail)


def _texts(system: Any) -> tuple[str, ...]:
    if isinstance(system, str):
        return (system,)
    blocks = system if isinstance(system, list) else []
    texts = (block.get("text") if isinstance(block, dict) else None for block in blocks)
    return tuple(text if isinstance(text, str) else "" for text in texts)


def _learn(line: Line, index: int, old: str, new: str, found: Variation) -> None:
    """Remember the steady text around a change, in whole lines."""
    if found.kind not in _MOVABLE or not found.only:
        return
    a, b = old.splitlines(keepends=True), new.splitlines(keepends=True)
    head = _shared(a, b)
    tail = _shared(a[head:][::-1], b[head:][::-1])
    cut = Cut("".join(b[:head]), "".join(b[len(b) - tail :]))
    known = line.cuts.get(index)
    if known is not None:
        # Both changes have to lie in the part that is taken out.
        shorter = (min(known.head, cut.head, key=len), min(known.tail, cut.tail, key=len))
        cut = Cut(*shorter)
    line.cuts[index] = cut


def _shared(a: list[str], b: list[str]) -> int:
    count = 0
    for mine, theirs in zip(a, b, strict=False):
        if mine != theirs:
            break
        count += 1
    return count


def _may_move(body: Mapping[str, Any], facts: Rules) -> bool:
    """Whether text may follow the last message without a harm to what is cached before it."""
    messages = body.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    if not isinstance(last, dict) or last.get("role") != "user" or last.get("clear_at") is not None:
        return False
    if not isinstance(last.get("content"), str | list) or not last["content"]:
        return False
    # Where plain user text ends a turn, it would drop the thinking of the turn that runs.
    return facts.text("thinking_retention") != "last_turn" and body.get("max_tokens") != 0


def _without(
    body: Mapping[str, Any], shown: tuple[str, ...], line: Line, session: SessionMemory
) -> tuple[Mapping[str, Any], str]:
    system = body.get("system")
    blocks: list[Any] = (
        [{"type": "text", "text": system}] if isinstance(system, str) else list(system or [])
    )
    gone: list[str] = []
    for index, cut in line.cuts.items():
        if index >= len(shown) or not _fits(blocks[index], shown[index], cut):
            continue
        text = shown[index]
        middle = text[len(cut.head) : len(text) - len(cut.tail)]
        rest = cut.head + cut.tail
        if not middle.strip() or len(middle) > _MOST_MOVED or not (rest.strip() or len(shown) > 1):
            continue
        gone.append(middle)
        session.notes.moved.add(f"system[{index}]")
        blocks[index] = {**blocks[index], "text": rest} if rest.strip() else None
    if not gone:
        return body, ""
    left = [block for block in blocks if block is not None]
    made = {name: value for name, value in body.items() if name != "system"}
    if left:
        made["system"] = left
    return made, "".join(gone)


def _fits(block: Any, text: str, cut: Cut) -> bool:
    return (
        isinstance(block, dict)
        and block.keys() <= _PLAIN
        and len(text) >= len(cut.head) + len(cut.tail)
        and text.startswith(cut.head)
        and text.endswith(cut.tail)
    )
