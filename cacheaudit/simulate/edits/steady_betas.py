"""Ask for the same beta features with every request of a lane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from cacheaudit.model.call import Call
from cacheaudit.simulate.betas import betas_of, with_betas
from cacheaudit.simulate.edit import PARAMETERS, Settings
from cacheaudit.simulate.edits._rewrite import need_change, replace


class SteadyBetas(Settings, frozen=True, kw_only=True):
    """Send the features that a lane ever asks for from its first request on."""

    name: ClassVar[str] = "steady-betas"
    title: ClassVar[str] = "Send the same beta header with every request"
    stage: ClassVar[int] = PARAMETERS + 2

    def apply(self, calls: Sequence[Call]) -> Sequence[Call]:
        """Join the features of each lane."""
        asked: dict[str, dict[str, None]] = {}
        for call in calls:
            asked.setdefault(call.lane, {}).update(dict.fromkeys(betas_of(call) or ()))
        changed = [self._one(call, tuple(asked[call.lane])) for call in calls]
        return need_change(calls, changed, "steady-betas: the beta header never changes.")

    def _one(self, call: Call, wanted: tuple[str, ...]) -> Call:
        mine = betas_of(call)
        if mine is None or set(mine) == set(wanted) or not self.concerns(call):
            return call
        return replace(call, extra=with_betas(call, wanted))


EDIT = SteadyBetas
