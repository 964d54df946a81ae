"""Results built by hand, from the fourteen-request log, for the tests of renderers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal

import msgspec

from cacheaudit.model.money import plain
from cacheaudit.report.result import (
    AuditResult,
    CallRow,
    ChangeRow,
    CostTotal,
    FindingRow,
    FixRow,
    Group,
    LossRow,
    PlaceRow,
    Predicted,
    PriceUsed,
    Quality,
    RivalRow,
    Scope,
    Simulation,
    Tool,
    Totals,
    UsageResult,
    WhatIf,
)

MODEL = "claude-sonnet-4-6"
PRICE = Decimal("0.000003")
# Seconds after 10:00, input, write, read, lane; 1.25 for a write, 0.1 for a read.
LOG = (
    (0, 8_500, 8_500, 0, "main"),
    (30, 10_000, 1_500, 8_500, "main"),
    (55, 11_500, 1_500, 10_000, "main"),
    (80, 32_800, 21_300, 11_500, "main"),
    (115, 34_650, 34_650, 0, "main"),
    (140, 36_150, 1_500, 34_650, "main"),
    (475, 37_650, 37_650, 0, "main"),
    (505, 39_150, 1_500, 37_650, "main"),
    (530, 40_650, 33_300, 7_350, "main"),
    (555, 42_150, 3_000, 39_150, "main"),
    (580, 51_870, 44_520, 7_350, "main"),
    (610, 82_370, 30_500, 51_870, "agent-a"),
    (610, 82_370, 30_500, 51_870, "agent-b"),
    (610, 82_370, 30_500, 51_870, "agent-c"),
)
OUTPUT = 300


def equivalents(write: int, read: int) -> Decimal:
    """Weigh tokens: 1.25 for a write, 0.1 for a read."""
    return write * Decimal("1.25") + read * Decimal("0.1")


def cost(write: int, read: int, output: int = OUTPUT) -> str:
    """Price one call exactly; output at five times the input."""
    return plain((equivalents(write, read) + output * 5) * PRICE)


def call(number: int, seconds: int, total: int, write: int, read: int, lane: str) -> CallRow:
    """Make one row."""
    return CallRow(
        id=f"r{number}",
        session="issue-42",
        lane=lane,
        purpose="main" if lane == "main" else "subagent",
        provider="anthropic",
        model=MODEL,
        started_at=f"2026-11-03T10:{seconds // 60:02}:{seconds % 60:02}.000Z",
        total_input=total,
        cache_read=read,
        cache_write=write,
        uncached_input=total - write - read,
        output=OUTPUT,
        predicted=Predicted(read, write, 0),
        cost=cost(write, read),
        where=f"log.csv:{number + 1}",
    )


def calls() -> list[CallRow]:
    """Make the fourteen rows."""
    rows = [call(number, *row) for number, row in enumerate(LOG, 1)]
    changed = ChangeRow("tools", "tools[3]", 0, "added", 34_650)
    rows[4] = msgspec.structs.replace(rows[4], first_change=changed)
    return rows


def totals(rows: Sequence[CallRow]) -> Totals:
    """Add rows up by plain sums."""
    write = sum(row.cache_write or 0 for row in rows)
    read = sum(row.cache_read or 0 for row in rows)
    whole = sum(row.total_input or 0 for row in rows)
    money = sum((Decimal(row.cost) for row in rows if row.cost), Decimal(0))
    return Totals(
        calls=len(rows),
        uncached_input=whole - write - read,
        cache_read=read,
        cache_write={"5m": write, "1h": 0, "30m": 0, "other": 0},
        output=sum(row.output or 0 for row in rows),
        total_input=whole,
        hit_ratio=round(read / whole, 6),
        input_equivalents=plain(equivalents(write, read)),
        cost=CostTotal(plain(money), None, "USD", 0),
    )


def loss(tokens: int) -> LossRow:
    """What it costs to write tokens that a hit would have read."""
    lost = tokens * (Decimal("1.25") - Decimal("0.1"))
    return LossRow(plain(lost), plain(lost * PRICE))


def findings() -> list[FindingRow]:
    """Make six findings: four losses, a rival each, and two notes."""
    return [
        FindingRow(
            id="F1",
            rule="TTL101",
            name="ttl-expired",
            title="The cache had expired before call r7",
            verdict="consistent",
            evidence="usage",
            kind="loss",
            session="issue-42",
            calls=["r7"],
            established=[
                "Call r7 read 0 of 36,150 tokens that call r6 had left in the cache.",
                "335 seconds lie between the two starts, more than the lifetime of 5 minutes.",
            ],
            to_check=["Whether the prompt changed as well: the record has no requests."],
            rivals=[RivalRow("PFX100", "a change of the prompt would read 0 too")],
            first_change=None,
            tokens_lost=36_150,
            lost=loss(36_150),
            fix=FixRow(
                "Keep the cache alive over a pause of more than 5 minutes",
                'cache_control = {"type": "ephemeral", "ttl": "1h"}',
                loss(33_006),
            ),
        ),
        FindingRow(
            id="F2",
            rule="TOL101",
            name="tools-changed",
            title="A tool was inserted before call r5",
            verdict="proved",
            evidence="body_diff",
            kind="loss",
            session="issue-42",
            calls=["r5"],
            established=["tools[3] is new; 34,650 tokens stand behind it."],
            to_check=[],
            rivals=[],
            first_change=PlaceRow("tools", "tools[3]", 0),
            tokens_lost=32_800,
            lost=loss(32_800),
            fix=FixRow("Declare every tool from the first call on", None, loss(32_100)),
        ),
        FindingRow(
            id="F3",
            rule="PRM101",
            name="tool-choice-changed",
            title="tool_choice was forced in call r9",
            verdict="proved",
            evidence="body_diff",
            kind="loss",
            session="issue-42",
            calls=["r9"],
            established=["Only 7,350 tokens (tools and system) were read."],
            to_check=[],
            rivals=[],
            first_change=PlaceRow("messages", "tool_choice", 0),
            tokens_lost=31_800,
            lost=loss(31_800),
            fix=FixRow("Leave tool_choice as it is and ask in words", None, None),
        ),
        FindingRow(
            id="F4",
            rule="LKB101",
            name="beyond-lookback",
            title="Call r11 stood 25 positions behind the last entry",
            verdict="proved",
            evidence="simulated",
            kind="loss",
            session="issue-42",
            calls=["r11"],
            established=["25 new content blocks; the lookback is 20."],
            to_check=[],
            rivals=[],
            first_change=None,
            tokens_lost=34_800,
            lost=loss(34_800),
            fix=FixRow("Mark the last block of the call before as well", None, None),
        ),
        FindingRow(
            id="F5",
            rule="CLD101",
            name="cold-start",
            title="Call r1 opened the session",
            verdict="proved",
            evidence="usage",
            kind="note",
            session="issue-42",
            calls=["r1"],
            established=["Nothing had been written before."],
            to_check=[],
            rivals=[],
            first_change=None,
            tokens_lost=0,
            lost=None,
            fix=None,
        ),
        FindingRow(
            id="F6",
            rule="FAN101",
            name="parallel-writes",
            title="Three calls wrote the same 30,000 tokens in the same second",
            verdict="consistent",
            evidence="usage",
            kind="loss",
            session="issue-42",
            calls=["r12", "r13", "r14"],
            established=["r12, r13 and r14 each wrote 30,500 tokens and read 51,870."],
            to_check=["Whether the 30,500 tokens are the same in all three."],
            rivals=[],
            first_change=None,
            tokens_lost=60_600,
            lost=loss(60_600),
            fix=FixRow("Send one call first, the others when it has begun to answer", None, None),
        ),
    ]


def audit(rows: Iterable[CallRow] | None = None) -> AuditResult:
    """Make the whole result."""
    known = calls()
    every = totals(known)
    return AuditResult(
        tool=Tool("0.1.0", "2026-11-30", "2026-11-20"),
        scope=Scope(
            {"usage_log": 14},
            1,
            14,
            "2026-11-03T10:00:00.000Z",
            "2026-11-03T10:10:10.000Z",
            files=1,
            bytes=900,
        ),
        totals=every,
        calls=known if rows is None else rows,
        findings=findings(),
        what_if=WhatIf(),
        simulation=Simulation(14, 14, 0.0, 12_000),
        data_quality=[
            Quality("write_ttl_assumed", 14, ["log.csv:2: no lifetime recorded"]),
            Quality("truncated_line", 1, ["log.csv:17: ends in the middle of a field"]),
        ],
        by_model=[Group(MODEL, every)],
        by_purpose=[Group("main", totals(known[:11])), Group("subagent", totals(known[11:]))],
        by_session=[Group("issue-42", every)],
        prices=[
            PriceUsed(
                "anthropic/claude-sonnet-4-6",
                "anthropic",
                MODEL,
                "USD",
                {"uncached": "3", "read": "0.3", "write_5m": "3.75", "output": "15"},
                "2026-02-17",
                "https://docs.example/pricing",
                "2026-11-20",
            )
        ],
    )


def usage() -> UsageResult:
    """Make totals by day, one of them without a price."""
    known = calls()
    unpriced = msgspec.structs.replace(
        totals(known[:3]),
        cost=CostTotal(None, None, "USD", 3, "no price for 'new-model'"),
        output_is_lower_bound=True,
        hit_ratio=None,
        cache_read=None,
    )
    return UsageResult(
        tool=Tool("0.1.0", "2026-11-30", "2026-11-20"),
        scope=Scope({"usage_log": 14}, 1, 14, "2026-11-02T10:00:00Z", "2026-11-03T10:10:10Z"),
        by="day",
        totals=totals(known),
        groups=[Group("2026-11-02", unpriced), Group("2026-11-03", totals(known))],
        data_quality=[],
    )
