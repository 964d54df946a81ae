"""Send every request to another model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from cacheaudit.model.call import Call
from cacheaudit.model.prompt import Parameter, Prompt
from cacheaudit.simulate.edit import MODEL, EditRefused, Settings
from cacheaudit.simulate.edits._rewrite import need_change, rebuilt, replace


class OtherModel(Settings, frozen=True, kw_only=True):
    """Bill and cache by another model's rates and minimum size.

    Sizes and outputs stay as recorded, although another model counts and answers differently; a
    session that switched models no longer does.

    Attributes:
        to: Model id.
        provider: Its provider; absent: the call's.
        lanes: ``main``, ``subagents`` or ``all``.
    """

    name: ClassVar[str] = "model"
    title: ClassVar[str] = "Use another model"
    stage: ClassVar[int] = MODEL

    to: str = ""
    provider: str | None = None
    lanes: str = "all"

    def apply(self, calls: Sequence[Call]) -> Sequence[Call]:
        """Change the model."""
        if not self.to:
            raise EditRefused("model: no model was named.", "Write model:to=NAME.")
        changed = [self._one(call) for call in calls]
        return need_change(calls, changed, f"model: every call uses {self.to} already.")

    def _one(self, call: Call) -> Call:
        wanted = self.lanes == "all" or (call.lane == "main") == (self.lanes == "main")
        if not wanted or not self.concerns(call):
            return call
        provider = self.provider or call.provider
        if call.model == self.to and call.provider == provider:
            return call
        prompt = None if call.prompt is None else _of_model(call.prompt, self.to)
        surface = call.surface if provider == call.provider else None
        usage = call.usage
        if usage is not None and any(part.model not in (None, call.model) for part in usage.parts):
            usage = replace(usage, parts=())
        return replace(
            call,
            model=self.to,
            provider=provider,
            surface=surface,
            prompt=prompt,
            usage=usage,
            reported_cost=None,
        )


def _of_model(prompt: Prompt, model: str) -> Prompt:
    settings = tuple(
        Parameter(p.name, p.level, msgspec.json.encode(model)) if p.name == "model" else p
        for p in prompt.parameters
    )
    return replace(rebuilt(prompt, prompt.blocks, settings), model=model)


EDIT = OtherModel
