"""Rule PFX202."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.changed import NAMED_FRONT_RANK, NAMED_MESSAGES_RANK, body_draft
from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.diffs import Diff, diffs
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.scenes import continued, request
from cacheaudit.diagnose.wording import SERVER, describe, expiry_line, reason_lines, shortfall
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix, Rival
from cacheaudit.simulate.edit import Edit
from cacheaudit.simulate.edits.freeze_text import FreezeText

# Behind everything that the record can bear out, before what it cannot explain at all.
_DISPUTED_RANK = 13


class RandomIdInPrefix(Rule):
    """An id that is made anew for each request stands in the prefix.

    It may be a request id, a nonce, a hash, a few random digits.

    ## Why it costs

    It never repeats, so that everything behind it is new in every request.

    ## What it rests on

    Recorded bodies: two versions of a text that differ in an identifier and in nothing else. Proved
    where the tokens read are those that earlier requests had marked in front of it.

    One case is left open: a line in the manner of a header that a client writes for its own
    provider. The provider's own client caches in spite of it, so that it may be taken out before
    the cache is asked; on other backends it is part of the prompt. On the provider's own API the
    verdict is `unknown`, and what differs behind the line is looked at first.

    ## When to ignore

    Never, where the prompt is long enough to be cached.

    ## References

    anthropics/claude-code#68900; sgl-project/sglang#21064;
    ex-machina-co/opencode-anthropic-auth#150.
    """

    id = "PFX202"
    name = "random-id-in-prefix"
    title = "An id that never repeats stands in the prefix"
    needs = ("usage", "requests")
    looks_at = ("bodies",)
    supersedes = ("system-changed", "messages-changed")
    fix = Fix("Take the id out of the prompt; send it as a header or as metadata")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Write a request id into the system prompt."""
        first = request("task", "answer", "go on", system="Request id: 7f3a91. You help with code.")
        second = request(
            "task",
            "answer",
            "go on",
            "more",
            "next",
            system="Request id: c01b44. You help with code.",
        )
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Send it as metadata."""
        first = request("task", "answer", "go on", metadata={"user_id": "7f3a91"})
        second = request("task", "answer", "go on", "more", "next", metadata={"user_id": "c01b44"})
        return continued(first, second)

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for diff in diffs(ctx):
            if diff.header == "alone":
                yield _disputed(ctx, diff)
            elif diff.is_text("system", "id") or diff.is_text("messages", "id"):
                rank = NAMED_FRONT_RANK if diff.in_front else NAMED_MESSAGES_RANK
                yield body_draft(diff, rank=rank)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:  # noqa: ARG002
        """See :meth:`Rule.fix_edit`."""
        return FreezeText()


def _disputed(ctx: Context, diff: Diff) -> Draft:
    event = diff.event
    lost = {other.event.index for other in diffs(ctx)}
    # The same line differs in every request of such a client: did others read in full?
    unharmed = sum(
        1 for n, change in ctx.changes.items() if change.path == diff.change.path and n not in lost
    )
    lines = [
        shortfall(event),
        describe(diff.change),
        (
            "Only a line differs that the client writes for its own provider. Whether the provider "
            "takes it out before it asks the cache is disputed."
        ),
    ]
    if unharmed:
        lines.append(
            f"It differed in {unharmed} more requests of this session, which lost nothing."
        )
    return Draft(
        index=event.index,
        claims=event.lost,
        rank=_DISPUTED_RANK,
        why="A line that the client writes for its provider differs.",
        verdict="unknown",
        evidence="body_diff",
        title="Only a line of the client's own differs; whether it matters here is disputed",
        established=(*lines, expiry_line(event), *reason_lines(event)),
        to_check=("Send the same request twice without the line, and with it.",),
        rivals=(
            SERVER,
            Rival(
                "prefix-lost-inside-ttl", "The stored prefix may have been lost without any edit."
            ),
        ),
        change=diff.change,
    )
