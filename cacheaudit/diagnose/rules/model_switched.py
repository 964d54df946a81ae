"""Rule MDL101."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.events import Event
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.mends import one_model
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.wording import count, reason_lines, shortfall
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix
from cacheaudit.simulate.edit import Edit

_RANK = 8


class ModelSwitched(Rule):
    """The conversation went on with another model.

    ## Why it costs

    Cached content belongs to one model. The first call of another one writes the whole prompt;
    going back reads only what the first model had seen, as long as that still lives.

    ## What it rests on

    The model names of the record: two models never share cached content. Also the provider's
    `model_changed`, which stands for a change of speed too.

    ## When to ignore

    When the other model is so much cheaper that it earns the rewrite.
    """

    id = "MDL101"
    name = "model-switched"
    title = "The model was switched in mid-conversation"
    provider_reasons = ("model_changed",)
    fix = Fix("Stay with one model, or give the other model a short prompt of its own")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Ask another model once, with the whole conversation."""
        return (
            Script()
            .call(0, 0, 50_000)
            .call(30, 0, 51_000, model="claude-sonnet-4-6")
            .call(60, 50_000, 2_000)
            .session()
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Stay with the model."""
        return Script().call(0, 0, 50_000).call(30, 50_000, 1_000).call(60, 51_000, 1_000).session()

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for event in ctx.events:
            if event.switched is not None:
                yield _switched(event)
            elif event.reason in self.provider_reasons:
                yield _reported(event)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:
        """See :meth:`Rule.fix_edit`."""
        return one_model(session, finding)


def _switched(event: Event) -> Draft:
    lines = [
        shortfall(event),
        (
            f"The previous call was answered by {event.switched}, this one by {event.call.model}; "
            "models do not share cached content."
        ),
    ]
    if event.same_model_read:
        lines.append(
            f"The {count(event.read)} tokens read are what {event.call.model} had cached at its "
            "own last call: its older prefix was still there."
        )
    return Draft(
        index=event.index,
        claims=event.lost,
        rank=_RANK,
        why="The model differs from that of the previous call.",
        verdict="proved",
        established=(*lines, *reason_lines(event)),
        change=event.change,
    )


def _reported(event: Event) -> Draft:
    return Draft(
        index=event.index,
        claims=event.lost,
        rank=_RANK,
        why="The provider says so.",
        verdict="consistent",
        evidence="reported",
        established=(
            shortfall(event),
            *reason_lines(event),
            (
                f"Both records name the model {event.call.model}; the provider counts a change of "
                "speed as a change of model."
            ),
        ),
        to_check=("Compare the `speed` and the model aliases of the two requests.",),
    )
