"""Rule MDL102."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cacheaudit.diagnose.changed import FRONT_RANK, MESSAGES_RANK, changed_drafts
from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.diffs import Diff
from cacheaudit.diagnose.examples import Script, body
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.model.call import Session
from cacheaudit.model.change import Change
from cacheaudit.model.finding import Fix


class ParameterChanged(Rule):
    """A setting that takes part in the cache key differs from the request before.

    ## Why it costs

    `tool_choice`, `thinking`, effort, output format or speed are part of what identifies a
    prefix. Two values mean two separate lines of cached content; a value that flips back and
    forth pays for both.

    ## What it rests on

    Recorded bodies, or the provider's own word for the setting.

    ## When to ignore

    When the setting is needed for that one call and the prompt is short.
    """

    id = "MDL102"
    name = "parameter-changed"
    title = "A parameter in the cache key changed"
    provider_reasons = (
        "text_format_changed",
        "reasoning_effort_changed",
        "verbosity_changed",
        "prompt_cache_key_changed",
        "service_tier_changed",
    )
    fix = Fix("Keep the parameter the same over the whole session")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Force a tool for one call."""
        first = body("a", "b", "c")
        forced = {"type": "tool", "name": "run_tests"}
        second = body("a", "b", "c", "d", "e", tool_choice=forced)
        return (
            Script().call(0, 0, 39_150, body=first).call(25, 7_350, 33_300, body=second).session()
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Let the model choose."""
        first = body("a", "b", "c")
        second = body("a", "b", "c", "d", "e", tool_choice={"type": "auto"})
        return (
            Script().call(0, 0, 39_150, body=first).call(25, 39_150, 1_500, body=second).session()
        )

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        yield from self._drafts(ctx)

    def _drafts(self, ctx: Context) -> Iterator[Draft]:
        reasons = self.provider_reasons
        yield from changed_drafts(ctx, reasons, _is_front, FRONT_RANK, _title)
        yield from changed_drafts(ctx, (), _is_behind, MESSAGES_RANK, _title)


def _is_front(diff: Diff) -> bool:
    return diff.shape == "parameter" and diff.change.path != "model" and diff.in_front


def _is_behind(diff: Diff) -> bool:
    return diff.shape == "parameter" and not diff.in_front


def _title(change: Change) -> str:
    return f"The parameter {change.path} changed"
