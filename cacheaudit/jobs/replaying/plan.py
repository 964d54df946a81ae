"""What is sent, in which order and when: recorded calls as requests to an engine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from cacheaudit.model.call import Call
from cacheaudit.model.prompt import ContentBlock, Prompt
from cacheaudit.simulate.build import Builder, Built, Refusal, in_order
from cacheaudit.simulate.request import is_sketch
from cacheaudit.simulate.sketch import sketched
from cacheaudit.simulate.switches import Switches

RuleSet = Literal["anthropic", "implicit", "deepseek"]
_RULES: Final[Mapping[str, RuleSet]] = {
    "claude": "anthropic",
    "qwen": "anthropic",
    "minimax": "anthropic",
    "deepseek": "deepseek",
}
_THINKING: Final = frozenset({"thinking", "redacted_thinking"})
# Rules are looked up under this name where none are known of the recorded one.
_STAND_IN: Final = ("anthropic", "claude-opus-5", "claude_api")
UNKNOWN_MODEL: Final = "unknown"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One request to send.

    Attributes:
        call: As recorded, or as an edit made it.
        prompt: What is sent.
        blocks: Its content blocks in render order.
        sums: Recorded tokens up to each of them.
        at: Request start, seconds on the recorded clock.
        readable_at: When what it writes can be read.
        rules: Cache rules of its provider.
        machine: The simulator's machine of it; ``None`` where no rules are known.
        model: Name to ask for.
        scope: Cache that it uses: requests of different scopes share nothing.
        sized: Where sizes come from: ``recorded``, ``calibrated``, ``estimated``.
        is_sketch: Drawn from usage alone: what it shows of the cache is what was reported.
    """

    call: Call
    prompt: Prompt
    blocks: tuple[ContentBlock, ...]
    sums: tuple[int, ...]
    at: float
    readable_at: float
    rules: RuleSet
    machine: str | None
    model: str
    scope: str
    sized: str
    is_sketch: bool

    @property
    def sizes(self) -> tuple[int, ...]:
        """Recorded tokens of each content block."""
        return tuple(b - a for a, b in zip((0, *self.sums), self.sums, strict=False))


def steps(
    calls: Sequence[Call], switches: Switches, *, timeless: bool = False
) -> Iterator[Step | Refusal]:
    """Plan calls in order of their start.

    Args:
        calls: In any order; those without a request are sketched from their usage.
        switches: Disputed rules, as far as they change what belongs to the key.
        timeless: Whether calls without a start are sent too, in the order of the record.
    """
    ordered = in_order(calls)
    if timeless:
        ordered = list(_timed(ordered))
    builder = Builder(switches)
    for call in sketched(ordered):
        yield _step(builder, call)


def _timed(calls: Sequence[Call]) -> Iterator[Call]:
    last = 0.0
    for call in calls:
        if call.start_bounds is None:
            call = msgspec.structs.replace(call, started_at=last)
        last = call.at or last
        yield call


def _step(builder: Builder, call: Call) -> Step | Refusal:
    prompt = call.prompt
    if prompt is None:
        return Refusal(call.id, "no_body", "neither its request nor its cache use is recorded")
    built = builder.build(call)
    machine: str | None = None
    if isinstance(built, Refusal) and built.reason == "unknown_rules":
        provider, model, surface = _STAND_IN
        stand_in = msgspec.structs.replace(call, provider=provider, model=model, surface=surface)
        built = builder.build(stand_in)
    elif isinstance(built, Built):
        machine = built.rules.machine
    if isinstance(built, Refusal):
        return built
    blocks = _rendered(prompt, len(built.request.digests))
    if blocks is None or not blocks:
        return Refusal(call.id, "empty", "the request has no content")
    return Step(
        call=call,
        prompt=prompt,
        blocks=blocks,
        sums=tuple(built.request.sizes[: len(blocks)]),
        at=built.request.at,
        readable_at=built.request.readable_at,
        rules=_rule_set(machine, prompt),
        machine=machine,
        model=_model(call, built if machine is not None else None),
        scope=_scope(call, built.request.scope),
        sized=built.sized,
        is_sketch=is_sketch(prompt),
    )


def _rule_set(machine: str | None, prompt: Prompt) -> RuleSet:
    if machine is None:
        is_marked = bool(prompt.marked) or prompt.automatic_marker is not None
        return "anthropic" if is_marked else "implicit"
    return _RULES.get(machine, "implicit")


def _model(call: Call, built: Built | None) -> str:
    known = "" if built is None else built.request.model
    return known or call.model or UNKNOWN_MODEL


def _scope(call: Call, scope: str) -> str:
    """Name the cache; what a name may give away stays here."""
    text = f"{scope}/{call.provider}/{call.model}" if call.provider is None else scope
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _rendered(prompt: Prompt, count: int) -> tuple[ContentBlock, ...] | None:
    """Leave out the thinking of earlier turns where the provider does; ``None``: cannot tell."""
    blocks = prompt.blocks
    if len(blocks) == count:
        return blocks
    last = -1
    for block in reversed(blocks):
        if block.role == "user" and block.kind != "tool_result":
            last = block.message
            break
    kept = tuple(b for b in blocks if b.kind not in _THINKING or b.message > last)
    return kept if len(kept) == count else None
