"""Rule RTE108."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.events import Event
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.wording import shortfall
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix, Rival
from cacheaudit.simulate.build import owners_of, rules_of
from cacheaudit.simulate.edit import Edit
from cacheaudit.simulate.edits.one_route import OneRoute

_RANK = 8
_RIVALS = (Rival("system-changed", "Clients often send other instructions elsewhere."),)


class ServiceChanged(Rule):
    """The request went to another platform, account or workspace than the one before.

    ## Why it costs

    Caches belong to one service, and on it to one organisation or workspace. The same model behind
    another platform, or asked with another workspace's key, has nothing of the conversation.

    ## What it rests on

    The record names another service for the two calls, or another account, organisation, workspace,
    project or key. On platforms whose caches belong to an organisation, only that counts.

    ## When to ignore

    When the move was wanted.
    """

    id = "RTE108"
    name = "service-changed"
    title = "The conversation went on with another service"
    supersedes = ("alternating-accounts",)
    fix = Fix("Keep a conversation on the service where it began")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Move to another platform in mid-conversation."""
        return _moved(
            Script().call(0, 0, 30_000).call(30, 0, 31_000).call(60, 31_000, 500).session()
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Stay."""
        return Script().call(0, 0, 30_000).call(30, 30_000, 1_000).call(60, 31_000, 500).session()

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        for event in ctx.events:
            before, now = event.previous.surface, event.call.surface
            if before is not None and now is not None and before != now:
                yield _draft(
                    event,
                    None,
                    "The record names another service.",
                    f"The call before went to {before}, this one to {now}; services do not share "
                    "cached content.",
                )
                continue
            fields = _other_owners(event)
            if fields:
                names = ", ".join(fields)
                yield _draft(
                    event,
                    "The conversation went on in another account or workspace",
                    f"The record names another {names}.",
                    f"The two calls differ in {names}; what is cached for one is not found for "
                    "the other.",
                )

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:  # noqa: ARG002
        """See :meth:`Rule.fix_edit`."""
        return OneRoute(surface=True)


def _draft(event: Event, title: str | None, why: str, told: str) -> Draft:
    is_same = event.has_bodies and event.change is None
    return Draft(
        index=event.index,
        claims=event.lost,
        rank=_RANK,
        title=title,
        why=why,
        verdict="proved" if is_same else "consistent",
        evidence="body_diff" if is_same else "usage",
        established=(
            shortfall(event),
            told,
            *(("The bodies show an unchanged prefix.",) if is_same else ()),
        ),
        to_check=() if is_same else ("Whether anything else changed in the same moment.",),
        rivals=() if is_same else _RIVALS,
    )


def _other_owners(event: Event) -> list[str]:
    """Name the fields in which the record tells apart whose caches two calls used."""
    if not event.call.extra or not event.previous.extra:
        return []
    facts = rules_of(event.call)
    if facts is None:
        return []
    before, now = owners_of(event.previous, facts), owners_of(event.call, facts)
    return [name for name in now if name in before and before[name] != now[name]]


def _moved(session: Session) -> Session:
    first, *others = session.calls
    calls = (
        msgspec.structs.replace(first, surface="bedrock"),
        *(msgspec.structs.replace(call, surface="claude_api") for call in others),
    )
    return msgspec.structs.replace(session, calls=calls)
