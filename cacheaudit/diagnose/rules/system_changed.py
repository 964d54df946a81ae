"""Rule PFX101."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.changed import FRONT_RANK, changed_drafts
from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.diffs import Diff
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.model.call import Session
from cacheaudit.model.change import Change
from cacheaudit.model.finding import Fix

_REASON = "system_changed"


class SystemChanged(Rule):
    """The system prompt is not the one of the request before.

    ## Why it costs

    The system prompt stands before every message. A clock, a working folder, a git status or a
    random id in it makes all messages new; only the tools can still be read.

    ## What it rests on

    Recorded bodies (proved, with path and byte), or the provider's `system_changed`.

    ## When to ignore

    When the change is wanted and happens once.
    """

    id = "PFX101"
    name = "system-changed"
    title = "The system prompt changed"
    provider_reasons = (_REASON,)
    fix = Fix("Keep the system prompt fixed; put what varies into the newest user message")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Have the provider's word and no body."""
        return Script().call(0, 0, 30_000).call(35, 4_000, 27_500, reason=_REASON).session()

    @classmethod
    @override
    def good(cls) -> Session:
        """Change nothing."""
        return Script().call(0, 0, 30_000).call(35, 30_000, 1_500).session()

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        yield from changed_drafts(ctx, self.provider_reasons, _is_system, FRONT_RANK, _title)


def _is_system(diff: Diff) -> bool:
    is_system = diff.change.level == "system" and diff.change.kind != "parameter"
    # A line that the client writes for its own provider has a rule of its own.
    return is_system and diff.header != "alone"


def _title(change: Change) -> str:
    return f"The system prompt changed: {change.path}, {change.kind.replace('_', ' ')}"
