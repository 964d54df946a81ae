"""Recorded sessions of real agents: rewrites by cause, and how often predicted reads are exact."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cases.recording import Audit, audit

pytestmark = pytest.mark.shared

CLAUDE = ("claude_code/a", "claude_code/b", "claude_code/c", "claude_code/d")
PI = ("pi/a", "pi/b")
CODEX = ("codex/a", "codex/b")
PROVIDER_SIDE = {"provider-side-suspected", "read-before-visible"}


@pytest.fixture(scope="module")
def audits(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Audit]:
    home = tmp_path_factory.mktemp("home")
    folder = shared / "data" / "sessions"
    return {name: audit(home, folder / f"{name}.jsonl") for name in (*CLAUDE, *PI, *CODEX)}


def rewrites(found: Audit) -> list[dict[str, Any]]:
    """Previous prompt of 20,000 or more, less than half of it read, more than 10,000 written."""
    rows: list[dict[str, Any]] = []
    before: dict[str, int] = {}
    for row in found.document["calls"]:
        size, total = before.get(row["lane"], 0), row["total_input"]
        if total is None:
            continue
        before[row["lane"]] = total
        if size >= 20_000 and row["cache_read"] * 2 < size and row["cache_write"] > 10_000:
            rows.append(row)
    return rows


def causes(found: Audit) -> Counter[str]:
    """Cause of each rewrite; every one has exactly one."""
    by_call = {}
    for loss in found.losses:
        for call in loss.row["calls"]:
            by_call.setdefault(call, []).append(loss.name)
    named: Counter[str] = Counter()
    for row in rewrites(found):
        (name,) = by_call[row["id"]]
        named[name] += 1
    return named


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("claude_code/a", {"compacted": 1}),
        ("claude_code/b", {"ttl-expired": 11, "compacted": 3}),
        ("claude_code/c", {"ttl-expired": 1, "compacted": 1}),
        ("claude_code/d", {"ttl-expired": 1}),
    ],
)
def test_rewrites_have_the_cause_that_is_known(
    audits: dict[str, Audit], name: str, expected: dict[str, int]
) -> None:
    assert causes(audits[name]) == expected


def test_figures_of_the_rewrites(audits: dict[str, Audit]) -> None:
    [only] = rewrites(audits["claude_code/a"])
    assert (only["cache_read"], only["cache_write"]) == (34_883, 23_324)
    rows = rewrites(audits["claude_code/b"])
    expired = [row for row in rows if row["cache_read"] == 0]
    assert sum(row["cache_write"] for row in expired) == 1_207_360
    assert [row["cache_read"] for row in rows if row["cache_read"]] == [34_260] * 3
    rows = rewrites(audits["claude_code/c"])
    assert rows[0]["cache_write"] == 41_276
    # From then on the session writes for an hour.
    later = [row for row in audits["claude_code/c"].document["calls"] if row["writes"]]
    after = later[[row["id"] for row in later].index(rows[0]["id"]) :]
    assert all(row["writes"].get("1h") for row in after if row["cache_write"])


def test_verdicts_go_no_further_than_the_records(audits: dict[str, Audit]) -> None:
    for found in audits.values():
        for loss in found.losses:
            # Transcripts hold no bodies: proof is only what the record itself states.
            assert loss.verdict != "proved" or loss.evidence == "reported"
            assert loss.evidence in ("usage", "reported")


def test_an_hour_would_have_been_worth_it_in_b(audits: dict[str, Audit]) -> None:
    note = audits["claude_code/b"].note("one-hour-lifetime-would-pay")
    assert float(note.fix["saves_alone"]["input_equivalents"]) > 0


def errors(found: Audit, *, without: set[str]) -> list[int]:
    left_out = {call for loss in found.losses if loss.name in without for call in loss.row["calls"]}
    return [
        row["predicted"]["cache_read"] - row["cache_read"]
        for row in found.document["calls"]
        if row["predicted"] is not None
        and row["cache_read"] is not None
        and row["id"] not in left_out
    ]


def test_nine_of_ten_predicted_reads_are_exact(audits: dict[str, Audit]) -> None:
    pooled: list[int] = []
    for name, found in audits.items():
        mine = errors(found, without=PROVIDER_SIDE)
        pooled += mine
        exact = mine.count(0)
        spread = Counter(_size(error) for error in mine)
        print(f"{name}: {exact} of {len(mine)} exact ({exact / len(mine):.1%}), {dict(spread)}")
    share = pooled.count(0) / len(pooled)
    print(f"all: {pooled.count(0)} of {len(pooled)} exact ({share:.1%})")
    assert len(pooled) > 1_600
    assert share >= 0.9


def test_what_claude_code_read_is_never_less_than_predicted(audits: dict[str, Audit]) -> None:
    # Where a prediction is off, requests that the transcript does not hold had stored more.
    for name in CLAUDE:
        assert all(error <= 0 for error in errors(audits[name], without=set()))


def test_the_audit_states_the_same_accuracy(audits: dict[str, Audit]) -> None:
    for found in audits.values():
        mine = errors(found, without=set())
        stated = found.document["simulation"]
        assert stated["calls"] == len(mine)
        assert stated["exact_calls"] == mine.count(0)
        assert stated["unexplained_tokens"] == sum(error for error in mine if error > 0)
        assert stated["mean_abs_error_tokens"] == round(sum(map(abs, mine)) / len(mine), 1)


def _size(error: int) -> str:
    limits = ((0, "0"), (128, "to 128"), (1_024, "to 1,024"), (4_096, "to 4,096"))
    return next((label for limit, label in limits if abs(error) <= limit), "more")
