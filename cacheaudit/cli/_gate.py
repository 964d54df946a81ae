"""The gate of ``--fail-over``: an amount of money or a share of the bill that misses may cost."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Literal

import click
import msgspec

from cacheaudit.cli._types import override
from cacheaudit.errors import UsageError
from cacheaudit.model.money import decimal, plain
from cacheaudit.report import format as fmt
from cacheaudit.report.result import AuditResult
from cacheaudit.report.summary import lost, paid

_NUMBER = r"(\d+(?:\.\d+)?|\.\d+)"
_SHARE = re.compile(_NUMBER + r"\s*%")
_MONEY = re.compile(r"\$?\s*" + _NUMBER + r"\s*([a-zA-Z]{3})?")


class Limit(msgspec.Struct, frozen=True):
    """What may be lost: a share (0.1 for 10 %) or money."""

    kind: Literal["share", "money"]
    value: Decimal
    currency: str = "USD"


if TYPE_CHECKING:
    _Base = click.ParamType[Limit]
else:
    _Base = click.ParamType


class LimitType(_Base):
    """Reads ``5usd``, ``$5``, ``5`` (US dollars) or ``10%``."""

    name = "LIMIT"

    @override
    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Limit:
        """Read one limit; a bad one is a usage error."""
        if isinstance(value, Limit):
            return value
        text = str(value).strip()
        if share := _SHARE.fullmatch(text):
            return Limit("share", decimal(share[1]) / 100)
        amount = _MONEY.fullmatch(text)
        if amount is None:
            self.fail(f"{value!r} is no limit. Write 5usd or 10%.", param, ctx)
        return Limit("money", decimal(amount[1]), (amount[2] or "USD").upper())


class Judgement(msgspec.Struct, frozen=True):
    """Whether the gate holds, and the sentence that says so."""

    holds: bool
    text: str


def judge(result: AuditResult, limit: Limit) -> Judgement:
    """Compare what misses cost with the limit.

    A share is taken of the money where everything is priced, else of the input equivalents.

    Raises:
        UsageError: It cannot be judged, because a price is missing or the currency differs.
    """
    total = lost(result.findings)
    if limit.kind == "share":
        part, basis = _share(result)
        holds = part <= limit.value
        text = f"Misses cost {_percent(part)} of the {basis}; the limit is {_percent(limit.value)}."
        return Judgement(holds, text)
    currency = result.totals.cost.currency
    if total.findings and currency != limit.currency:
        raise UsageError(
            f"--fail-over is in {limit.currency}, the prices are in {currency}.",
            f"Give the limit in {currency} or as a share, such as 10%.",
        )
    cost = total.cost or Decimal(0)
    over = cost > limit.value
    if total.unpriced and not over:
        raise UsageError(
            f"--fail-over cannot be judged: {fmt.plural(total.unpriced, 'loss', 'losses')}"
            " without a price.",
            "Give prices with --prices FILE, or a limit as a share, such as 10%.",
        )
    known = fmt.amount(plain(cost), currency)
    return Judgement(
        not over, f"Misses cost {known}; the limit is {fmt.amount(plain(limit.value), currency)}."
    )


def _share(result: AuditResult) -> tuple[Decimal, str]:
    total = lost(result.findings)
    if not total.findings:
        return Decimal(0), "bill"
    value, origin = paid(result.totals)
    is_priced = value is not None and origin == "computed" and not total.unpriced
    if is_priced and not result.totals.cost.unpriced_calls and decimal(value or "0"):
        return (total.cost or Decimal(0)) / decimal(value or "0"), "bill"
    whole = result.totals.input_equivalents
    if total.unweighted:
        raise UsageError(
            f"--fail-over cannot be judged: {fmt.plural(total.unweighted, 'loss', 'losses')}"
            " without a price or a weight.",
            "Give prices with --prices FILE.",
        )
    if whole is None or not decimal(whole):
        raise UsageError(
            "--fail-over cannot be judged: the input of these calls is not known.",
            "Look under data quality for what the record lacks.",
        )
    return total.input_equivalents / decimal(whole), "input"


def _percent(value: Decimal) -> str:
    return f"{plain((value * 100).quantize(Decimal('0.1')))} %"
