"""Rule BRK206."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.scenes import MARKS, Scene, request
from cacheaudit.diagnose.steps import works_with_markers
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Fix
from cacheaudit.model.prompt import Prompt

_MOST = 4


class OverFourMarkers(Rule):
    """A request with more than four cache markers was refused.

    ## Why it costs

    The request fails with status 400 and has to be sent again. A client that keeps its markers in
    the history sends the same refused request for ever.

    ## What it rests on

    The recorded body of a call without usage: it carries five markers or more, the automatic one
    included. Where the record says how the call failed, the finding is proved.

    ## When to look closer

    When something between the client and the provider adds markers of its own: count both.

    ## References

    tghamm/Anthropic.SDK#50; Wei-Shaw/sub2api#176; griffinmartin/opencode-claude-auth#121.
    """

    id = "BRK206"
    name = "over-four-markers"
    title = "More than four markers: the request is refused"
    kind = "note"
    needs = ("requests",)
    fix = Fix("Drop the oldest markers in the messages; keep those on tools, system and the end")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Mark three messages besides tools and system."""
        talk = ("task", "answer", "go on", "more", "next")
        return (
            Scene()
            .send(request(*talk[:3]))
            .send(request(*talk, mark=("tools", "system", 0, 2, 4)), refused="at most 4 markers")
            .session()
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Mark the last one only."""
        talk = ("task", "answer", "go on", "more", "next")
        return Scene().send(request(*talk[:3])).send(request(*talk, mark=MARKS)).session()

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for index in ctx.unanswered:
            call = ctx.session.calls[index]
            if call.prompt is None or not works_with_markers(call):
                continue
            paths = marked_paths(call.prompt)
            if len(paths) > _MOST:
                is_refused = call.error is not None and call.error.status == 400
                yield Draft(
                    index=index,
                    verdict="proved" if is_refused else "consistent",
                    evidence="body_diff",
                    established=(
                        f"{call.id} carries {len(paths)} markers: {', '.join(paths)}.",
                        "The provider takes four at most.",
                    ),
                )


def marked_paths(prompt: Prompt) -> list[str]:
    """List the places of a request's markers."""
    paths = [block.path for block in prompt.blocks if block.marker is not None]
    return paths + (["the automatic one"] if prompt.automatic_marker is not None else [])
