"""Successive requests of a lane with bodies, for rules that look at markers.

Such rules also see calls that lost nothing by the usual measure: what was never stored because
nothing marked it is sent again, uncached, and no read falls short.
"""

from __future__ import annotations

import msgspec

from cacheaudit.diagnose.context import LOSS_SHARE, LOSS_TOKENS, Context
from cacheaudit.diagnose.reach import facts_of, markers, sizes
from cacheaudit.model.call import Call
from cacheaudit.model.change import common_prefix
from cacheaudit.model.prompt import Prompt

# Where the model's own minimum is not known.
_MINIMUM = 4_096


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A request that repeats part of the one before it in its lane and sends much uncached.

    Attributes:
        index: Position of the call.
        call: The call.
        prompt: Its body.
        before: Body of the call before it.
        marks: Content blocks whose ends it marks.
        marks_before: Content blocks whose ends the call before it marked.
        marked_tokens: Tokens up to its last marker, 0 where it has none.
        shared_tokens: Tokens that both share from the front.
        sent_again: Tokens behind its last marker that the call before it had sent too.
        stored: Tokens that were read or written.
    """

    index: int
    call: Call
    prompt: Prompt
    before: Prompt
    marks: list[int]
    marks_before: list[int]
    marked_tokens: int
    shared_tokens: int
    sent_again: int
    stored: int

    @property
    def agrees(self) -> bool:
        """Whether what was stored ends where the last marker stands, within an eighth."""
        total = self.call.usage.prompt_size if self.call.usage is not None else None
        slack = max(LOSS_TOKENS, (total or 0) // 8)
        return abs(self.stored - self.marked_tokens) <= slack


def steps(ctx: Context) -> tuple[Step, ...]:
    """Return the requests that sent much again uncached; they work with markers."""
    found: tuple[Step, ...] | None = ctx.memo.get("steps")
    if found is None:
        found = tuple(_steps(ctx)) if ctx.changes or ctx.unmoved else ()
        ctx.memo["steps"] = found
    return found


def _steps(ctx: Context) -> list[Step]:
    last: dict[str, Prompt] = {}
    found: list[Step] = []
    for index, call in enumerate(ctx.session.calls):
        prompt, before = call.prompt, last.get(call.lane)
        if prompt is None or call.usage is None:
            continue
        last[call.lane] = prompt
        if before is not None and _sends_much(call):
            step = _step(index, call, prompt, before)
            if step is not None:
                found.append(step)
    return found


def _sends_much(call: Call) -> bool:
    usage = call.usage
    if usage is None or usage.uncached_input is None or usage.parts:
        return False
    return is_much(usage.uncached_input, usage.total_input or 0)


def is_much(tokens: int, total: int) -> bool:
    """Whether tokens are worth a finding: the measure of every loss."""
    return tokens > LOSS_TOKENS and tokens * LOSS_SHARE > total


def _step(index: int, call: Call, prompt: Prompt, before: Prompt) -> Step | None:
    if before.level_order != prompt.level_order or not works_with_markers(call):
        return None
    usage = call.usage
    if usage is None:
        return None
    counts = sizes(call)
    shared = sum(counts[: common_prefix(before, prompt)])
    marks = markers(prompt)
    marked = sum(counts[: marks[-1] + 1]) if marks else 0
    again = min(shared - marked, usage.uncached_input or 0)
    if not is_much(again, sum(counts)):
        return None
    return Step(
        index=index,
        call=call,
        prompt=prompt,
        before=before,
        marks=marks,
        marks_before=markers(before),
        marked_tokens=marked,
        shared_tokens=shared,
        sent_again=again,
        stored=(usage.cache_read or 0) + (usage.cache_write or 0),
    )


def works_with_markers(call: Call) -> bool:
    """Whether nothing is cached of this call without a marker."""
    facts = facts_of(call)
    return facts is not None and facts.machine == "claude"


def minimum_of(call: Call) -> int:
    """Tokens that a prefix needs to be cached; the largest minimum where it is not known."""
    facts = facts_of(call)
    return _MINIMUM if facts is None else facts.integer("minimum_tokens", _MINIMUM)
