"""How far apart the savings of all fixes lie under the disputed rules and the chances.

Every disputed rule that can matter for a session is set to its other values, one after another;
then all that lower the saving together, and all that raise it. Where a fix rests on the model
doing something of its own accord, that it does not is tried too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Final

import msgspec

from cacheaudit.model.call import Call
from cacheaudit.pricing.book import PriceBook
from cacheaudit.simulate.betas import betas_of
from cacheaudit.simulate.bill import Saving
from cacheaudit.simulate.build import rules_of
from cacheaudit.simulate.edit import Edit
from cacheaudit.simulate.edits.auto_tool_choice import AutoToolChoice, is_forced
from cacheaudit.simulate.edits.steady_settings import SteadySettings
from cacheaudit.simulate.machine import kind
from cacheaudit.simulate.switches import AUTO, NUMBER, SWITCHES, Switches
from cacheaudit.simulate.whatif import Lab

TOO_MUCH: Final = "too many calls to try the disputed rules; audit the session by itself"
_NOTHING: Final = "no disputed rule could be tried on these calls"
# Calls that may be simulated for the range of one session.
_WORK: Final = 20_000
_TRIES_BESIDE: Final = 5
# Numbers that are disputed; of the others only the default is known.
_NUMBERS: Final = {"visible_after": ("2",), "deepseek_unit": ("0",)}
# Settings that a rule is about, by words in the names of parameters.
_PARAMETERS: Final = {
    "tool_choice": ("tool_choice", "toolChoice", "toolConfig"),
    "thinking": ("thinking", "additionalModelRequestFields"),
    "effort": ("effort",),
    "speed": ("speed",),
}
_Setting = dict[str, str]


class Spread(msgspec.Struct, frozen=True):
    """Least and most that all fixes of a session save.

    Attributes:
        low: The least; ``None`` where it was not tried.
        high: The most.
        reason: Why it was not tried.
        work: Calls simulated to find out.
    """

    low: Saving | None = None
    high: Saving | None = None
    reason: str | None = None
    work: int = 0


def spread(
    lab: Lab, edits: Sequence[Edit], saves: Saving, book: PriceBook | None, budget: int
) -> Spread:
    """Try the fixes of one session under other rules.

    Args:
        lab: The session under the default rules.
        edits: Its fixes, as they go together.
        saves: What they save under the default rules.
        book: Prices.
        budget: Calls that may be simulated.
    """
    if not edits:
        return Spread(saves, saves)
    settings = list(_settings(lab.calls, lab.switches))
    tries = len(settings) + _TRIES_BESIDE
    if 2 * tries * len(lab.calls) > min(budget, _WORK):
        return Spread(reason=TOO_MUCH)
    return _Tries(lab, edits, saves, book).spread(settings)


class _Tries:
    """All fixes of one session under one setting after another."""

    def __init__(
        self, lab: Lab, edits: Sequence[Edit], saves: Saving, book: PriceBook | None
    ) -> None:
        self._lab = lab
        self._saves = saves
        self._book = book
        self._edits = edits
        self._unlucky = _unlucky(lab.calls, edits)
        self._found = [saves]
        self._work = 0

    def spread(self, settings: Sequence[_Setting]) -> Spread:
        """Try settings alone, then the worst and the best of them together."""
        worst: dict[str, tuple[Decimal, str]] = {}
        best: dict[str, tuple[Decimal, str]] = {}
        usual = self._saves.rank
        for setting in settings:
            rank = self._try(self._laboratory(setting), self._edits)
            ((name, value),) = setting.items()
            if rank is not None and rank < usual:
                worst[name] = min(worst.get(name, (rank, value)), (rank, value))
            if rank is not None and rank > usual:
                best[name] = max(best.get(name, (rank, value)), (rank, value))
        if self._unlucky is not None:
            self._try(self._lab, self._unlucky)
        for ends in (worst, best):
            if len(ends) > 1 or (ends and self._unlucky is not None):
                lab = self._laboratory({name: value for name, (_, value) in ends.items()})
                self._try(lab, self._edits)
                if self._unlucky is not None:
                    self._try(lab, self._unlucky)
        if len(self._found) == 1 and (settings or self._unlucky is not None):
            return Spread(reason=_NOTHING, work=self._work)
        ranked = sorted(self._found, key=lambda saving: saving.rank)
        return Spread(ranked[0], ranked[-1], work=self._work)

    def _laboratory(self, setting: _Setting) -> Lab:
        switches = msgspec.structs.replace(self._lab.switches, **setting)
        lab = Lab(self._lab.calls, self._book, switches)
        self._work += lab.work
        return lab

    def _try(self, lab: Lab, edits: Sequence[Edit]) -> Decimal | None:
        before = lab.work
        trial = lab.together([lab.priced(edit) for edit in edits])
        self._work += lab.work - before
        if trial.bill is None:
            return None
        self._found.append(trial.saves)
        return trial.saves.rank


def _settings(calls: Sequence[Call], usual: Switches) -> Iterator[_Setting]:
    """Yield each disputed rule's other values, as far as they can matter for these calls."""
    facts = {id(rules): rules for call in calls if (rules := rules_of(call)) is not None}
    known = [rules for rules in facts.values() if rules.machine is not None]
    before = [kind(rules.machine or "").rules(rules, usual) for rules in known]
    sent = set(_about_requests(calls))
    for switch in SWITCHES:
        for value in _others(switch.name, switch.values, getattr(usual, switch.name)):
            setting = {switch.name: value}
            switches = msgspec.structs.replace(usual, **setting)
            after = [kind(rules.machine or "").rules(rules, switches) for rules in known]
            is_other = any(rules.text(f"drops.{switch.name}") != value for rules in known)
            if after != before or (switch.name in sent and is_other):
                yield setting


