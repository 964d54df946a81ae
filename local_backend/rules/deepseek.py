"""Rules of a disk cache: whole units of tokens, stored at ends and at common beginnings."""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from local_backend._typing import override
from local_backend.rules.base import Miss, Outcome, Plan, Prompt, ServiceRules
from local_backend.rules.chain import SIZE, root


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepSeekSettings:
    """What can be set.

    Attributes:
        unit: Tokens in a unit; only whole units are read.
        interval: Units after which a long text is stored in between as well; None for never, as
            the distance is not published.
        ttl_s: Seconds that something stored lives after its last use.
        grain: Tokens in the unit that the engine reuses. What it rounds off is no eviction.
        max_units: Most units of seen texts that are remembered.
    """

    unit: int = 64
    interval: int | None = None
    ttl_s: float = 86_400.0
    grain: int = 1
    max_units: int = 1_000_000


@dataclass(slots=True)
class _Unit:
    """The prefix up to the end of one unit.

    Attributes:
        used: Second of its last use.
        readable_from: Second from which it can be read; None where it was seen, but not stored.
    """

    used: float
    readable_from: float | None = None

    def readable_at(self, now: float) -> bool:
        """Whether it is stored and can be read."""
        return self.readable_from is not None and self.readable_from <= now


class DeepSeekRules(ServiceRules):
    """Prefixes are stored where an input ends, where an answer ends, and where two texts part.

    A text of ``A+B`` and one of ``A+C`` show that ``A`` is common; a third text that begins with
    ``A`` reads it. In between nothing can be read, since a stored prefix is of use as a whole only.

    Args:
        settings: What can be set.
    """

    name = "deepseek"
    tools_first = False

    def __init__(self, settings: DeepSeekSettings | None = None) -> None:
        self.settings = settings or DeepSeekSettings()
        self._seen: OrderedDict[bytes, _Unit] = OrderedDict()

    @override
    def check(self, prompt: Prompt) -> None:
        del prompt

    @override
    def plan(self, prompt: Prompt, now: float) -> Plan:
        chain = self._chain(prompt, prompt.tokens)
        read = self._longest(chain, now)
        miss = None if read else Miss.NOTHING_STORED
        for key in chain[:read]:
            if (unit := self._seen.get(key)) is not None:
                unit.used = max(unit.used, now)
        return Plan(prompt=prompt, start=now, read=read * self.settings.unit, miss=miss)

    @override
    def began(self, plan: Plan, held: int, readable_from: float) -> Outcome:
        chain = self._chain(plan.prompt, plan.prompt.tokens)
        common = self._known(chain, plan.start)
        self._note(chain, plan.start)
        self._persist(chain, (common, len(chain)), readable_from)
        self._bound()
        allowed = plan.read or 0
        grain = self.settings.grain
        evicted = max(0, min(allowed, len(plan.prompt.tokens) - 1) // grain * grain - held)
        read = min(allowed, held)
        return Outcome(
            read=read,
            uncached=len(plan.prompt.tokens) - read,
            evicted=evicted,
            miss=Miss.EVICTED if evicted else plan.miss,
        )

    @override
    def ended(self, plan: Plan, output: tuple[int, ...], now: float) -> None:
        chain = self._chain(plan.prompt, plan.prompt.tokens + output)
        self._note(chain, plan.start)
        self._persist(chain, (len(chain),), now)
        self._bound()

    @override
    def entries(self) -> int:
        return sum(1 for unit in self._seen.values() if unit.readable_from is not None)

    def _chain(self, prompt: Prompt, tokens: Sequence[int]) -> list[bytes]:
        """Identity of the prefix up to the end of each whole unit."""
        unit, state, found = self.settings.unit, root(prompt), []
        data = memoryview(array("q", tokens).tobytes())
        for start in range(0, len(tokens) // unit * unit, unit):
            piece = data[start * 8 : (start + unit) * 8]
            state = hashlib.blake2b(state + bytes(piece), digest_size=SIZE).digest()
            found.append(state)
        return found

    def _longest(self, chain: Sequence[bytes], now: float) -> int:
        """Units of the longest prefix that can be read."""
        for length in range(len(chain), 0, -1):
            unit = self._seen.get(chain[length - 1])
            if unit is not None and self._alive(unit, now) and unit.readable_at(now):
                return length
        return 0

    def _known(self, chain: Sequence[bytes], now: float) -> int:
        """Units that an earlier text begins with, too."""
        for length, key in enumerate(chain):
            unit = self._seen.get(key)
            if unit is None or not self._alive(unit, now):
                return length
        return len(chain)

    def _note(self, chain: Sequence[bytes], now: float) -> None:
        for key in reversed(chain):  # ends are forgotten before what they rest on
            unit = self._seen.get(key)
            if unit is None or not self._alive(unit, now):
                self._seen[key] = _Unit(now)
            else:
                unit.used = max(unit.used, now)
            self._seen.move_to_end(key)

    def _persist(self, chain: Sequence[bytes], ends: Sequence[int], readable_from: float) -> None:
        step = self.settings.interval
        places = {end for end in ends if end}
        if step:
            places.update(range(step, len(chain) + 1, step))
        for place in places:
            unit = self._seen[chain[place - 1]]
            if unit.readable_from is None or unit.readable_from > readable_from:
                unit.readable_from = readable_from

    def _alive(self, unit: _Unit, now: float) -> bool:
        return now < unit.used + self.settings.ttl_s

    def _bound(self) -> None:
        while len(self._seen) > self.settings.max_units:
            self._seen.popitem(last=False)
