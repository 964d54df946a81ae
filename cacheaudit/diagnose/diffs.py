"""Differences of bodies at the calls that lost tokens, with all that rules ask about them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.events import Event
from cacheaudit.diagnose.reach import Reach, reach, size_before
from cacheaudit.diagnose.shapes import Shape, block_at, names_of, shape_of, text_of
from cacheaudit.model.call import Call
from cacheaudit.model.change import Change, first_change
from cacheaudit.model.prompt import ContentBlock, Prompt, chain, digest

if TYPE_CHECKING:
    from cacheaudit.diagnose.volatile import Variation

# A client's own line in front of its system prompt: no header of HTTP, but written like one.
_HEADER: Final = re.compile(r"\s*x-[\w-]+-header\s*:", re.IGNORECASE)
# Calls that are looked at for the conversation behind a side call.
_PAST: Final = 8
_FIRST_PARTY: Final = frozenset({None, "claude_api", "claude_aws"})


class Diff:
    """The first difference between a call that lost tokens and the call before it.

    Attributes:
        event: The call.
        change: Where the bodies first differ.
        before: Body of the call before it.
        after: Body of the call.
        old: Content block that stood there, if one did.
        new: Content block that stands there now, if one does.
        shape: What was done to the prompt.
        header: The difference is a line that the client writes for its own provider, which
            is suspected to take it out before it looks into its cache. Where something else
            differs behind it, that is ``change``.
    """

    __slots__ = (
        "_ctx", "_reach", "_variation", "after", "before", "change", "event", "header", "new",
        "old", "shape",
    )  # fmt: skip

    def __init__(
        self, ctx: Context, event: Event, change: Change, before: Prompt, after: Prompt
    ) -> None:
        self._ctx = ctx
        self.event = event
        self.header: str | None = None
        if is_first_party(event.call) and _is_header(block_at(after, change)):
            second = _behind_header(before, after)
            self.header = "alone" if second is None else "too"
            change = change if second is None else second
        self.change = change
        self.before = before
        self.after = after
        self.old: ContentBlock | None = block_at(before, change)
        self.new: ContentBlock | None = block_at(after, change)
        self.shape: Shape = shape_of(change, before, after)
        self._variation: tuple[Variation | None] | None = None
        self._reach: tuple[Reach | None] | None = None

    @property
    def variation(self) -> Variation | None:
        """How the differing texts differ; ``None`` where no texts are compared."""
        if self._variation is None:
            self._variation = (self._explained(),)
        return self._variation[0]

    def _explained(self) -> Variation | None:
        field = self.change.path.rpartition("].")[2] if self.change.level == "tools" else ""
        old, new = text_of(self.old, field), text_of(self.new, field)
        if not old or not new:
            return None
        names = {*names_of(self.before), *names_of(self.after)} - {""}
        # Late: its many patterns take longer to compile than most sessions take to diagnose.
        from cacheaudit.diagnose.volatile import explain

        return explain(old, new, names if self.change.level == "system" else ())

    @property
    def reach(self) -> Reach | None:
        """What could have been read in front of the difference."""
        if self._reach is None:
            found = reach(self._ctx, self.event.index, explicit=self.event.explicit)
            self._reach = (found,)
        return self._reach[0]

    @property
    def shared_tokens(self) -> int:
        """Tokens in front of the difference."""
        return size_before(self.event.call, self.change.blocks_before)

    @property
    def in_front(self) -> bool:
        """Whether it lies in front of the messages."""
        return self.change.level != "messages"

    def is_parameter(self, *names: str) -> bool:
        """Whether a setting of one of these names differs."""
        return self.shape == "parameter" and self.change.path in names

    def is_text(self, level: str, *kinds: str) -> bool:
        """Whether two texts of a level differ in one of these ways."""
        wanted = "system_text" if level == "system" else "message_text"
        if self.shape != wanted or self.variation is None:
            return False
        return self.variation.kind in kinds


def diffs(ctx: Context) -> tuple[Diff, ...]:
    """Return the differences of all calls that lost tokens and whose bodies were recorded."""
    found: tuple[Diff, ...] | None = ctx.memo.get("diffs")
    if found is None:
        found = tuple(filter(None, (_diff(ctx, event) for event in ctx.events)))
        ctx.memo["diffs"] = found
    return found


def _diff(ctx: Context, event: Event) -> Diff | None:
    before, after = event.previous.prompt, event.call.prompt
    if event.change is None or before is None or after is None:
        return None
    base = _conversation(ctx, event, before, after)
    change = event.change if base is before else first_change(base, after)
    return None if change is None else Diff(ctx, event, change, base, after)


def _conversation(ctx: Context, event: Event, before: Prompt, after: Prompt) -> Prompt:
    """Return the body to compare with: past a side call, that of the conversation."""
    if before.model == after.model and _opening(before) == _opening(after):
        return before
    return next((known for _, known in _past(ctx, event, after)), before)


def goes_on_from(ctx: Context, event: Event) -> int | None:
    """Return the position of the call that a call extends, where a side call came in between."""
    before, after = event.previous.prompt, event.call.prompt
    if event.change is None or before is None or after is None:
        return None
    if _opening(before) == _opening(after):
        return None
    index, known = next(_past(ctx, event, after), (-1, after))
    return index if index >= 0 and first_change(known, after) is None else None


def _past(ctx: Context, event: Event, after: Prompt) -> Iterator[tuple[int, Prompt]]:
    """Walk back over the calls of the lane that opened the same conversation."""
    calls = ctx.session.calls
    for index in range(event.previous_index - 1, max(-1, event.previous_index - _PAST), -1):
        known = calls[index].prompt
        if known is None or calls[index].lane != event.call.lane or known.model != after.model:
            continue
        if known.level_order == after.level_order and _opening(known) == _opening(after):
            yield index, known


def _opening(prompt: Prompt) -> bytes | None:
    return next((block.digest for block in prompt.blocks if block.level == "messages"), None)


def is_first_party(call: Call) -> bool:
    """Whether the call went to the provider whose own client writes such a line."""
    return call.provider == "anthropic" and call.surface in _FIRST_PARTY


def _is_header(block: ContentBlock | None) -> bool:
    return block is not None and block.level == "system" and bool(_HEADER.match(text_of(block)))


def _behind_header(before: Prompt, after: Prompt) -> Change | None:
    """Find the first difference once the client's own line is left out of account."""
    return first_change(_without_headers(before), _without_headers(after))


def _without_headers(prompt: Prompt) -> Prompt:
    blank = digest(b"")
    blocks = tuple(
        msgspec.structs.replace(block, digest=blank) if _is_header(block) else block
        for block in prompt.blocks
    )
    digests = chain(prompt.level_order, prompt.parameters, blocks)
    return msgspec.structs.replace(prompt, blocks=blocks, prefix_digests=digests)
