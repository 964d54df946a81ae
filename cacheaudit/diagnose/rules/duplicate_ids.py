"""Rule DAT110."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.survey import survey
from cacheaudit.diagnose.wording import first_of
from cacheaudit.model.call import Session
from cacheaudit.model.plural import plural


class DuplicateIds(Rule):
    """Two records of a session have the same id and were not recognised as copies.

    ## Why it is shown

    If they are copies, their tokens are counted twice; if they are not, statements about one of
    them cannot be told from the other.

    ## What it rests on

    Equal ids of calls whose source does not say when two records are the same call.

    ## When to ignore

    When the source numbers its records anew in each part.
    """

    id = "DAT110"
    name = "duplicate-ids"
    title = "Several records have the same id"
    kind = "note"
    needs = ()

    @classmethod
    @override
    def bad(cls) -> Session:
        """Repeat an id."""
        return _changed(
            Script().call(0, 0, 9_000).call(30, 9_000, 900).call(60, 9_900, 900).session(),
            2,
            id="call-2",
        )

    @classmethod
    @override
    def good(cls) -> Session:
        """Keep ids apart."""
        return Script().call(0, 0, 9_000).call(30, 9_000, 900).call(60, 9_900, 900).session()

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        found = survey(ctx).duplicates
        if found:
            yield Draft(
                index=found[0],
                verdict="proved",
                established=(
                    (
                        f"{plural(len(found), 'record repeats', 'records repeat')} the id of an "
                        f"earlier one{first_of(len(found), ctx.session.calls[found[0]].id)}."
                    ),
                ),
                to_check=("Whether they are copies of one call.",),
            )


def _changed(session: Session, index: int, **fields: Any) -> Session:
    calls = list(session.calls)
    calls[index] = msgspec.structs.replace(calls[index], **fields)
    return msgspec.structs.replace(session, calls=tuple(calls))
