"""Rule TOL208."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cacheaudit.diagnose.changed import body_draft
from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.diffs import Diff, diffs
from cacheaudit.diagnose.events import Opening
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.scenes import MARKS, Scene, request
from cacheaudit.diagnose.steps import is_much
from cacheaudit.diagnose.wording import count, describe
from cacheaudit.model.call import Call, Session
from cacheaudit.model.change import first_change
from cacheaudit.model.finding import Finding, Fix
from cacheaudit.model.prompt import Prompt
from cacheaudit.simulate.edit import Edit
from cacheaudit.simulate.edits.keep_front import KeepFront

# In front of what the record says of a summary: the bodies say more.
_RANK = 4
SIDE_CALLS = frozenset({"compaction", "keep_alive", "warm_up", "probe"})


class ToolsDroppedOnSideCall(Rule):
    """A side call carries the conversation without its tools.

    Such calls summarise the conversation, keep it alive, or give it a title.

    ## Why it costs

    Tools come first. Without them the call shares no prefix with the conversation, however equal
    the messages are: a summary of a long conversation is paid in full, and a call that is meant to
    keep the cache alive refreshes nothing.

    ## What it rests on

    Recorded bodies: the tools are missing, the conversation is the same or the record calls it a
    side call. Proved where nothing of it was read.

    ## When to ignore

    When the conversation is short, or the cached content had expired anyway.

    ## References

    opencode#43249; openai/codex#37305; tcdent/codey#75.
    """

    id = "TOL208"
    name = "tools-dropped-on-side-call"
    title = "A side call without tools shares no prefix with its conversation"
    needs = ("usage", "requests")
    supersedes = (
        "tools-changed",
        "system-changed",
        "history-rewritten",
        "compaction-request-cold",
    )
    fix = Fix(
        "Send side calls with the tools, system and settings of the conversation and append the "
        "instruction as the newest message"
    )

    @classmethod
    @override
    def bad(cls) -> Session:
        """Ask for a summary without tools."""
        talk = ("task", "answer", "go on", "more", "next", "done")
        return (
            Scene()
            .send(request(*talk[:5]))
            .send(request(*talk, "Summarise.", tools=()), purpose="compaction")
            .session()
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Ask for it with them."""
        talk = ("task", "answer", "go on", "more", "next", "done")
        return (
            Scene()
            .send(request(*talk[:5]))
            .send(request(*talk, "Summarise.", mark=MARKS), purpose="compaction")
            .session()
        )

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for diff in diffs(ctx):
            if diff.shape == "tools_gone" and _is_side_call(diff):
                yield body_draft(diff, rank=_RANK, says=(_line(diff),))
        for opening in ctx.openings:
            yield from _in_own_lane(ctx, opening)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:  # noqa: ARG002
        """See :meth:`Rule.fix_edit`."""
        return KeepFront()


def _is_side_call(diff: Diff) -> bool:
    return diff.event.call.purpose in SIDE_CALLS or _same_opening(diff.before, diff.after)


def _same_opening(a: Prompt, b: Prompt) -> bool:
    mine, theirs = a.at_level("messages"), b.at_level("messages")
    return bool(mine and theirs) and mine[0].digest == theirs[0].digest


def _line(diff: Diff) -> str:
    number = len(diff.before.at_level("tools"))
    line = f"The request before declares {number} tools, this one none: they share no prefix."
    if diff.event.call.purpose == "keep_alive":
        line += " It keeps nothing alive."
    return line


def _in_own_lane(ctx: Context, opening: Opening) -> Iterator[Draft]:
    """Compare a side call that the record keeps apart with the conversation that it carries."""
    call = opening.call
    if call.purpose not in SIDE_CALLS or call.prompt is None or call.prompt.at_level("tools"):
        return
    main = _conversation(ctx, opening.index, call.prompt)
    if main is None or main.prompt is None or main.usage is None:
        return
    stored = (main.usage.cache_read or 0) + (main.usage.cache_write or 0)
    lost = min(opening.total, stored or main.usage.prompt_size or 0) - opening.read
    change = first_change(main.prompt, call.prompt)
    if change is None or not is_much(lost, opening.total):
        return
    yield Draft(
        index=opening.index,
        claims=lost,
        rank=_RANK,
        why="It carries the conversation without its tools.",
        verdict="proved" if opening.read == 0 else "consistent",
        evidence="body_diff",
        established=(
            (
                f"{call.id} carries the conversation of {main.id} without its tools and read "
                f"{count(opening.read)} of {count(opening.total)} tokens."
            ),
            describe(change),
        ),
        change=change,
        also=(main.id,),
    )


def _conversation(ctx: Context, index: int, prompt: Prompt) -> Call | None:
    for call in reversed(ctx.session.calls[:index]):
        known = call.prompt
        if known is None or known.level_order != prompt.level_order:
            continue
        if known.at_level("tools") and _same_opening(known, prompt):
            return call
    return None
