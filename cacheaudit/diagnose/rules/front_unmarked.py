"""Rule BRK208."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.diffs import Diff, diffs
from cacheaudit.diagnose.reach import Reach, markers, size_before
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.scenes import continued, request
from cacheaudit.diagnose.shapes import levels_in_front
from cacheaudit.diagnose.steps import is_much, minimum_of
from cacheaudit.diagnose.wording import count, describe, shortfall
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix, Rival
from cacheaudit.simulate.edit import Edit
from cacheaudit.simulate.edits.mark import Mark

# In front of the rules that name the difference: this part is not lost by it.
_RANK = 6


class FrontUnmarked(Rule):
    """Tools and system have no marker of their own, so that they are lost with the conversation.

    ## Why it costs

    When something changes in the conversation, a marker at the end of the system prompt keeps what
    stands in front of it readable. Without one, a small change loses everything.

    ## What it rests on

    Recorded bodies: the first difference lies behind a stable part that is long enough to be
    cached, and no earlier request marked a place in it. This rule takes only those tokens; those
    behind the difference belong to the rule that names it. Proved where nothing was read.

    ## When to ignore

    When nothing ever changes in front, or all four markers are needed elsewhere.

    ## References

    anthropics/claude-code#47107; can1357/oh-my-pi#7324.
    """

    id = "BRK208"
    name = "front-unmarked"
    title = "Tools and system carry no marker of their own"
    needs = ("usage", "requests")
    looks_at = ("bodies",)
    fix = Fix(
        "Mark the last system block as well",
        patch='"cache_control": {"type": "ephemeral"}',
    )

    @classmethod
    @override
    def bad(cls) -> Session:
        """Mark the last message only, and force a tool."""
        tools = ("edit", "list_files", "query_db", "read_file", "run_tests", "search")
        first = request("task", tools=tools, mark=("last",))
        forced = {"type": "tool", "name": "edit"}
        second = request("task", "answer", "go on", tools=tools, mark=("last",), tool_choice=forced)
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Mark the system prompt too, and force nothing."""
        tools = ("edit", "list_files", "query_db", "read_file", "run_tests", "search")
        first = request("task", tools=tools, mark=("system", "last"))
        second = request("task", "answer", "go on", tools=tools, mark=("system", "last"))
        return continued(first, second)

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for diff in diffs(ctx):
            found = diff.reach
            if found is not None and found.marked and _matches(diff, found):
                yield _draft(diff, found)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:  # noqa: ARG002
        """See :meth:`Rule.fix_edit`."""
        return Mark(level="system")


def _matches(diff: Diff, found: Reach) -> bool:
    event = diff.event
    if not event.explicit or diff.change.level == "tools" or diff.header is not None:
        return False
    is_on_it = markers(diff.before)[:1] == [diff.change.blocks_before]
    if is_on_it and diff.shape != "parameter":
        return False  # another rule: the marker stands on the difference itself
    if event.timing.state == "over" and not event.timing.contradicted:
        return False
    front = _front(diff)
    lost = front - max(found.tokens, event.read)
    is_long = front >= minimum_of(event.call) and is_much(lost, event.total)
    return is_long and event.read <= found.tokens + found.above and event.lost >= lost


def _front(diff: Diff) -> int:
    """Tokens of the whole levels in front of the level in which the difference lies."""
    levels = levels_in_front(diff.after, diff.change.level)
    return size_before(
        diff.event.call, sum(1 for block in diff.after.blocks if block.level in levels)
    )


def _draft(diff: Diff, found: Reach) -> Draft:
    event = diff.event
    front = _front(diff)
    return Draft(
        index=event.index,
        claims=front - max(event.read, found.tokens),
        rank=_RANK,
        why="Nothing in front of the difference is marked.",
        verdict="proved" if found.agrees(event.read) else "consistent",
        evidence="body_diff",
        established=(
            shortfall(event),
            describe(diff.change),
            (
                f"What stands in front of this level is unchanged, {count(front)} tokens; the last "
                f"marker of earlier requests among them ends at {count(found.tokens)}."
            ),
        ),
        rivals=(Rival("ttl-expired", "An expired entry would look the same."),)
        if event.timing.state != "under"
        else (),
        change=diff.change,
    )
