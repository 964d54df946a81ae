"""Rule PFX223."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from cacheaudit.diagnose.changed import NAMED_FRONT_RANK, named_drafts
from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.diffs import Diff, goes_on_from
from cacheaudit.diagnose.events import Event
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.scenes import Scene, request
from cacheaudit.diagnose.shapes import new_messages
from cacheaudit.diagnose.wording import count
from cacheaudit.model.call import Call, Session
from cacheaudit.model.finding import Fix

_FRONT = ("system_text", "system_blocks", "tools_gone", "tools_removed", "tools_added")
_FEW_MESSAGES = 3


class SideCallWithOwnPrompt(Rule):
    """A call in the middle of a conversation has nothing in common with it.

    It gives a title, checks a command, or asks something else with a prompt of its own.

    ## Why it costs

    It writes its prompt and reads nothing of the conversation but tools that both share. Nothing
    was lost: it is new text that no cache can have held, and the next call reads what the one
    before had left. What it costs is the write, where nobody reads it again.

    ## What it rests on

    Recorded bodies: another system prompt or other tools, another first message, and few of them.
    Where such calls go on in turn with the conversation, each extends the one of its own before it
    and read all that this one had left.

    ## When to ignore

    When the prompt is short. A marker on a prompt that is sent once only adds the price of a write.

    ## References

    The side-call triple of the recorded captures.
    """

    id = "PFX223"
    name = "side-call-with-own-prompt"
    title = "A side call has a prompt of its own"
    kind = "note"
    needs = ("usage", "requests")
    looks_at = ("bodies",)
    fix = Fix("Record side calls in a lane of their own; mark in them only what others share")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Ask for a title in between."""
        title = request("Give this a title", system="You write short titles.")
        return (
            Scene()
            .send(request("task", "answer", "go on"))
            .send(title)
            .send(request("task", "answer", "go on", "more", "next"))
            .session()
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Ask for it in a lane of its own, without markers."""
        title = request("Give this a title", system="You write short titles.", mark=())
        return (
            Scene()
            .send(request("task", "answer", "go on"))
            .send(title, lane="titles", purpose="other")
            .send(request("task", "answer", "go on", "more", "next"))
            .session()
        )

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for draft in named_drafts(ctx, _matches, says=_says):
            yield msgspec.structs.replace(draft, claims=0, void=True, established=_lines(draft))
        for event in ctx.events:
            index = goes_on_from(ctx, event)
            left = 0 if index is None else _left_by(ctx.session.calls[index])
            if index is not None and 0 < left <= event.read:
                yield _draft(event, ctx.session.calls[index].id)


def _left_by(call: Call) -> int:
    usage = call.usage
    return 0 if usage is None else (usage.cache_read or 0) + (usage.cache_write or 0)


def _draft(event: Event, before: str) -> Draft:
    return Draft(
        index=event.index,
        rank=NAMED_FRONT_RANK,
        void=True,
        verdict="proved",
        evidence="body_diff",
        why="It goes on with a conversation of its own.",
        established=(
            (
                f"{event.call.id} extends {before}, not the call before it, and read all that "
                f"{before} had left in the cache: {count(event.read)} tokens."
            ),
        ),
    )


def _lines(draft: Draft) -> tuple[str, ...]:
    """Leave out the shortfall, which the draft of a difference begins with."""
    return draft.established[1:]


def _matches(diff: Diff) -> bool:
    if diff.shape not in _FRONT or diff.event.call.purpose in ("compaction", "keep_alive"):
        return False
    mine, theirs = diff.before.at_level("messages"), diff.after.at_level("messages")
    if not mine or not theirs or mine[0].digest == theirs[0].digest:
        return False
    known = {block.digest for block in mine}
    is_foreign = not any(block.digest in known for block in theirs)
    return is_foreign and new_messages(diff.after) <= _FEW_MESSAGES


def _says(diff: Diff) -> str:
    return (
        f"None of its {new_messages(diff.after)} messages stands in the conversation before: "
        "nearly all of it is new text."
    )
