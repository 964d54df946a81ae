"""Let the model choose its tool instead of forcing one.

A forced choice is part of the messages' identity: the forced request reads only tools and system,
and writes the conversation again. Asking freely first costs a read; if the model does not comply,
the forced request must follow after all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import msgspec

from cacheaudit.model.call import Call
from cacheaudit.simulate.edit import PARAMETERS, Settings
from cacheaudit.simulate.edits._rewrite import (
    need_change,
    need_prompts,
    rebuilt,
    replace,
    shifted,
    with_prompt,
)

_CHOICE = "tool_choice"
_FORCED = (b'"type":"tool"', b'"type":"any"', b'"type":"function"', b'"required"')


class AutoToolChoice(Settings, frozen=True, kw_only=True):
    """Send forced requests with the free choice.

    Attributes:
        path: ``complies``: the model calls the tool on its own. ``retry``: it does not, and the
            forced request follows; the conversation goes on from the forced answer.
        patience: Seconds between the free request's end and the forced one, for ``retry``.
        compliance: Probability, 0 to 1, that the model calls the tool on its own; ``simulate`` then
            tells what is to be expected of both paths.
    """

    name: ClassVar[str] = "auto-tool-choice"
    title: ClassVar[str] = "Do not force a tool; let the model choose"
    stage: ClassVar[int] = PARAMETERS

    path: Literal["complies", "retry"] = "complies"
    patience: float = 1.0
    compliance: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None

    def apply(self, calls: Sequence[Call]) -> Sequence[Call]:
        """Free the choice, and put forced retries behind where the path says so."""
        need_prompts(calls, self.name)
        changed: list[Call] = []
        for call in calls:
            if not is_forced(call) or not self.concerns(call):
                changed.append(call)
                continue
            free = _freed(call)
            changed.append(free)
            if self.path == "retry":
                changed.append(self._retry(call))
        return need_change(calls, changed, "auto-tool-choice: no request forces a tool.")

    def _retry(self, call: Call) -> Call:
        """Repeat the forced request after the free one has ended."""
        start, end = call.started_at, call.ended_at
        later = self.patience + (end - start if start is not None and end is not None else 0.0)
        return replace(
            shifted(call, later),
            id=f"{call.id}~forced",
            purpose="retry",
            attempt=call.attempt + 1,
            dedupe_key=None,
        )


def is_forced(call: Call) -> bool:
    """Whether a request makes the model call a tool."""
    if call.prompt is None:
        return False
    return any(
        parameter.name == _CHOICE and any(word in parameter.value for word in _FORCED)
        for parameter in call.prompt.parameters
    )


def _freed(call: Call) -> Call:
    prompt = call.prompt
    if prompt is None:
        return call
    kept = tuple(parameter for parameter in prompt.parameters if parameter.name != _CHOICE)
    return with_prompt(call, rebuilt(prompt, prompt.blocks, kept))


EDIT = AutoToolChoice
