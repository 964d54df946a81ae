"""The 14-request exercise through the command line: predictions, findings, fixes, paths.

Every figure is the exercise's own. It is read from both forms: with bodies, and as a usage log.
"""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cases.recording import Audit, audit, command, money

FOLDER = Path(__file__).resolve().parents[3] / "fixtures" / "sessions"
BODIES = FOLDER / "exercise-14.session.jsonl"
USAGE = FOLDER / "exercise-14.csv"
KNOWN = FOLDER / "exercise-14.known.json"
# start, duration, input, write, read
ROWS = (
    (0, 20, 8_500, 8_500, 0),
    (30, 15, 10_000, 1_500, 8_500),
    (55, 18, 11_500, 1_500, 10_000),
    (80, 25, 32_800, 21_300, 11_500),
    (115, 15, 34_650, 34_650, 0),
    (140, 150, 36_150, 1_500, 34_650),
    (475, 20, 37_650, 37_650, 0),
    (505, 15, 39_150, 1_500, 37_650),
    (530, 15, 40_650, 33_300, 7_350),
    (555, 15, 42_150, 3_000, 39_150),
    (580, 20, 51_870, 44_520, 7_350),
    (610, 25, 82_370, 30_500, 51_870),
    (610, 25, 82_370, 30_500, 51_870),
    (610, 25, 82_370, 30_500, 51_870),
)
READS, WRITES = [row[4] for row in ROWS], [row[3] for row in ROWS]
TOOLS, KEEP, AUTO = "late-tools", "keep-alive:at=06:50", "auto-tool-choice"
FAN = "fan-out"
Json = dict[str, Any]


def simulate(home: Path, *edits: str, file: Path = BODIES, options: tuple[str, ...] = ()) -> Json:
    chosen = [part for edit in edits for part in ("--edit", edit)]
    return command(home, "simulate", str(file), *chosen, *options)


def figures(document: Json) -> list[tuple[int, int]]:
    """Written and read of each call, as predicted."""
    return [
        (call["predicted"]["cache_write"], call["predicted"]["cache_read"])
        for call in document["calls"]
    ]


def alone(document: Json) -> Decimal:
    assert document["what_if"]["all_fixes"]["refused"] is None
    return money(document["what_if"]["all_fixes"]["saves"]["input_equivalents"])


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


# --- predictions ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "options"),
    [(BODIES, ()), (USAGE, ("--known", str(KNOWN)))],
    ids=["bodies", "usage"],
)
def test_all_fourteen_reads_and_writes(home: Path, file: Path, options: tuple[str, ...]) -> None:
    found = simulate(home, file=file, options=options)
    assert found["schema"] == "cacheaudit.simulation/1"
    assert figures(found) == list(zip(WRITES, READS, strict=True))
    reported = [(c["reported"]["cache_write"], c["reported"]["cache_read"]) for c in found["calls"]]
    assert reported == figures(found)
    assert found["accuracy"]["exact_calls"] == found["accuracy"]["exact_writes"] == 14
    assert found["rules_version"]
    assert found["switches"] == {}
    assert all(call["id"] for call in found["calls"])


def test_usage_without_hints_refuses_or_is_wrong_only_where_numbers_do_not_tell(home: Path) -> None:
    found = simulate(home, file=USAGE)
    off = [n for n, call in enumerate(found["calls"], 1) if call["predicted"] and not call["exact"]]
    refused = [n for n, call in enumerate(found["calls"], 1) if call["predicted"] is None]
    assert off == [5, 9, 10, 11]
    assert refused == [1]


# --- A06: what usage alone establishes ----------------------------------------------------------


@pytest.fixture(scope="module")
def bare(home: Path) -> Audit:
    return audit(home, USAGE)


@pytest.fixture(scope="module")
def full(home: Path) -> Audit:
    return audit(home, BODIES)


def lost_calls(loss: Any) -> set[str]:
    """Calls that lost something; the first of a fan-out is named with it and lost nothing."""
    return set(loss.calls[1:] if loss.name == "concurrent-identical-writes" else loss.calls)


def row(found: Audit, number: int) -> Any:
    """The loss that holds a row; lines of the file count from 1 and the first is the heading."""
    wanted = f"exercise-14#{number + 1}"
    (loss,) = [loss for loss in found.losses if wanted in lost_calls(loss)]
    return loss


