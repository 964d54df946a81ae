"""Which rules of the catalogue an audit runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from cacheaudit.errors import UsageError

if TYPE_CHECKING:
    from cacheaudit.diagnose.rule import Rule

_ALL: Final = "all"
_NONE: Final = "none"


class Selection(msgspec.Struct, frozen=True):
    """Rules by id (``TTL101``), name (``ttl-expired``) or family (``TTL``); ``all``, ``none``.

    Attributes:
        select: Rules to run; all of them where nothing is named.
        ignore: Rules not to run, whatever is selected.
    """

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse words that name no rule."""
        if self.select or self.ignore:
            self.rules()

    @property
    def is_everything(self) -> bool:
        """Whether no rule is left out by it."""
        return not (self.select or self.ignore)

    def rules(self) -> tuple[Rule, ...]:
        """Return the rules to run, in order of id.

        Raises:
            UsageError: A word names no rule.
        """
        from cacheaudit.diagnose.rule import all_rules  # totals never ask for a rule

        every = all_rules()
        chosen = _named(self.select, every) if self.select else {rule.id for rule in every}
        chosen -= _named(self.ignore, every)
        return tuple(rule for rule in every if rule.id in chosen)

    def words(self) -> list[str]:
        """Write it as options of a command."""
        named = (("--select", self.select), ("--ignore", self.ignore))
        return [word for option, names in named for name in names for word in (option, name)]


def parse_selection(select: Iterable[str], ignore: Iterable[str]) -> Selection:
    """Read option values, each one word or several with commas between.

    Raises:
        UsageError: A word names no rule.
    """
    return Selection(_words(select), _words(ignore))


def _words(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(word for value in values for part in value.split(",") if (word := part.strip()))


def _named(words: Iterable[str], every: tuple[Rule, ...]) -> set[str]:
    found: set[str] = set()
    for word in words:
        found |= _one(word, every)
    return found


def _one(word: str, every: tuple[Rule, ...]) -> set[str]:
    lower, upper = word.lower(), word.upper()
    if lower == _ALL:
        return {rule.id for rule in every}
    if lower == _NONE:
        return set()
    found = {rule.id for rule in every if upper in (rule.id, rule.family) or lower == rule.name}
    if not found:
        known = {name for rule in every for name in (rule.id, rule.name, rule.family)}
        import difflib

        near = difflib.get_close_matches(word, sorted(known), n=2, cutoff=0.5)
        hint = f"Did you mean {' or '.join(near)}?" if near else "`cacheaudit rules` lists them."
        raise UsageError(f"There is no rule or family {word!r}.", hint)
    return found
