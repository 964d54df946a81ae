"""Show the first picture of a conversation at its beginning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from cacheaudit.model.call import Call
from cacheaudit.model.prompt import ContentBlock
from cacheaudit.simulate.edit import CONTENT, Settings
from cacheaudit.simulate.edits._rewrite import (
    need_change,
    need_prompts,
    rebuilt,
    replace,
    with_prompt,
)

_MEDIA: Final = "image"


class EarlyMedia(Settings, frozen=True, kw_only=True):
    """Put the first picture in front of the conversation, from its first request on.

    Whether a prompt holds pictures then never changes; the picture's own tokens are carried from
    the beginning, and the later copy stays where it is.
    """

    name: ClassVar[str] = "early-media"
    title: ClassVar[str] = "Show the first picture at the beginning of the conversation"
    stage: ClassVar[int] = CONTENT + 3

    def apply(self, calls: Sequence[Call]) -> Sequence[Call]:
        """Add the picture to every request of a lane that shows one."""
        need_prompts(calls, self.name)
        shown: dict[str, ContentBlock] = {}
        bare: set[str] = set()
        for call in calls:
            if call.prompt is None:
                continue
            picture = next((b for b in call.prompt.blocks if b.kind == _MEDIA), None)
            if picture is None:
                bare.add(call.lane)
            else:
                shown.setdefault(call.lane, picture)
        late = {lane: picture for lane, picture in shown.items() if lane in bare}
        changed = [self._one(call, late.get(call.lane)) for call in calls]
        return need_change(calls, changed, "early-media: no picture comes late.")

    def _one(self, call: Call, picture: ContentBlock | None) -> Call:
        prompt = call.prompt
        if prompt is None or picture is None or not self.concerns(call):
            return call
        blocks = list(prompt.blocks)
        place = next((n for n, b in enumerate(blocks) if b.level == "messages"), len(blocks))
        first = blocks[place] if place < len(blocks) else None
        early = replace(
            picture,
            marker=None,
            message=0 if first is None else first.message,
            role="user",
        )
        return with_prompt(call, rebuilt(prompt, [*blocks[:place], early, *blocks[place:]]))


EDIT = EarlyMedia
