"""Results built by hand, from the fourteen-request log, for the tests of renderers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from cacheaudit.model.money import plain
from cacheaudit.report.result import (
    AuditResult,
    CallRow,
    ChangeRow,
    Check,
    CostTotal,
    Fact,
    FindingRow,
    FixRow,
    Group,
    LossPlace,
    LossRow,
    PlaceRow,
    Predicted,
    PriceUsed,
    Quality,
    RivalRow,
    SavingRow,
    Scenario,
    Scope,
    Simulation,
    Step,
    Strip,
    Tool,
    ToolUse,
    Totals,
    UsageResult,
    WhatIf,
)

MODEL = "claude-sonnet-4-6"
PRICE_ROW = "anthropic/claude-sonnet-4-6"
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
        writes={"5m": write} if write else {},
        price=PRICE_ROW,
        alive_seconds=300,
        first_token_seconds=1.0 if read * 2 >= total else 4.0,
        strip=Strip(
            parts=[("tools", 5_000), ("system", 2_350), ("messages", total - 7_350)],
            marks=[7_350, total],
        ),
    )


def calls() -> list[CallRow]:
    """Make the fourteen rows."""
    rows = [call(number, *row) for number, row in enumerate(LOG, 1)]
    changed = ChangeRow(
        "tools",
        "tools[3]",
        0,
        "added",
        34_650,
        before="tool Grep, 165 bytes",
        after="tool Issue, 159 bytes",
        after_text='{"xxxx":"⟦Xxxxx⟧"}',
    )
    strip = rows[4].strip
    assert strip is not None
    rows[4] = msgspec.structs.replace(
        rows[4], first_change=changed, strip=msgspec.structs.replace(strip, change=3_000)
    )
    forced = ChangeRow("messages", "tool_choice", 0, "parameter", 33_300)
    rows[8] = msgspec.structs.replace(rows[8], first_change=forced)
    # The rules expect more than was read of the call that stood too far behind the last entry.
    rows[10] = msgspec.structs.replace(rows[10], predicted=Predicted(42_150, 9_720, 0))
    return rows


def saving(equivalents_: Decimal | int) -> SavingRow:
    """A saving in ordinary input tokens, and the same in money."""
    return SavingRow(plain(Decimal(equivalents_)), plain(Decimal(equivalents_) * PRICE))


def setting(name: str, title: str, weight: Decimal, before: Decimal, **more: Any) -> Scenario:
    """A setting whose input weighs so much; output as in the log."""
    return Scenario(
        name=name,
        title=title,
        calls=14,
        input_equivalents=plain(weight),
        cost=plain((weight + 14 * OUTPUT * 5) * PRICE),
        saves=saving(before - weight),
        **more,
    )


SAVINGS = (Decimal(69_690), Decimal("37956.9"), Decimal(-700))


def what_if() -> WhatIf:
    """Three fixes, the last of which costs more than it saves, and both ends of the score."""
    weight = sum((equivalents(write, read) for _, _, write, read, _ in LOG), Decimal(0))
    base = setting("baseline", "As it was, simulated", weight, weight, hit_ratio=0.526462)
    best = weight - sum(SAVINGS)
    return WhatIf(
        all_fixes=setting("all-fixes", "All fixes together", best, weight, hit_ratio=0.81),
        scenarios=[
            setting("no-caching", "No caching at all", Decimal(592_180), weight, hit_ratio=0.0),
            setting(
                "one-hour",
                "One hour's lifetime everywhere",
                weight + 100_000,
                weight,
                command="cacheaudit simulate log.csv --ttl 1h",
            ),
            Scenario(name="mark-previous", refused="no bodies were recorded"),
            setting("ideal", "Every repeated token read", Decimal(153_944), weight),
        ],
        reported=msgspec.structs.replace(base, name="reported"),
        baseline=base,
        waterfall=[
            Step(
                name="fan-out",
                title="Send one call first, the others when it has begun to answer",
                saves=saving(SAVINGS[0]),
                alone=saving(SAVINGS[0]),
                findings=["F6"],
                edit="fan-out:wait=1",
            ),
            Step(
                name="keep-alive",
                title="Keep the cache alive over a pause of more than 5 minutes",
                saves=saving(SAVINGS[1]),
                alone=saving(SAVINGS[1]),
                findings=["F1"],
            ),
            Step(
                name="mark-previous",
                title="Mark the last block of the call before as well",
                saves=saving(SAVINGS[2]),
                alone=saving(500),
                findings=["F4"],
            ),
        ],
    )


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
                edit="keep-alive",
            ),
            places=[LossPlace("r7", 36_150, loss(36_150))],
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
        what_if=what_if(),
        simulation=Simulation(
            13, 14, 2485.7, 34_800, exact_writes=13, surplus_tokens=0, modes={"sizes": 14}
        ),
        data_quality=[
            Quality("write_ttl_assumed", 14, ["log.csv:2: no lifetime recorded"]),
            Quality("truncated_line", 1, ["log.csv:17: ends in the middle of a field"]),
        ],
        by_model=[Group(MODEL, every)],
        by_purpose=[Group("main", totals(known[:11])), Group("subagent", totals(known[11:]))],
        by_session=[Group("issue-42", every)],
        prices=[
            PriceUsed(
                PRICE_ROW,
                "anthropic",
                MODEL,
                "USD",
                {"uncached": "3", "read": "0.3", "write_5m": "3.75", "output": "15"},
                "2026-02-17",
                "https://docs.example/pricing",
                "2026-11-20",
            )
        ],
        tools=[
            ToolUse(name="Bash", tokens=3_000, calls=14, used=9),
            ToolUse(name="Issue", tokens=2_000, calls=10, used=0, churn=1),
        ],
        checks=[
            Check(rule="TTL101", name="ttl-expired", title="Outlived", state="found"),
            Check(rule="PFX201", name="clock-in-system", title="A clock", state="clear"),
            Check(
                rule="SIZ101",
                name="below-minimum",
                title="Too small",
                state="not_applicable",
                why="no requests were recorded",
            ),
        ],
        facts=[
            Fact(
                model=MODEL,
                name="lookback_positions",
                value="20",
                source="Prompt caching",
                checked="2026-11-20",
            )
        ],
        command="cacheaudit audit log.csv -o report.html",
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


def bare() -> AuditResult:
    """The same log without prices, times, simulation, requests and findings."""
    result = audit(
        [
            msgspec.structs.replace(
                row,
                started_at=None,
                cost=None,
                price=None,
                predicted=None,
                strip=None,
                first_change=None,
                first_token_seconds=None,
                alive_seconds=None,
                writes=None,
            )
            for row in calls()
        ]
    )
    unpriced = CostTotal(None, None, "USD", 14, "no price for 'new-model'")
    result.totals = msgspec.structs.replace(result.totals, cost=unpriced)
    result.scope = msgspec.structs.replace(result.scope, first=None, last=None)
    groups = [
        Group(group.key, msgspec.structs.replace(group.totals, cost=unpriced))
        for group in (*result.by_model, *result.by_purpose, *result.by_session)
    ]
    result.by_model, result.by_purpose, result.by_session = groups[:1], groups[1:3], groups[3:]
    result.what_if, result.simulation = WhatIf(), Simulation()
    result.findings, result.prices = [], []
    result.tools, result.checks, result.facts, result.command = [], [], [], None
    return result
