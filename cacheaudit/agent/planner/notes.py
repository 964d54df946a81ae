"""What the planner did in a session and why, for ``s.report()``. No text of prompts is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from decimal import Decimal
from typing import Final

from cacheaudit.agent.planner.lifetime import NONE, Choice

_KINDS_KEPT: Final = 24
_PATHS_KEPT: Final = 24
_SHOWN: Final = 5
_TOLD: Final = 3
_LEVELS: Final = {
    "tools": "tools",
    "system": "system",
    "shared": "common end",
    "history": "end of the request before",
    "tail": "end",
}
_NAMES: Final = {"5m": "5m", "1h": "1h", NONE: "unmarked"}


class Notes:
    """Counts of one session.

    Attributes:
        calls: Calls that were looked at.
        marked: Calls that got markers.
        roles: Markers by the level that they stand on.
        left: Calls left as they were, by reason.
        choices: Latest choice of a lifetime, by level.
        volatile: Changes seen at the front, by path and kind.
        seen: Text at the front that looks made anew, by path; a change of it was not seen.
        moved: Paths whose text is sent behind the last marker.
        hints: Other things that were set, by name.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.marked = 0
        self.roles: Counter[str] = Counter()
        self.left: Counter[str] = Counter()
        self.choices: dict[str, Choice] = {}
        self.volatile: Counter[tuple[str, str]] = Counter()
        self.seen: dict[str, str] = {}
        self.moved: set[str] = set()
        self.hints: Counter[str] = Counter()

    def leave(self, reason: str) -> None:
        """Note a call that is sent as it came."""
        if reason in self.left or len(self.left) < _KINDS_KEPT:
            self.left[reason] += 1

    def decided(
        self, roles: Collection[str], choices: Mapping[str, Choice], reason: str | None
    ) -> None:
        """Note what was decided for a call.

        Args:
            roles: The levels that are marked.
            choices: Lifetimes by level.
            reason: Why nothing is marked, if so.
        """
        self.marked += bool(roles)
        self.roles.update(roles)
        self.choices.update(choices)
        if reason is not None:
            self.leave(reason)

    def changed(self, path: str, kind: str) -> None:
        """Note text at the front that differs from the request before."""
        if (path, kind) in self.volatile or len(self.volatile) < _PATHS_KEPT:
            self.volatile[path, kind] += 1

    def rewritten(self, path: str, kind: str) -> None:
        """Note that a message said before was changed; the place of the first one is kept."""
        known = (place for place, what in self.volatile if what == kind and place[:9] == path[:9])
        self.changed(next(known, path), kind)

    def suspects(self, path: str, kind: str) -> bool:
        """Note text that looks made anew; ``False`` where that was noted before."""
        if path in self.seen or len(self.seen) >= _PATHS_KEPT:
            return False
        self.seen[path] = kind
        return True

    def is_known(self, path: str) -> bool:
        """Count one more change at a place whose kind was told often enough.

        Telling the kind takes longer than all the rest of a plan.
        """
        for (place, kind), count in self.volatile.items():
            if place == path and count >= _TOLD:
                self.volatile[place, kind] += 1
                return True
        return False

    def lines(self, balance: Decimal) -> Iterator[str]:
        """Write it down.

        Args:
            balance: What the markers have saved, in ordinary input tokens.
        """
        if not self.calls:
            return
        roles = ", ".join(f"{_LEVELS.get(r, r)} {n}" for r, n in self.roles.most_common())
        yield f"Planner: markers on {self.marked} of {self.calls} calls" + (
            f" ({roles})" if roles else ""
        )
        if self.marked:
            word = "saved" if balance >= 0 else "not yet earned back"
            yield f"  Foretold: {abs(balance):,.0f} ordinary input tokens {word}"
        for level, choice in self.choices.items():
            yield f"  {_choice(level, choice)}"
        for reason, count in self.left.most_common(_SHOWN):
            yield f"  {count} left as sent: {reason}"
        for name, count in self.hints.most_common(_SHOWN):
            yield f"  {name}: {count} calls"
        changed = {path for path, _ in self.volatile}
        for path, kind in self.seen.items():
            if path.partition(".")[0] not in changed:
                yield f"  {path} looks like it changes ({kind}): not seen to change so far"
        for (path, kind), count in self.volatile.most_common(_SHOWN):
            what = "sent behind the last marker" if path in self.moved else "reported only"
            yield f"  {path} changes ({kind}, {count} times): {what}"


def _choice(level: str, choice: Choice) -> str:
    kept = "not marked" if choice.kept == NONE else f"kept for {choice.kept}"
    if choice.kept != choice.ttl:
        kept += f" ({_NAMES[choice.ttl]} would be cheapest, and is not affordable yet)"
    if choice.prices:
        values = {t: f"{choice.currency} {price:.6f}" for t, price in choice.prices.items()}
    else:
        values = {t: f"{cost:.3f} times the input price" for t, cost in choice.expected.items()}
    prices = ", ".join(f"{_NAMES[ttl]} {text}" for ttl, text in values.items())
    odds = choice.odds
    return (
        f"{_LEVELS.get(level, level)} {kept}: expected {prices}; pauses {odds.short:.0%} within 5"
        f" minutes, {odds.long:.0%} within an hour, from {odds.seen} seen"
    )
