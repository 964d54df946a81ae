"""Which disputed rule, set otherwise, would predict what was billed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from cacheaudit.model.call import Call
from cacheaudit.simulate.run import Simulated, run
from cacheaudit.simulate.switches import NUMBER, SWITCHES, Switches

_MOST_CALLS: Final = 5_000


def fitting_rules(
    calls: Sequence[Call], simulated: Simulated, switches: Switches
) -> dict[str, str]:
    """Try the other values of every disputed rule.

    Returns:
        By call id, ``name=value`` of the first one under which the call is predicted exactly and no
        other call is predicted worse.
    """
    off = {row.id for row in simulated.calls if row.error_tokens}
    if not off or len(calls) > _MOST_CALLS:
        return {}
    found: dict[str, str] = {}
    for name, value in _others(switches):
        tried = run(calls, switches=msgspec.structs.replace(switches, **{name: value}))
        wrong = {row.id for row in tried.calls if row.error_tokens}
        if wrong - off:
            continue
        for fitting in off - wrong:
            found.setdefault(fitting, f"{name}={value}")
    return found


def _others(switches: Switches) -> Iterator[tuple[str, str]]:
    for switch in SWITCHES:
        now = getattr(switches, switch.name)
        for value in switch.values:
            if value not in (now, NUMBER):
                yield switch.name, value
