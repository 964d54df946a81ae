"""What requests share: who is sent first, who waits for whom, and where the common ends lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from cacheaudit.agent.fan_out.mark import marked
from cacheaudit.errors import PromptError
from cacheaudit.model.prompt import Prompt
from cacheaudit.model.tokens import tokens_of
from cacheaudit.providers.facts import rules
from cacheaudit.providers.registry import expand
from cacheaudit.simulate.edits._rewrite import common_blocks, markable

# Where nothing is known of a model: the smallest prefix that most providers keep.
_LEAST: Final = 1_024


class Group(msgspec.Struct, frozen=True):
    """Requests that share a prefix.

    Attributes:
        leader: Position of the request that is sent first.
        members: Positions of those that wait for it.
        tokens: Size of what they share, estimated.
        path: Where it ends: ``messages[0].content[1]``.
    """

    leader: int
    members: tuple[int, ...]
    tokens: int
    path: str


class Layout(msgspec.Struct, frozen=True):
    """The plan of a fan-out.

    Attributes:
        bodies: What to send, in the order given; those that nothing is changed of are the
            caller's own objects.
        after: For each request the one whose response must begin first; ``None``: nobody's.
        groups: Who shares what.
    """

    bodies: tuple[Mapping[str, Any], ...]
    after: tuple[int | None, ...]
    groups: tuple[Group, ...]


def layout(
    bodies: Sequence[Mapping[str, Any]],
    *,
    mark: bool = True,
    order: bool = True,
    least: int | None = None,
    provider: str | None = None,
    surface: str | None = None,
    at: float | None = None,
) -> Layout:
    """Find what requests share.

    Args:
        bodies: Request bodies; none is changed.
        mark: Put a cache marker at the common ends of Messages requests.
        order: Let one request go first; without it nobody waits.
        least: Tokens from which a prefix is worth waiting for; ``None``: the model's minimum.
        provider: Whose API it is, where known.
        surface: Platform, where known.
        at: Now, in seconds since the epoch: rules are dated.
    """
    prompts = [_prompt(body, provider) for body in bodies]
    known = [index for index, prompt in enumerate(prompts) if prompt is not None]
    tree = _Tree([p for p in prompts if p is not None], known, least, surface, at)
    tree.split(list(range(len(known))), None)
    after: list[int | None] = [None] * len(bodies)
    made = list(bodies)
    for slot, index in enumerate(known):
        waits = tree.after[slot]
        after[index] = known[waits] if order and waits is not None else None
        prompt = prompts[index]
        if mark and prompt is not None and tree.ends[slot]:
            made[index] = marked(bodies[index], prompt, tree.ends[slot])
    return Layout(tuple(made), tuple(after), tuple(tree.groups))


def _prompt(body: Mapping[str, Any], provider: str | None) -> Prompt | None:
    try:
        return expand(body, provider=provider)
    except PromptError:
        return None


class _Tree:
    """Splits requests by what follows what they share, again and again."""

    def __init__(
        self,
        prompts: list[Prompt],
        names: list[int],
        least: int | None,
        surface: str | None,
        at: float | None,
    ) -> None:
        self._prompts = prompts
        self._names = names
        self._least = least
        self._surface = surface
        self._at = at
        self.after: list[int | None] = [None] * len(prompts)
        self.ends: list[list[int]] = [[] for _ in prompts]
        self.groups: list[Group] = []

    def split(self, slots: list[int], waits_for: int | None) -> None:
        """Plan requests of which the first leads the others."""
        todo: list[tuple[list[int], int | None]] = [(slots, waits_for)]
        while todo:
            slots, waits_for = todo.pop()
            if not slots:
                continue
            leader, rest = slots[0], slots[1:]
            self.after[leader] = waits_for
            if not rest:
                continue
            first = self._prompts[leader]
            shared = min(common_blocks(first, self._prompts[slot]) for slot in rest)
            end = markable(first, shared - 1)
            tokens, _ = tokens_of(first.blocks[: end + 1])
            is_worth = end >= 0 and tokens >= self._minimum(first)
            if is_worth:
                self._group(slots, end, tokens)
            for part in self._parts(slots, shared):
                mine = waits_for if part[0] == leader or not is_worth else leader
                todo.append((part, mine))

    def _group(self, slots: list[int], end: int, tokens: int) -> None:
        leader = slots[0]
        names = tuple(self._names[slot] for slot in slots)
        path = self._prompts[leader].blocks[end].path
        self.groups.append(Group(names[0], names[1:], tokens, path))
        for slot in slots:
            self.ends[slot].append(end)

    def _parts(self, slots: list[int], shared: int) -> list[list[int]]:
        """Part requests by the first content block that they do not all share."""
        found: dict[bytes, list[int]] = {}
        for slot in slots:
            digests = self._prompts[slot].prefix_digests
            key = digests[shared] if shared < len(digests) else b""
            # Requests that are the same to the end wait for the first of them, as one part each.
            if not key:
                key = b"end" + slot.to_bytes(4, "big")
            found.setdefault(key, []).append(slot)
        return list(found.values())

    def _minimum(self, prompt: Prompt) -> int:
        if self._least is not None:
            return self._least
        found = rules(prompt.provider, prompt.model, self._at, self._surface)
        return _LEAST if found is None else found.integer("minimum_tokens", _LEAST)
