"""What refreshes brought, to the last digit, from recorded calls alone."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from cacheaudit.agent.keep_alive.realised import realised
from cacheaudit.agent.recorder import RecorderState
from cacheaudit.agent.summary import summary
from cacheaudit.diagnose.runner import diagnose
from cacheaudit.model.call import Call, Session
from cacheaudit.model.usage import Usage
from cacheaudit.pricing.book import PriceBook

START = 1_795_996_800.0
READ, WRITE, HOUR = (Decimal(t) / 1_000_000 for t in ("0.5", "6.25", "10"))


def call(name: str, at: float, read: int, write: int = 0, **more: Any) -> Call:
    hour = more.pop("hour", False)
    return Call(
        **{
            "id": name,
            "session": "s",
            "provider": "anthropic",
            "surface": "claude_api",
            "model": "claude-opus-5",
            "started_at": START + at,
            "usage": Usage(
                total_input=read + write,
                uncached_input=0,
                cache_read=read,
                write_5m=0 if hour else write,
                write_1h=write if hour else 0,
                output=0,
            ),
            **more,
        }
    )


def ping(at: float, read: int = 36_150, **more: Any) -> Call:
    return call(f"p{at}", at, read, purpose="keep_alive", **more)


def test_row_7_of_the_exercise() -> None:
    """In ordinary input tokens (5 dollars a million): 37,957.5 after its own cost."""
    calls = [call("6", 0, 34_650, 1_500), ping(270), call("7", 335, 36_150, 1_500)]
    found = realised(calls, PriceBook())
    assert found is not None
    assert found.gain == Decimal("37957.5") * Decimal("0.000005")
    assert (found.refreshes, found.needed, found.tokens) == (1, 1, 36_150)


@pytest.mark.parametrize(
    ("after", "saved"),
    [
        (call("b", 299, 36_150, 10), 0),  # it would have been there anyway
        (call("b", 335, 0, 36_160), 0),  # something else changed: nothing was read
        (call("b", 335, 7_000, 29_160), 7_000),
        (None, 0),
    ],
)
def test_only_what_was_read_behind_the_lifetime_counts(after: Call | None, saved: int) -> None:
    calls = [call("a", 0, 0, 36_150), ping(270), *([after] if after else [])]
    found = realised(calls, PriceBook())
    assert found is not None
    assert found.cost == 36_150 * READ
    assert found.saved == saved * (WRITE - READ)


def test_an_hour_is_priced_and_timed_as_one() -> None:
    calls = [
        call("a", 0, 0, 50_000, hour=True),
        ping(3_240, 50_000),
        call("b", 3_700, 50_000, 10, hour=True),
    ]
    found = realised(calls, PriceBook())
    assert found is not None
    assert found.saved == 50_000 * (HOUR - READ)
    early = [*calls[:2], call("b", 3_500, 50_000, 10)]
    assert realised(early, PriceBook()).saved == 0  # type: ignore[union-attr]


def test_lanes_are_kept_apart() -> None:
    calls = [
        call("a", 0, 0, 9_000),
        call("x", 1, 0, 5_000, lane="sub"),
        ping(270, 9_000),
        call("y", 400, 5_000, lane="sub"),
        call("b", 401, 9_000),
    ]
    found = realised(calls, PriceBook())
    assert found is not None
    assert found.saved == 9_000 * (WRITE - READ)


def test_without_a_price_nothing_is_guessed() -> None:
    calls = [
        call("a", 0, 0, 9_000, model="unheard-of"),
        ping(270, 9_000, model="unheard-of"),
        call("b", 401, 9_000, model="unheard-of"),
    ]
    found = realised(calls, PriceBook())
    assert found is not None
    assert (found.cost, found.saved, found.unpriced) == (0, 0, 2)


def test_no_refreshes_no_line() -> None:
    assert realised([call("a", 0, 0, 9_000)], PriceBook()) is None


def test_the_report_says_it() -> None:
    calls = (call("6", 0, 34_650, 1_500), ping(270), call("7", 335, 36_150, 1_500))
    text = summary(
        "s", [Session(id="s", source="x", calls=calls)], RecorderState(3, 0, 0, 0, 0, {})
    )
    assert (
        "Keep-alive: 1 refresh for $0.0181 bridged 1 pause (36,150 tokens not written again): "
        "gain $0.1898"
    ) in text


def test_an_audit_says_it_too() -> None:
    calls = (call("6", 0, 34_650, 1_500), ping(270), call("7", 335, 36_150, 1_500))
    found = diagnose(Session(id="s", source="x", calls=calls), PriceBook()).findings
    (paid,) = [finding for finding in found if finding.rule == "TTL109"]
    assert paid.established[0] == (
        "1 keep-alive request behind 6 read 36,150 tokens; the next call came 5 min 35 s behind it "
        "and read 36,150 that would have been written again."
    )
    assert paid.established[1].startswith("Keep-alive requests: 1 call, 0 tokens written, 36,150")
    assert "TTL107" not in {finding.rule for finding in found}
