"""Do not let the provider clear parts of the conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from cacheaudit.model.call import Call
from cacheaudit.simulate.build import is_clearing
from cacheaudit.simulate.edit import PARAMETERS, Settings
from cacheaudit.simulate.edits._rewrite import need_change, need_prompts, rebuilt, with_prompt


class NoClearing(Settings, frozen=True, kw_only=True):
    """Leave the clearing of tool results and thinking out of every request.

    What was cleared is then carried on; how large that is, the requests say.
    """

    name: ClassVar[str] = "no-clearing"
    title: ClassVar[str] = "Do not have old tool results or thinking cleared"
    stage: ClassVar[int] = PARAMETERS + 3

    def apply(self, calls: Sequence[Call]) -> Sequence[Call]:
        """Take the setting out."""
        need_prompts(calls, self.name)
        changed = [self._one(call) for call in calls]
        return need_change(calls, changed, "no-clearing: no request asks for clearing.")

    def _one(self, call: Call) -> Call:
        prompt = call.prompt
        if prompt is None or not self.concerns(call):
            return call
        kept = tuple(p for p in prompt.parameters if not is_clearing(p))
        if len(kept) == len(prompt.parameters):
            return call
        return with_prompt(call, rebuilt(prompt, prompt.blocks, kept))


EDIT = NoClearing
