"""What a record must hold for a rule to speak, found out from the rule's own bad example."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import cache
from typing import Final

import msgspec

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.rule import Rule
from cacheaudit.model.call import Call, Session


@cache
def needs(rule: Rule) -> tuple[str, ...]:
    """Find out what a rule needs: take each thing out of its own bad example and ask again.

    A rule that states ``needs`` itself is believed.
    """
    stated = _stated(rule)
    if stated:
        return stated
    session = type(rule).bad()
    found = [name for name in _WITHOUT if not _speaks(rule, session, [name])]
    return tuple(found) or ("usage",)


def lacking(rule: Rule, absent: Collection[str]) -> tuple[str, ...]:
    """Name what a rule lacks in a record that has none of some things; empty where it can speak.

    Args:
        rule: The rule.
        absent: Names as :func:`needs` gives them.
    """
    stated = _stated(rule)
    if stated:
        return tuple(name for name in stated if name in absent)
    session = type(rule).bad()
    used = [name for name in _WITHOUT if name in absent and holds(session.calls, name)]
    if not used or _speaks(rule, session, used):
        return ()
    alone = [name for name in used if not _speaks(rule, session, [name])]
    return tuple(alone or used)


def holds(calls: Iterable[Call], name: str) -> bool:
    """Whether any of the calls has what :func:`needs` names."""
    has = _HAS[name]
    return any(has(call) for call in calls)


def _stated(rule: Rule) -> tuple[str, ...]:
    stated = getattr(rule, "needs", None)
    return tuple(str(item) for item in stated) if isinstance(stated, tuple) else ()


def _speaks(rule: Rule, session: Session, without: Iterable[str]) -> bool:
    calls = session.calls
    for name in without:
        calls = tuple(map(_WITHOUT[name], calls))
    stripped = msgspec.structs.replace(session, calls=calls)
    try:
        return any(draft.claims or rule.kind == "note" for draft in rule.check(Context(stripped)))
    except Exception:  # a rule that cannot do without it needs it
        return False


def _no_usage(call: Call) -> Call:
    return msgspec.structs.replace(call, usage=None)


def _no_request(call: Call) -> Call:
    return msgspec.structs.replace(call, prompt=None)


def _no_times(call: Call) -> Call:
    return msgspec.structs.replace(
        call, started_at=None, start_span=None, first_token_at=None, ended_at=None
    )


def _no_reason(call: Call) -> Call:
    return msgspec.structs.replace(call, diagnostics=None)


def _no_boundary(call: Call) -> Call:
    return msgspec.structs.replace(call, boundaries=())


_WITHOUT: Final[dict[str, Callable[[Call], Call]]] = {
    "usage": _no_usage,
    "requests": _no_request,
    "start_times": _no_times,
    "provider_reasons": _no_reason,
    "boundaries": _no_boundary,
}
_HAS: Final[dict[str, Callable[[Call], bool]]] = {
    "usage": lambda call: call.usage is not None,
    "requests": lambda call: call.prompt is not None,
    "start_times": lambda call: call.started_at is not None or call.start_span is not None,
    "provider_reasons": lambda call: call.diagnostics is not None,
    "boundaries": lambda call: bool(call.boundaries),
}
THINGS: Final = tuple(_WITHOUT)
"""Everything that a rule can need."""
