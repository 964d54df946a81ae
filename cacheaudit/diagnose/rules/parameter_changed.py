"""Rule MDL102."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cacheaudit.diagnose.changed import FRONT_RANK, MESSAGES_RANK, changed_drafts
from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.diffs import Diff
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.scenes import Scene
from cacheaudit.model.call import Session
from cacheaudit.model.change import Change
from cacheaudit.model.finding import Fix

_TALK = [{"role": "user", "parts": [{"text": word}]} for word in ("task", "go on", "more", "next")]


class ParameterChanged(Rule):
    """A setting that takes part in the cache key differs from the request before.

    ## Why it costs

    Some settings are part of what identifies a prefix. Two values mean two separate lines of cached
    content; a value that flips back and forth pays for both.

    ## What it rests on

    Recorded bodies. The settings that are met most often have rules of their own; this one speaks
    for all others.

    ## When to ignore

    When the setting is needed for that one call and the prompt is short.
    """

    id = "MDL102"
    name = "parameter-changed"
    title = "A parameter in the cache key changed"
    needs = ("usage", "requests")
    looks_at = ("bodies",)
    no_edit = (
        "The settings with known effects have rules of their own; what is read behind another "
        "stored prefix is not documented."
    )
    fix = Fix("Keep the parameter the same over the whole session")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Name another stored prefix, as one provider allows."""
        scene = Scene(provider="gemini", model="gemini-3-pro")
        return (
            scene.send({"contents": _TALK[:3], "cachedContent": "one"})
            .send({"contents": _TALK, "cachedContent": "two"})
            .session()
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Keep the name."""
        scene = Scene(provider="gemini", model="gemini-3-pro")
        return (
            scene.send({"contents": _TALK[:3], "cachedContent": "one"})
            .send({"contents": _TALK, "cachedContent": "one"})
            .session()
        )

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        yield from self._drafts(ctx)

    def _drafts(self, ctx: Context) -> Iterator[Draft]:
        yield from changed_drafts(ctx, (), _is_front, FRONT_RANK, _title)
        yield from changed_drafts(ctx, (), _is_behind, MESSAGES_RANK, _title)


def _is_front(diff: Diff) -> bool:
    return diff.shape == "parameter" and diff.change.path != "model" and diff.in_front


def _is_behind(diff: Diff) -> bool:
    return diff.shape == "parameter" and not diff.in_front


def _title(change: Change) -> str:
    return f"The parameter {change.path} changed"
