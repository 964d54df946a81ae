"""Ask for the same beta features with every request of a lane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from cacheaudit.model.call import Call
from cacheaudit.simulate.edit import PARAMETERS, Settings
from cacheaudit.simulate.edits._rewrite import need_change, replace

_FIELDS = ("anthropic_beta", "betas")


class SteadyBetas(Settings, frozen=True, kw_only=True):
    """Send the features that a lane ever asks for from its first request on."""

    name: ClassVar[str] = "steady-betas"
    title: ClassVar[str] = "Send the same beta header with every request"
    stage: ClassVar[int] = PARAMETERS + 2

    def apply(self, calls: Sequence[Call]) -> Sequence[Call]:
        """Join the features of each lane."""
        asked: dict[str, dict[str, dict[str, None]]] = {}
        for call in calls:
            for name, features in _features(call).items():
                known = asked.setdefault(call.lane, {}).setdefault(name, {})
                known.update(dict.fromkeys(features))
        changed = [self._one(call, asked.get(call.lane, {})) for call in calls]
        return need_change(calls, changed, "steady-betas: the beta header never changes.")

    def _one(self, call: Call, asked: dict[str, dict[str, None]]) -> Call:
        mine = _features(call)
        wanted: dict[str, Any] = {name: list(asked[name]) for name in mine}
        if wanted == mine or not self.concerns(call):
            return call
        return replace(call, extra={**call.extra, **wanted})


def _features(call: Call) -> dict[str, list[Any]]:
    """Return what a call's record says of its header."""
    return {name: value for name in _FIELDS if isinstance(value := call.extra.get(name), list)}


EDIT = SteadyBetas
