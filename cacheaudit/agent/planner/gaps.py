"""How long it takes until a prefix is sent again: learned from what was seen, with a prior."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from decimal import Decimal
from itertools import groupby, pairwise
from typing import Final, Literal

import msgspec

Stage = Literal["front", "first", "later"]
_SHORT: Final = 300.0
_LONG: Final = 3600.0
_WAITING: Final = 512
# Of twenty requests so many are followed by another one within 5 minutes, within the hour, later,
# and never. Agents go on within seconds; a first request is more often the only one.
_PRIOR: Final[dict[Stage, tuple[int, int, int, int]]] = {
    "front": (17, 1, 1, 1),
    "first": (14, 1, 1, 4),
    "later": (16, 1, 1, 2),
}
_WEIGHT: Final = 20
# So many pauses of its own count as much to a session as all that others have seen.
_OWN_WEIGHT: Final = 6


class Odds(msgspec.Struct, frozen=True):
    """Shares of requests whose prefix is sent again; they add up to 1.

    Attributes:
        short: Within 5 minutes.
        long: After that, within an hour.
        late: Later.
        never: Not at all.
        seen: Requests that this rests on, the prior not counted.
    """

    short: Decimal
    long: Decimal
    late: Decimal
    never: Decimal
    seen: int = 0


class Gaps:
    """Counts of pauses by their length, for the levels of one session or of all.

    Args:
        prior: Where to turn while little was seen; ``None``: fixed shares.
    """

    def __init__(self, prior: Gaps | None = None) -> None:
        self._prior = prior
        self._counts: dict[Stage, list[int]] = {s: [0, 0, 0, 0] for s in _PRIOR}
        self._waiting: OrderedDict[str, tuple[float, Stage]] = OrderedDict()

    def sent(self, line: str, stage: Stage, at: float) -> None:
        """Note a request, and with it the end of the pause before it.

        Args:
            line: What it goes on with: a line of conversation, or a front that many share.
            stage: Kind of the request.
            at: Its start, in seconds.
        """
        before = self._waiting.pop(line, None)
        if before is not None:
            self.add(before[1], at - before[0])
        self._waiting[line] = (at, stage)
        while len(self._waiting) > _WAITING:
            _, (_, lost) = self._waiting.popitem(last=False)
            self.ended(lost)

    def add(self, stage: Stage, gap: float) -> None:
        """Count a pause."""
        self._counts[stage][0 if gap <= _SHORT else 1 if gap <= _LONG else 2] += 1

    def ended(self, stage: Stage) -> None:
        """Count a request that was not followed by another one."""
        self._counts[stage][3] += 1

    def odds(self, stage: Stage, now: float) -> Odds:
        """Return the shares as they look now; who waits for more than an hour does not return."""
        counts = self._so_far(stage, now)
        seen = sum(counts)
        prior = [Decimal(n) for n in _PRIOR[stage]]
        weight = _WEIGHT
        if self._prior is not None:
            weight = _OWN_WEIGHT
            # What others have seen; this session has told its own pauses there too.
            wide = self._prior._so_far(stage, now)
            others = [max(0, w - n) for w, n in zip(wide, counts, strict=True)]
            heard = sum(others) + _WEIGHT
            prior = [(p + n) * weight / heard for p, n in zip(prior, others, strict=True)]
        whole = Decimal(seen + weight)
        short, long, late, never = ((n + p) / whole for n, p in zip(counts, prior, strict=True))
        return Odds(short, long, late, never, seen)

    def _so_far(self, stage: Stage, now: float) -> list[int]:
        counts = list(self._counts[stage])
        for at, kind in self._waiting.values():
            if kind == stage and now - at > _LONG:
                counts[3] += 1
        return counts


def pauses_of(
    starts: Iterable[tuple[str, str, float, str | None]], now: float
) -> Iterator[tuple[Stage, float | None]]:
    """Tell the pauses of recorded requests.

    Args:
        starts: Session, lane, start and stop reason of each.
        now: A line that was quiet for an hour until then is taken to have ended.

    Yields:
        Kind of the request before, and seconds to the next one; ``None``: there was none.
    """
    lanes = groupby(sorted(starts, key=lambda row: row[:3]), key=lambda row: row[:2])
    for _, rows in lanes:
        times = [row[2] for row in rows]
        for index, (before, after) in enumerate(pairwise(times)):
            yield "later" if index else "first", after - before
        if now - times[-1] > _LONG:
            yield "later" if len(times) > 1 else "first", None
