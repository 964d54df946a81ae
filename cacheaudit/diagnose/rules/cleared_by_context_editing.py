"""Rule CMP202."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.events import Event
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.scenes import request
from cacheaudit.diagnose.wording import (
    SERVER,
    aftermath,
    count,
    expiry_line,
    reason_lines,
    shortfall,
)
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix
from cacheaudit.model.prompt import Prompt
from cacheaudit.simulate.build import is_clearing
from cacheaudit.simulate.edit import Edit
from cacheaudit.simulate.edits.no_clearing import NoClearing

_RANK = 12
_EDITS = {"edits": [{"type": "clear_tool_uses_20250919"}]}


class ClearedByContextEditing(Rule):
    """The provider cleared old tool results or thinking, as the request asked.

    ## Why it costs

    The prompt that the cache sees ends where something was cleared. What stands behind it is
    written again. Clearing a little with each turn writes the conversation each turn.

    ## What it rests on

    Recorded bodies: the request asks for context editing and repeats the one before unchanged,
    while the prompt that was counted is smaller than the one before. What was cleared stands in the
    response, which is not looked at here; hence consistent, not proved.

    ## When to ignore

    When much is cleared at once, rarely.

    ## References

    The provider's page on context editing (`clear_at_least`); table of what invalidates what.
    """

    id = "CMP202"
    name = "cleared-by-context-editing"
    title = "Context editing cleared part of the cached prompt"
    needs = ("usage", "requests")
    looks_at = ("bodies",)
    is_trade = True
    supersedes = ("lookback-or-message-change", "history-rewritten")
    fix = Fix(
        "Ask for much to be cleared at once, or not at all",
        patch='"clear_at_least": {"type": "input_tokens", "value": 30000}',
    )

    @classmethod
    @override
    def bad(cls) -> Session:
        """Clear some results and keep the rest."""
        first = request("task", "answer", "go on", context_management=_EDITS)
        second = request("task", "answer", "go on", "more", "next", context_management=_EDITS)
        return (
            Script().call(0, 0, 60_000, body=first).call(35, 9_000, 36_000, body=second).session()
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Clear nothing."""
        first = request("task", "answer", "go on")
        second = request("task", "answer", "go on", "more", "next")
        return (
            Script().call(0, 0, 60_000, body=first).call(35, 60_000, 5_000, body=second).session()
        )

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for event in ctx.events:
            prompt = event.call.prompt
            if prompt is None or not event.has_bodies or event.change is not None:
                continue
            if asks_to_clear(prompt) and event.total < event.previous_total:
                yield _draft(event)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:  # noqa: ARG002
        """See :meth:`Rule.fix_edit`."""
        return NoClearing()


def asks_to_clear(prompt: Prompt) -> bool:
    """Whether a request asks the provider to clear parts of the conversation."""
    return any(map(is_clearing, prompt.parameters))


def _draft(event: Event) -> Draft:
    return Draft(
        index=event.index,
        claims=event.lost,
        rank=_RANK,
        why="The request asks for context editing.",
        evidence="body_diff",
        established=(
            shortfall(event),
            (
                f"The body extends the one before, yet its prompt has {count(event.total)} tokens "
                f"after {count(event.previous_total)}: part of it was cleared."
            ),
            expiry_line(event),
            *reason_lines(event),
            *aftermath(event),
        ),
        to_check=("The edits that the response says were applied.",),
        rivals=(SERVER,),
    )
