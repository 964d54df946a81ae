"""What a source hands to a total: less than a call, and quicker to make."""

from __future__ import annotations

from decimal import Decimal
from typing import NamedTuple

from cacheaudit.model.call import Call
from cacheaudit.model.usage import Usage


class UsageRecord(NamedTuple):
    """Consumption of one call, with what it is grouped by and priced with.

    ``key`` is the call's dedupe key (``None``: never merged), ``at`` seconds since the epoch.
    """

    key: str | None
    session: str
    lane: str
    purpose: str
    provider: str | None
    surface: str | None
    model: str | None
    at: float | None
    usage: Usage
    project: str | None = None
    reported_cost: Decimal | None = None
    currency: str = "USD"


def record_of(call: Call, project: str | None = None) -> UsageRecord | None:
    """Take from a call what a total needs; ``None`` where the call has no usage."""
    if call.usage is None:
        return None
    return UsageRecord(
        call.dedupe_key,
        call.session,
        call.lane,
        call.purpose,
        call.provider,
        call.surface,
        call.model,
        None if call.relative_time else call.at,
        call.usage,
        project,
        call.reported_cost,
        call.currency,
    )
