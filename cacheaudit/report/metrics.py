"""Figures of the strip below the verdict, gathered in one pass over the calls."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable
from decimal import Decimal

import msgspec

from cacheaudit.model.money import decimal
from cacheaudit.report import format as fmt
from cacheaudit.report.result import AuditResult, CallRow
from cacheaudit.report.summary import bound, hit_ratio, losses, writes

_PREFIX = frozenset({"PFX", "TOL", "MDL", "CMP"})
# Time to the first token of two kinds of calls is compared from this many of each.
_FEWEST_TIMED = 3


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of the strip.

    Attributes:
        name: What it is.
        value: As shown.
        note: What it is measured against.
        why: How it is made, for those who ask.
    """

    name: str
    value: str
    note: str
    why: str


class Reuse:
    """Which written tokens were read again later in their lane.

    A lane's cache is taken as one prefix: a read covers its beginning, and a write stands behind
    what was read. What a later write replaces before anything read it was written in vain.
    """

    def __init__(self) -> None:
        self._lanes: dict[tuple[str, str], list[list[int]]] = {}
        self.written = 0
        self._unread = 0
        self.known = False

    def take(self, row: CallRow) -> None:
        """Take the next call."""
        if row.cache_read is None:
            return
        lane = self._lanes.setdefault((row.session, row.lane), [])
        read, wrote = row.cache_read, row.cache_write or 0
        while lane and lane[-1][0] >= read:
            self._drop(lane.pop())
        if lane:
            # [start, end, read up to]
            lane[-1][2] = max(lane[-1][2], min(read, lane[-1][1]))
            for piece in lane[:-1]:
                piece[2] = piece[1]
            if lane[-1][1] > read:
                self._drop([read, lane[-1][1], lane[-1][2]])
                lane[-1][1] = read
            merged = [lane[0][0], lane[-1][1], lane[-1][1]]
            lane[:] = [merged]
        if wrote:
            self.known = True
            self.written += wrote
            lane.append([read, read + wrote, read])

    def _drop(self, piece: list[int]) -> None:
        self._unread += max(0, piece[1] - max(piece[0], piece[2]))

    @property
    def unread(self) -> int:
        """Tokens that were written and not read again."""
        return self._unread + sum(
            max(0, end - max(start, read))
            for lane in self._lanes.values()
            for start, end, read in lane
        )


class Strip:
    """Gathers the figures."""

    def __init__(self) -> None:
        self.reuse = Reuse()
        self._cached: list[float] = []
        self._uncached: list[float] = []

    def take(self, row: CallRow) -> None:
        """Take the next call."""
        self.reuse.take(row)
        waited = row.first_token_seconds
        if waited is None or row.cache_read is None or not row.total_input:
            return
        mostly_read = row.cache_read * 2 >= row.total_input
        (self._cached if mostly_read else self._uncached).append(waited)

    def metrics(self, result: AuditResult) -> tuple[Metric, ...]:
        """Make the strip; a figure that is not known is left out but for the first."""
        found = [
            _ratio(result),
            _price(result),
            self._never_read(),
            _reuse(result),
            *_losses(result),
            self._first_token(),
        ]
        return tuple(metric for metric in found if metric is not None)

    def _never_read(self) -> Metric | None:
        reuse = self.reuse
        if not reuse.known:
            return None
        return Metric(
            name="Writes never read",
            value=fmt.ratio(fmt.share(reuse.unread, reuse.written)),
            note=f"{fmt.short_count(reuse.unread)} of {fmt.short_count(reuse.written)} tokens",
            why=(
                "Tokens written that no later call of the same lane read. The last write of every "
                "lane is among them; other lanes that read it are not counted."
            ),
        )

    def _first_token(self) -> Metric | None:
        fewest = min(len(self._cached), len(self._uncached))
        if fewest < _FEWEST_TIMED:
            return None
        fast, slow = statistics.median(self._cached), statistics.median(self._uncached)
        return Metric(
            name="First token",
            value=f"{fast:.1f} s",
            note=f"cached; {slow:.1f} s uncached",
            why=(
                f"Medians from the start of the request to its first token: {len(self._cached):,} "
                f"calls that read at least half of their input, {len(self._uncached):,} others."
            ),
        )


def _ratio(result: AuditResult) -> Metric:
    return Metric(
        name="Read ratio",
        value=hit_ratio(result.totals),
        note="of all input tokens",
        why="Input tokens read from the cache over all input tokens.",
    )


def _price(result: AuditResult) -> Metric | None:
    """Weigh input against its list price."""
    totals = result.totals
    if totals.input_equivalents is None or not totals.total_input:
        return None
    if totals.unweighted_calls:
        return None  # their input would stand below the line only
    share = decimal(totals.input_equivalents) / totals.total_input
    part = fmt.ratio(str(share.quantize(Decimal("0.000001"))))
    why = (
        "Input weighted by the price of its kind over the same input at the ordinary price: "
        f"{fmt.equivalents(totals.input_equivalents)} of {totals.total_input:,} tokens."
    )
    rates = {price.rates.get("uncached") for price in result.prices}
    rate = rates.pop() if len(rates) == 1 else None
    if rate is None:
        return Metric(name="Effective price", value=part, note="of the list price", why=why)
    currency = result.prices[0].currency
    shown = fmt.money(str(decimal(rate) * share), currency)
    return Metric(
        name="A million in",
        value=shown,
        note=f"of {fmt.money(rate, currency)} list price",
        why=why,
    )


def _reuse(result: AuditResult) -> Metric | None:
    wrote, read = writes(result.totals), result.totals.cache_read
    if not wrote or read is None:
        return None
    if bound(result.totals, "cache_write") or bound(result.totals, "cache_read"):
        return None  # reads would stand over the writes of other calls
    return Metric(
        name="Reuse per write",
        value=f"{Decimal(read) / wrote:.1f} ×",  # noqa: RUF001 - a multiplication sign
        note="reads of each written token",
        why=(
            f"{read:,} tokens read over {wrote:,} written. Below about 0.3 a cache with paid "
            "writes costs more than it saves."
        ),
    )


def _losses(result: AuditResult) -> Iterable[Metric]:
    expired: set[str] = set()
    broken: set[str] = set()
    tokens = 0
    for finding in losses(result.findings):
        family = finding.rule[:3]
        if family == "TTL":
            expired.update(finding.calls)
            tokens += finding.tokens_lost
        elif family in _PREFIX:
            broken.update(finding.calls)
    yield Metric(
        name="Lifetime losses",
        **_counted(
            result,
            ("TTL",),
            len(expired),
            f"{fmt.short_count(tokens)} tokens" if expired else "none expired in use",
        ),
        why="Calls that found a prefix expired, by the rules of the TTL family.",
    )
    yield Metric(
        name="Prefix breaks",
        **_counted(
            result,
            _PREFIX,
            len(broken),
            "calls left their prefix" if broken else "every prompt was extended",
        ),
        why="Calls whose prompt, tools, settings or model differ before the end of the last one.",
    )


def _counted(
    result: AuditResult, families: Collection[str], number: int, note: str
) -> dict[str, str]:
    """Value and note of a count; a dash where no rule of the families was run."""
    mine = [check.state for check in result.checks if check.rule[:3] in families]
    if mine and all(state == "off" for state in mine):
        return {"value": fmt.DASH, "note": "not looked for"}
    return {"value": f"{number:,}", "note": note}
