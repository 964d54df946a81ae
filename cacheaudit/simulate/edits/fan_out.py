"""Send one of several parallel requests first, and mark where they part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from cacheaudit.model.call import Call
from cacheaudit.model.prompt import Prompt
from cacheaudit.simulate.edit import ORDER, EditRefused, Settings
from cacheaudit.simulate.edits._rewrite import (
    DEFAULT_TTL,
    TTL_SECONDS,
    common_blocks,
    in_order,
    markable,
    marked_at,
    need_change,
    need_prompts,
    readable_from,
    remarked,
    room,
    shifted,
    tail_marker,
    with_prompt,
)


class FanOut(Settings, frozen=True, kw_only=True):
    """Let the first of several requests that start together write what they share.

    Attributes:
        window: Seconds within which requests count as started together.
        least: Tokens that they must share.
        mark: Mark the common endpoint.
        order: Send the others when the first one's entry can be read.
        wait: Seconds after the moment from which it can be read.
    """

    name: ClassVar[str] = "fan-out"
    title: ClassVar[str] = "Mark the common endpoint, send one request first, then the others"
    stage: ClassVar[int] = ORDER

    window: float = 1.0
    least: int = 1024
    mark: bool = True
    order: bool = True
    wait: float = 0.1

    def apply(self, calls: Sequence[Call]) -> Sequence[Call]:
        """Mark and delay the members of every group."""
        need_prompts(calls, self.name, sizes=True)
        work = in_order(calls)
        groups = self._groups(work)
        before = list(work)
        leaders: dict[int, int] = {}
        for group in groups:
            end = _endpoint([work[index].prompt for index in group])
            if self.mark and end >= 0:
                for index in group:
                    work[index] = _marked(work[index], end)
            leaders |= dict.fromkeys(group[1:], group[0])
        changed = self._delayed(work, leaders) if self.order else work
        if all(a is b for a, b in zip(changed, before, strict=True)):
            changed = list(calls)
        return in_order(
            need_change(calls, changed, "fan-out: no requests that share a prefix start together.")
        )

    def _groups(self, calls: list[Call]) -> list[list[int]]:
        """Find requests that start together and share enough with the first of them."""
        groups: list[list[int]] = []
        before: dict[str, Call] = {}
        for index, call in enumerate(calls):
            if call.prompt is None or call.started_at is None or not self.concerns(call):
                continue
            if call.purpose == "keep_alive":
                continue
            own, before[call.lane] = before.get(call.lane), call
            group = next((g for g in reversed(groups) if self._joins(calls[g[0]], call)), None)
            if group is None or _reads_own(own, call, calls[group[0]]):
                groups.append([index])
            else:
                group.append(index)
        return [group for group in groups if len(group) > 1]

    def _joins(self, leader: Call, call: Call) -> bool:
        if leader.started_at is None or call.started_at is None:
            return False
        if call.started_at - leader.started_at > self.window:
            return False
        if leader.prompt is None or call.prompt is None or leader.model != call.model:
            return False
        shared = common_blocks(leader.prompt, call.prompt)
        tokens = sum(block.tokens or 0 for block in leader.prompt.blocks[:shared])
        return tokens >= self.least

    def _delayed(self, calls: list[Call], leaders: dict[int, int]) -> list[Call]:
        """Let each wait for its leader; what follows in a delayed lane is delayed with it."""
        lanes: dict[str, float] = {}
        moved: list[Call] = []
        for index, call in enumerate(calls):
            late = lanes.get(call.lane, 0.0)
            if index in leaders and call.started_at is not None:
                leader = moved[leaders[index]]
                moment = readable_from(leader)
                if moment is None:
                    raise EditRefused(
                        f"fan-out: it is not known when the response to {leader.id} began.",
                        "Record first_token_at or ended_at.",
                    )
                late = lanes[call.lane] = max(late, moment + self.wait - call.started_at)
            moved.append(shifted(call, late))
        return moved


def _reads_own(own: Call | None, call: Call, leader: Call) -> bool:
    """Whether a request finds what its own lane left, and no less in it than in the leader's."""
    if own is None or own.prompt is None or call.prompt is None or leader.prompt is None:
        return False
    if common_blocks(own.prompt, call.prompt) < common_blocks(leader.prompt, call.prompt):
        return False
    readable, start = readable_from(own), call.started_at
    if readable is None or start is None or own.started_at is None or readable > start:
        return False
    lifetime = TTL_SECONDS.get(tail_marker(own.prompt).ttl or DEFAULT_TTL, 0.0)
    return start - own.started_at < lifetime


def _endpoint(prompts: Sequence[Prompt | None]) -> int:
    """Return the last content block that all share and that can be marked."""
    known = [prompt for prompt in prompts if prompt is not None]
    shared = min(common_blocks(known[0], prompt) for prompt in known[1:])
    return markable(known[0], shared - 1)


def _marked(call: Call, end: int) -> Call:
    prompt = call.prompt
    if prompt is None or prompt.blocks[end].marker is not None:
        return call
    if end == len(prompt.blocks) - 1 and prompt.automatic_marker is not None:
        return call
    marker = tail_marker(prompt)
    if room(prompt) < 1:
        prompt = _made_room(prompt, end)
    return with_prompt(call, remarked(prompt, {end: marker}))


def _made_room(prompt: Prompt, end: int) -> Prompt:
    """Give up the marker that the new one serves best: the nearest in front of it."""
    in_front = [index for index in marked_at(prompt) if index < end]
    if not in_front:
        raise EditRefused("fan-out: all four markers stand behind the common endpoint.")
    return remarked(prompt, {in_front[-1]: None})


EDIT = FanOut
