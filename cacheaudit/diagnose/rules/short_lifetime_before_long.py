"""Rule BRK207."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.scenes import Scene, request
from cacheaudit.diagnose.steps import works_with_markers
from cacheaudit.diagnose.times import TTL_SECONDS
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Fix
from cacheaudit.model.prompt import Prompt

_HOUR = {"type": "ephemeral", "ttl": "1h"}


class ShortLifetimeBeforeLong(Rule):
    """A marker for one hour stands behind one for five minutes, and the request was refused.

    ## Why it costs

    The request fails with status 400 and has to be sent again.

    ## What it rests on

    The recorded body of a call without usage: in the order of rendering a longer lifetime follows a
    shorter one. Where the record says how the call failed, the finding is proved.

    ## When to look closer

    When a proxy or a setting changes lifetimes in some of the markers only.

    ## References

    cnighswonger/claude-code-cache-fix#44; anthropics/claude-code#39599.
    """

    id = "BRK207"
    name = "short-lifetime-before-long"
    title = "A longer lifetime behind a shorter one: the request is refused"
    kind = "note"
    needs = ("requests",)
    fix = Fix("Give tools and system at least the lifetime that the messages have")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Ask for an hour for the messages only."""
        late = request("task", "answer", "go on", mark=("tools",))
        late["messages"][-1]["content"][-1]["cache_control"] = _HOUR
        refused = "a ttl of 1h must not come after a ttl of 5m"
        return Scene().send(request("task")).send(late, refused=refused).session()

    @classmethod
    @override
    def good(cls) -> Session:
        """Ask for five minutes everywhere."""
        return Scene().send(request("task")).send(request("task", "answer", "go on")).session()

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for index in ctx.unanswered:
            call = ctx.session.calls[index]
            if call.prompt is None or not works_with_markers(call):
                continue
            pair = out_of_order(call.prompt)
            if pair is not None:
                is_refused = call.error is not None and call.error.status == 400
                yield Draft(
                    index=index,
                    verdict="proved" if is_refused else "consistent",
                    evidence="body_diff",
                    established=(
                        f"{call.id}: {pair[1]} asks for a longer lifetime than {pair[0]} in front.",
                        "Lifetimes must not grow from tools over system to messages.",
                    ),
                )


def out_of_order(prompt: Prompt) -> tuple[str, str] | None:
    """Find two markers whose lifetimes grow, by their places."""
    shortest: tuple[float, str] | None = None
    for block in prompt.blocks:
        if block.marker is None:
            continue
        seconds = TTL_SECONDS.get(block.marker.ttl or "5m", 0)
        if shortest is not None and seconds > shortest[0]:
            return shortest[1], block.path
        if shortest is None or seconds < shortest[0]:
            shortest = (seconds, block.path)
    return None
