"""Rule BRK201."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.scenes import continued, request
from cacheaudit.diagnose.steps import Step, minimum_of, steps
from cacheaudit.diagnose.wording import count
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix
from cacheaudit.simulate.edit import Edit
from cacheaudit.simulate.edits.mark import Mark

_RANK = 7


class PromptUnmarked(Rule):
    """The requests carry no cache marker, and the provider caches nothing without one.

    ## Why it costs

    Every request pays for the whole conversation at the full rate.

    ## What it rests on

    Recorded bodies without a marker, on an API that needs one, and a usage that neither reads nor
    writes. The loss is what each request repeats from the one before it.

    ## When to ignore

    When requests are further apart than the lifetime.

    ## References

    The provider's page on prompt caching; aws/aws-sdk-ruby#3396.
    """

    id = "BRK201"
    name = "prompt-unmarked"
    title = "Nothing is marked, so that nothing is cached"
    needs = ("usage", "requests")
    supersedes = ("provider-side-suspected", "nothing-cached")
    fix = Fix(
        "Mark the last content block of every request, or ask for the automatic marker",
        patch='"cache_control": {"type": "ephemeral"}',
    )

    @classmethod
    @override
    def bad(cls) -> Session:
        """Send three requests without a marker."""
        talk = ("task", "answer", "go on", "more", "next", "done", "last")
        return continued(*(request(*talk[:n], mark=()) for n in (3, 5, 7)))

    @classmethod
    @override
    def good(cls) -> Session:
        """Send them with markers."""
        talk = ("task", "answer", "go on", "more", "next", "done", "last")
        return continued(*(request(*talk[:n]) for n in (3, 5, 7)))

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for step in steps(ctx):
            is_long = step.shared_tokens >= minimum_of(step.call)
            if not step.marks and step.stored == 0 and is_long:
                yield _draft(step)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:  # noqa: ARG002
        """See :meth:`Rule.fix_edit`."""
        return Mark(level="messages")


def _draft(step: Step) -> Draft:
    return Draft(
        index=step.index,
        claims=step.sent_again,
        rank=_RANK,
        why="The request carries no marker.",
        verdict="proved",
        evidence="body_diff",
        established=(
            (
                f"{step.call.id}: no content block is marked and nothing was read or written; "
                f"{count(step.sent_again)} tokens are the same as in the request before."
            ),
        ),
    )
