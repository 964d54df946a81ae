"""Send a request only once what the one before it wrote can surely be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from cacheaudit.model.call import Call
from cacheaudit.simulate.edit import ORDER, Settings
from cacheaudit.simulate.edits._rewrite import (
    in_order,
    need_change,
    need_prompts,
    readable_from,
    shifted,
    with_previous,
)


class Wait(Settings, frozen=True, kw_only=True):
    """Delay requests that follow too soon, and with them what follows in their lane.

    Attributes:
        seconds: How long to wait after the response before began.
    """

    name: ClassVar[str] = "wait"
    title: ClassVar[str] = "Wait until what the request before wrote can be read"
    stage: ClassVar[int] = ORDER + 1

    seconds: float = 2.0

    def apply(self, calls: Sequence[Call]) -> Sequence[Call]:
        """Move calls in time."""
        need_prompts(calls, self.name, sizes=True)
        late: dict[str, float] = {}
        changed: list[Call] = []
        for _, call, before in with_previous(in_order(calls)):
            moved = shifted(call, late.get(call.lane, 0.0))
            since = None if before is None else readable_from(before)
            start = moved.started_at
            if since is not None and start is not None and self.concerns(call):
                short = since + late.get(before.lane if before else "", 0.0) + self.seconds - start
                if short > 0:
                    late[call.lane] = late.get(call.lane, 0.0) + short
                    moved = shifted(moved, short)
            changed.append(moved)
        ordered = in_order(calls)
        if all(a is b for a, b in zip(changed, ordered, strict=True)):
            changed = list(calls)
        return in_order(need_change(calls, changed, "wait: every request waits long enough."))


EDIT = Wait
