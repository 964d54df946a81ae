"""Rule PFX209."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.changed import named_drafts
from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.diffs import Diff
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.scenes import continued, request, result, use
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix
from cacheaudit.simulate.edit import Edit
from cacheaudit.simulate.edits.normalise import Normalise


class KeyOrderInToolInput(Rule):
    """A tool call of the history was sent back as equal JSON with its keys in another order.

    ## Why it costs

    The arguments are part of the prompt as text. Another order of keys is another prompt from there
    on.

    ## What it rests on

    Recorded bodies: the JSON of the content block is equal, its bytes are not. Proved where the
    tokens read are those that earlier requests had marked in front of it; otherwise consistent, and
    what disagrees is said.

    ## When to ignore

    Never; it happens again with every tool call.

    ## References

    OpenRouterTeam/ai-sdk-provider#472; maximhq/bifrost#2082.
    """

    id = "PFX209"
    name = "key-order-in-tool-input"
    title = "The arguments of an earlier tool call were written with another key order"
    needs = ("usage", "requests")
    looks_at = ("bodies",)
    supersedes = ("messages-changed",)
    fix = Fix(
        "Keep the arguments as text, as the model wrote them, or always write them with sorted keys"
    )

    @classmethod
    @override
    def bad(cls) -> Session:
        """Write the arguments of a tool call anew."""
        call = use(1, "weather", city="Oslo", unit="C")
        first = request("task", [call], [result(1)])
        again = use(1, "weather", unit="C", city="Oslo")
        second = request("task", [again], [result(1)], "more", "next")
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Send them back as they came."""
        call = use(1, "weather", city="Oslo", unit="C")
        first = request("task", [call], [result(1)])
        second = request("task", [call], [result(1)], "more", "next")
        return continued(first, second)

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        yield from named_drafts(ctx, _matches)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:  # noqa: ARG002
        """See :meth:`Rule.fix_edit`."""
        return Normalise()


def _matches(diff: Diff) -> bool:
    return diff.shape == "key_order" and diff.change.level == "messages"
