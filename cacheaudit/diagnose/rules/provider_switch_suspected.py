"""Rule RTE107."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.events import Event
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.mends import kept_prefix
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.wording import SERVER, expiry_line, shortfall
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix, Rival
from cacheaudit.simulate.edit import Edit

_RANK = 25
_ROUTERS = frozenset({"openrouter", "vercel", "github-copilot"})


class ProviderSwitchSuspected(Rule):
    """A request through a router of several providers read nothing inside the lifetime.

    ## Why it costs

    Each provider behind a router has its own cache. Routers keep a conversation with one of them
    only for some minutes of pause, and only where nothing in the request forbids it.

    ## What it rests on

    The record names the router and not who answered, so that it is only a thing to check, unless it
    happens several times.

    ## When to ignore

    When it happens once.
    """

    id = "RTE107"
    name = "provider-switch-suspected"
    title = "A router may have sent the request to another provider"
    fix = Fix("Name one provider, or send a session id that keeps the conversation with one")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Be sent elsewhere twice."""
        return (
            Script(model="anthropic/claude-opus-4.6", provider="openrouter")
            .call(0, 0, 30_000)
            .call(20, 0, 31_000)
            .call(40, 31_000, 500)
            .call(60, 0, 32_000)
            .session()
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Stay with one provider."""
        return (
            Script(model="anthropic/claude-opus-4.6", provider="openrouter")
            .call(0, 0, 30_000)
            .call(20, 30_000, 1_000)
            .call(40, 31_000, 500)
            .call(60, 31_500, 500)
            .session()
        )

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        found = [event for event in ctx.events if _is_candidate(event)]
        for event in found:
            yield Draft(
                index=event.index,
                claims=event.lost,
                rank=_RANK,
                why="The request went through a router that may choose another provider.",
                verdict="consistent" if len(found) > 1 else "unknown",
                established=(
                    shortfall(event),
                    (
                        f"{len(found)} call{'s' if len(found) > 1 else ''} through "
                        f"{event.call.provider} read nothing."
                    ),
                    expiry_line(event),
                ),
                to_check=(
                    "Which provider answered: the router's response or its activity log names it.",
                    (
                        "Whether a session id is sent, and whether a list of providers forbids "
                        "to stay."
                    ),
                ),
                rivals=(
                    Rival("tools-changed", "A tool added, removed, reordered or edited."),
                    Rival(
                        "system-changed", "A system prompt that changed before the first marker."
                    ),
                    SERVER,
                ),
            )

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:
        """See :meth:`Rule.fix_edit`."""
        return kept_prefix(session, finding)


def _is_candidate(event: Event) -> bool:
    return (
        event.call.provider in _ROUTERS
        and event.read == 0
        and event.switched is None
        and not event.has_bodies
        and not event.timing.overlaps
        and event.timing.state != "over"
    )