def test_a06_nothing_is_proved_from_usage_alone(bare: Audit) -> None:
    assert {loss.verdict for loss in bare.losses} <= {"consistent", "unknown"}
    assert {loss.evidence for loss in bare.losses} == {"usage"}
    assert all(loss.rivals for loss in bare.losses if loss.name != "concurrent-identical-writes")


def test_a06_healthy_rows_have_no_finding(bare: Audit) -> None:
    named = {call for loss in bare.losses for call in lost_calls(loss)}
    healthy = {f"exercise-14#{n + 1}" for n in (1, 2, 3, 4, 6, 8, 12)}
    assert not named & healthy


def test_a06_row_5_excludes_expiry_and_locates_nothing(bare: Audit) -> None:
    loss = row(bare, 5)
    assert loss.name == "prefix-lost-inside-ttl"
    assert "35 s" in loss.said
    assert "expiry alone does not explain the miss" in loss.said
    # Tools, system and model all stay possible.
    assert {"tools-changed", "system-changed"} <= loss.rivals
    # The log holds no earlier size of tools and system, so that 350 more of them cannot be said;
    # the growth of the whole can, and locates nothing.
    assert "1,850" in loss.said
    assert "tell where they were added" in loss.said
    assert loss.place == {}


def test_a06_row_7_counts_from_the_start_of_row_6(bare: Audit) -> None:
    loss = row(bare, 7)
    assert loss.name == "ttl-used-up-by-long-request"
    assert loss.verdict == "consistent"
    assert "5 min 35 s" in loss.said
    assert "3 min 5 s" in loss.said
    assert "assumed" in loss.said


def test_a06_row_9_reads_tools_and_system(bare: Audit) -> None:
    loss = row(bare, 9)
    assert "7,350" in loss.said
    assert "8,500" in loss.said
    assert loss.verdict != "proved"
    assert "tool_choice" in loss.said + loss.to_check + json.dumps(loss.row["rivals"])


def test_a06_row_10_names_row_8_and_leaves_both_explanations(bare: Audit) -> None:
    loss = row(bare, 10)
    assert loss.name == "older-prefix-read"
    assert "39,150" in loss.said
    assert "exercise-14#9" in loss.said
    told = loss.said + loss.to_check + json.dumps(loss.row["rivals"])
    assert "switched" in told
    assert "history" in told.lower() or "message" in told.lower()


def test_a06_row_11_is_a_thing_to_check(bare: Audit) -> None:
    loss = row(bare, 11)
    assert (loss.name, loss.verdict) == ("lookback-or-message-change", "unknown")
    assert "7,350" in loss.said
    assert "20 content blocks" in loss.to_check
    assert "Whether an earlier message or a parameter" in loss.to_check
    # The next three requests read all of this row's prompt.
    assert "The next call read all" in loss.said


def test_a06_rows_12_to_14_wrote_the_same_at_most(bare: Audit) -> None:
    loss = row(bare, 13)
    assert loss.name == "concurrent-identical-writes"
    assert loss.tokens == 61_000
    assert "At most 30,500" in loss.said
    assert loss.calls == ["exercise-14#13", "exercise-14#14", "exercise-14#15"]


# --- A07: causes with bodies, fixes, all together -----------------------------------------------


def test_a07_every_row_has_its_cause(full: Audit) -> None:
    named = {
        call.removeprefix("msg_exercise_"): loss.name
        for loss in full.losses
        for call in lost_calls(loss)
    }
    # Row 10 is the same cause: the choice went back.
    assert named == {
        "05": "tool-inserted-midway",
        "07": "ttl-used-up-by-long-request",
        "09": "tool-choice-toggled",
        "10": "tool-choice-toggled",
        "11": "marker-beyond-lookback",
        "13": "concurrent-identical-writes",
        "14": "concurrent-identical-writes",
    }
    assert {loss.verdict for loss in full.losses} == {"proved"}
    inserted = full.loss("tool-inserted-midway")
    assert inserted.path == "tools[5]"
    assert "position 26 of the lookup" in full.loss("marker-beyond-lookback").said


def test_a07_totals(full: Audit) -> None:
    totals = full.document["totals"]
    assert totals["cache_write"]["5m"] == 280_420
    assert totals["cache_read"] == 311_760
    assert round(Decimal(str(totals["hit_ratio"])) * 100, 2) == Decimal("52.65")
    assert money(totals["input_equivalents"]) == 381_701


