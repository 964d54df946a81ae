"""Replace the conversation so far by a summary.

Three costs follow: the summary request, which keeps the prefix and therefore reads it; the first
request after it, which writes tools, system (unless marked) and the summary; and the later ones,
which are shorter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import msgspec

from cacheaudit.model.call import Call
from cacheaudit.model.prompt import ContentBlock, Prompt, digest
from cacheaudit.model.usage import Usage
from cacheaudit.simulate.edit import COMPACTION, EditRefused, Settings
from cacheaudit.simulate.edits._rewrite import (
    DEFAULT_TTL,
    TTL_SECONDS,
    common_blocks,
    in_order,
    marked_at,
    need_change,
    need_prompts,
    rebuilt,
    remarked,
    replace,
    tail_marker,
    with_prompt,
)
from cacheaudit.simulate.edits.keep_alive import refresh_after

_INSTRUCTION = 60
_SIDE = ("keep_alive", "compaction", "probe", "warm_up")


class Compact(Settings, frozen=True, kw_only=True):
    """Compact each lane when it outgrows a size, or before a pause in which it would expire.

    Attributes:
        at: Compact before a request whose prompt would be larger than this; 0: never for size.
        before_expiry: Also, while the prefix can still be read, before a pause longer than its
            lifetime.
        after_expiry: Also at the first request after such a pause, when nothing can be read.
        summary: Tokens of the summary.
        least: Do not compact prompts of fewer tokens than this.
        seconds: How long the summary request takes.
    """

    name: ClassVar[str] = "compact"
    title: ClassVar[str] = "Compact the conversation"
    stage: ClassVar[int] = COMPACTION

    at: int = 150_000
    before_expiry: bool = False
    after_expiry: bool = False
    summary: int = 2_000
    least: int = 20_000
    seconds: float = 20.0

    def apply(self, calls: Sequence[Call]) -> Sequence[Call]:
        """Add summary requests and shorten what follows them."""
        need_prompts(calls, self.name, sizes=True)
        ordered = in_order(calls)
        lanes: dict[str, _Lane] = {}
        changed: list[Call] = []
        for call in ordered:
            if call.prompt is None or call.purpose in _SIDE:
                changed.append(call)
                continue
            if call.prompt.tokens is None:
                raise EditRefused(
                    f"compact: the sizes of {call.id}'s content blocks are not known.",
                    "Record content_tokens or the total input.",
                )
            lane = lanes.setdefault(call.lane, _Lane())
            changed.extend(self._one(call, call.prompt, lane))
        if len(changed) == len(ordered):
            changed = list(calls)
        return in_order(need_change(calls, changed, "compact: no prompt grows that large."))

    def _one(self, call: Call, prompt: Prompt, lane: _Lane) -> Iterator[Call]:
        gap = lane.gap_to(call)
        if self.concerns(call) and lane.last is not None and gap is not None:
            expires = gap > lane.lifetime
            if self.before_expiry and expires and self._is_large(lane.sent):
                at = (lane.last.started_at or 0.0) + refresh_after(lane.lifetime)
                yield self._summary(lane.last, lane.sent, at)
                lane.cut(self._block(lane), len(lane.last.prompt.blocks) if lane.last.prompt else 0)
            shortened = lane.shortened(prompt)
            too_large = bool(self.at) and (shortened.tokens or 0) > self.at
            late = self.after_expiry and expires and not self.before_expiry
            if (too_large or late) and self._is_large(shortened):
                at = self._before(call, lane.last)
                # What has expired is not worth writing for one request: it is sent unmarked.
                asked = _unmarked(shortened) if late else shortened
                yield self._summary(call, asked, at)
                lane.cut(self._block(lane), len(prompt.blocks))
        sent = lane.shortened(prompt)
        yield with_prompt(call, sent)
        lane.last, lane.sent = call, sent

    def _before(self, call: Call, last: Call) -> float:
        """Moment of a summary request: in time for the call, but not before the last one ended."""
        start = call.started_at or 0.0
        ended = last.ended_at if last.ended_at is not None else last.started_at or 0.0
        return max(start - self.seconds, min(ended, start - 1e-3))

    def _is_large(self, prompt: Prompt | None) -> bool:
        return prompt is not None and (prompt.tokens or 0) >= self.least

    def _block(self, lane: _Lane) -> ContentBlock:
        lane.count += 1
        canonical = msgspec.json.encode({"summary": lane.count, "tokens": self.summary})
        return _text(canonical, self.summary, message=0)

    def _summary(self, call: Call, prompt: Prompt | None, at: float) -> Call:
        """Ask for the summary behind the unchanged prompt."""
        if prompt is None:
            raise EditRefused("compact: there is nothing to summarise.")
        message = prompt.blocks[-1].message
        ask = _text(b'{"text":"compact","role":"user","type":"text"}', _INSTRUCTION, message)
        asked = rebuilt(prompt, [*prompt.blocks, ask])
        usage = call.usage or Usage()
        return replace(
            call,
            id=f"{call.id}~compact",
            purpose="compaction",
            parent=call.id,
            started_at=at,
            start_span=None,
            first_token_at=at + min(2.0, self.seconds),
            ended_at=at + self.seconds,
            usage=Usage(
                total_input=asked.tokens,
                output=self.summary,
                service_tier=usage.service_tier,
                speed=usage.speed,
                inference_geo=usage.inference_geo,
                dialect=usage.dialect,
            ),
            prompt=asked,
            diagnostics=None,
            stop_reason="end_turn",
            dedupe_key=None,
            reported_cost=None,
            boundaries=(),
            outcome=None,
        )


class _Lane:
    """What a lane's conversation has become."""

    def __init__(self) -> None:
        self.last: Call | None = None
        self.sent: Prompt | None = None
        self.count = 0
        self._summary: ContentBlock | None = None
        self._cut = 0
        self._summarised: Prompt | None = None

    @property
    def lifetime(self) -> float:
        """Seconds that the last request's prefix lives."""
        ttl = None if self.sent is None else tail_marker(self.sent).ttl
        return TTL_SECONDS.get(ttl or DEFAULT_TTL, 300.0)

    def gap_to(self, call: Call) -> float | None:
        """Seconds between the starts of the last request and this one."""
        if self.last is None or self.last.started_at is None or call.started_at is None:
            return None
        return call.started_at - self.last.started_at

    def cut(self, summary: ContentBlock, blocks: int) -> None:
        """Let a summary stand for the leading content blocks of the prompt last seen."""
        self._summary = summary
        self._cut = blocks
        self._summarised = None

    def shortened(self, prompt: Prompt) -> Prompt:
        """Put the summary in the place of what it stands for."""
        if self._summary is None:
            return prompt
        if self._summarised is None:
            self._summarised = prompt
        shared = common_blocks(prompt, self._summarised)
        if shared < min(self._cut, len(self._summarised.blocks)):
            # The recorded session rewrote its own history: the summary ends here.
            self._summary = None
            return prompt
        head = [block for block in prompt.blocks if block.level != "messages"]
        rest = list(prompt.blocks[self._cut :])
        summary = self._summary
        if not rest:
            summary = replace(summary, marker=prompt.blocks[-1].marker)
        return rebuilt(prompt, [*head, summary, *rest])


def _unmarked(prompt: Prompt) -> Prompt:
    """Take the markers of the conversation away; tools and system are needed again."""
    gone = [i for i in marked_at(prompt) if prompt.blocks[i].level == "messages"]
    bare = remarked(prompt, dict.fromkeys(gone))
    return replace(bare, automatic_marker=None)


def _text(canonical: bytes, tokens: int, message: int) -> ContentBlock:
    return ContentBlock(
        level="messages",
        path="",
        kind="text",
        role="user",
        message=message,
        canonical=canonical,
        digest=digest(canonical),
        tokens=tokens,
        tokens_origin="estimated",
    )


EDIT = Compact