def _others(name: str, values: Iterable[str], default: str) -> Iterator[str]:
    for value in values:
        if value == NUMBER:
            yield from _NUMBERS.get(name, ())
        elif value not in (AUTO, default):
            yield value


def _about_requests(calls: Sequence[Call]) -> Iterator[str]:
    """Name the rules about requests that these requests touch."""
    prompts = [call.prompt for call in calls if call.prompt is not None]
    values: dict[str, set[bytes | None]] = {}
    for number, prompt in enumerate(prompts):
        mine = {parameter.name: parameter.value for parameter in prompt.parameters}
        for name in mine.keys() - values.keys():
            values[name] = {None} if number else set()
        for name, seen in values.items():
            seen.add(mine.get(name))
    varied = [name for name, seen in values.items() if len(seen) > 1]
    for switch, words in _PARAMETERS.items():
        if any(word in name for name in varied for word in words):
            yield switch
    kinds = {block.kind for prompt in prompts for block in prompt.blocks}
    if "image" in kinds:
        yield "images"
    if any(name.endswith("_tool_result") for name in kinds):
        yield "server_tools"
    if len({frozenset(betas_of(call) or ()) for call in calls}) > 1:
        yield "beta_headers"


def _unlucky(calls: Iterable[Call], edits: Sequence[Edit]) -> list[Edit] | None:
    """Put the forced request behind each free one that a fix makes of it: the model did not comply.

    Returns:
        ``None`` where no fix frees a forced choice.
    """
    if not any(is_forced(call) for call in calls):
        return None
    found = [_not_complied(edit) for edit in edits]
    return None if found == list(edits) else found


def _not_complied(edit: Edit) -> Edit:
    if isinstance(edit, SteadySettings):
        words = _PARAMETERS["tool_choice"]
        if any(word in name for name in edit.names for word in words):
            return AutoToolChoice(calls=edit.calls, path="retry")
    if isinstance(edit, AutoToolChoice):
        return msgspec.structs.replace(edit, path="retry")
    return edit