@pytest.mark.parametrize(
    ("edit", "saving", "changed"),
    [
        (TOOLS, "36915", {5: (1_850, 32_800), 9: (33_650, 7_000), 11: (44_870, 7_000)}),
        (AUTO, "38295", {9: (1_500, 39_150), 10: (1_500, 40_650)}),
        ("mark-previous", "40020", {11: (9_720, 42_150)}),
        ("join-blocks", "40020", {11: (9_720, 42_150)}),
        (FAN, "69690", {13: (200, 82_170), 14: (200, 82_170)}),
    ],
)
def test_a07_each_fix_alone(
    home: Path, edit: str, saving: str, changed: dict[int, tuple[int, int]]
) -> None:
    found = simulate(home, edit)
    assert alone(found) == Decimal(saving)
    expected = list(zip(WRITES, READS, strict=True))
    for number, values in changed.items():
        expected[number - 1] = values
    assert figures(found) == expected


def test_a07_keep_alive_at_the_given_moment(home: Path) -> None:
    found = simulate(home, KEEP)
    assert alone(found) == Decimal("37957.5")
    assert found["what_if"]["all_fixes"]["calls"] == 15
    assert money(found["what_if"]["all_fixes"]["own_costs"]["input_equivalents"]) == 3_615
    added = [n for n, call in enumerate(found["calls"]) if figures(found)[n] == (0, 36_150)]
    assert len(added) == 1
    rest = [value for n, value in enumerate(figures(found)) if n not in added]
    expected = list(zip(WRITES, READS, strict=True))
    expected[6] = (1_500, 36_150)
    assert rest == expected


def test_a07_all_fixes_together(home: Path) -> None:
    for wide in ("mark-previous", "join-blocks"):
        found = simulate(home, TOOLS, KEEP, AUTO, wide, FAN)["what_if"]
        after = found["all_fixes"]
        assert after["calls"] == 15
        assert (after["cache_write"], after["cache_read"]) == (82_770, 545_560)
        assert round(Decimal(str(after["hit_ratio"])) * 100, 2) == Decimal("86.83")
        assert money(after["input_equivalents"]) == Decimal("158018.5")
        check_balance(found)


def check_balance(what_if: Json) -> None:
    """Baseline less every step is all fixes, to the last digit, in tokens' worth and in money."""
    before, after = what_if["baseline"], what_if["all_fixes"]
    for unit in ("input_equivalents", "cost"):
        steps = sum((money(s["saves"][unit]) for s in what_if["waterfall"]), Decimal(0))
        assert money(before[unit]) - steps == money(after[unit])
        assert money(after["saves"][unit]) == steps


def test_a07_the_audit_finds_the_same_fixes_by_itself(full: Audit) -> None:
    found = full.document["what_if"]
    check_balance(found)
    after = found["all_fixes"]
    assert after["calls"] == 15
    assert (after["cache_write"], after["cache_read"]) == (82_770, 545_560)
    assert money(after["input_equivalents"]) == Decimal("158018.5")
    by_name = {loss.name: loss for loss in full.losses}
    saved = {
        name: money(loss.fix["saves_alone"]["input_equivalents"])
        for name, loss in by_name.items()
        if loss.fix.get("saves_alone")
    }
    assert saved["tool-inserted-midway"] == 36_915
    assert saved["ttl-used-up-by-long-request"] == Decimal("37957.5")
    assert saved["tool-choice-toggled"] == 38_295
    assert saved["marker-beyond-lookback"] == 40_020
    assert saved["concurrent-identical-writes"] == 69_690


# --- A08: a forced tool ------------------------------------------------------------------------


def test_a08_three_paths_and_break_even(home: Path) -> None:
    forced = simulate(home, AUTO)["forced"]
    paths = [money(forced[name]) for name in ("forced", "complies", "retry")]
    assert paths == [50_025, 11_730, 54_090]
    assert Decimal(str(forced["break_even"])).quantize(Decimal("0.0001")) == (
        Decimal(4_065) / Decimal(42_360)
    ).quantize(Decimal("0.0001"))


def test_a08_the_retry_path_costs_more_and_is_shown_as_negative(home: Path) -> None:
    found = simulate(home, f"{AUTO}:path=retry")
    assert alone(found) == 50_025 - 54_090


def test_an_hour_everywhere_costs_more_and_is_shown_as_negative(home: Path) -> None:
    # 37,650 tokens of row 7 become a read of 36,150 and a write; all writes cost 2.
    found = simulate(home, "ttl:ttl=1h")
    written = 280_420 - 36_150
    expected = Decimal(2) * written + Decimal("0.1") * (311_760 + 36_150)
    assert alone(found) == 381_701 - expected
    assert alone(found) < 0
