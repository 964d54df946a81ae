"""Fields that an audit fills beside its totals: what stands in them is right."""

from __future__ import annotations

import json
import shlex
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cacheaudit.diagnose.rule import find_rule
from cacheaudit.ingest.corpus import Corpus
from cacheaudit.ingest.problems import Problems
from cacheaudit.jobs.audit import audit
from cacheaudit.jobs.inputs import Inputs, silent
from cacheaudit.jobs.rows import CallRows
from cacheaudit.jobs.rulebook import UsedRules
from cacheaudit.model.change import first_change
from cacheaudit.providers.facts import rules
from cacheaudit.report.result import AuditResult, CallRow, FindingRow
from cacheaudit.simulate.claude import claude_rules
from cacheaudit.simulate.switches import SWITCHES, Switches
from tests.unit.cli.helpers import run

ROOT = Path(__file__).parents[3]
SESSIONS = ROOT / "fixtures" / "sessions"
DEMO = "fixtures/sessions/demo.session.jsonl"
EXERCISE = "fixtures/sessions/exercise-14.session.jsonl"
USAGE_ONLY = "fixtures/sessions/exercise-14.csv"


def audited(*names: str, **more: Any) -> AuditResult:
    paths = tuple(ROOT / name for name in names)
    return audit(Inputs(paths=paths, environment={}, home=Path("/nonexistent")), silent, **more)


def by_name(result: AuditResult, name: str) -> FindingRow:
    return next(finding for finding in result.findings if finding.name == name)


def row(result: AuditResult, call: str) -> CallRow:
    return next(row for row in result.calls if row.id == call)


@pytest.fixture(scope="module")
def exercise() -> AuditResult:
    return audited(EXERCISE)


@pytest.fixture(scope="module")
def demo() -> AuditResult:
    return audited(DEMO)


# ── what each call lost ──────────────────────────────────────────────────────────────────────────


def test_the_forced_tool_of_the_exercise_call_by_call(exercise: AuditResult) -> None:
    places = by_name(exercise, "tool-choice-toggled").places
    # Written at 1.25 instead of read at 0.1: 1.15 a token, at $5 a million.
    assert [(p.call, p.tokens_lost) for p in places] == [
        ("msg_exercise_09", 31_800),
        ("msg_exercise_10", 1_500),
    ]
    lost = [p.lost for p in places if p.lost is not None]
    assert [(one.input_equivalents, one.cost) for one in lost] == [
        ("36570", "0.18285"),
        ("1725", "0.008625"),
    ]


@pytest.mark.parametrize("name", [DEMO, EXERCISE, USAGE_ONLY])
def test_places_add_up_to_their_finding(name: str) -> None:
    for finding in audited(name).findings:
        if finding.kind != "loss":
            assert finding.places == []
            continue
        assert sum(place.tokens_lost for place in finding.places) == finding.tokens_lost
        assert {place.call for place in finding.places} <= set(finding.calls)
        assert finding.lost is not None
        parts = [place.lost for place in finding.places if place.lost is not None]
        assert len(parts) == len(finding.places)
        whole = sum(Decimal(part.input_equivalents) for part in parts)
        assert whole == Decimal(finding.lost.input_equivalents)


def test_a_call_of_several_shares_stands_there_once() -> None:
    """The rest of a call's loss stands in the place of its finding, not the whole again."""
    result = audited(DEMO, EXERCISE)
    for finding in result.findings:
        calls = [place.call for place in finding.places]
        assert len(calls) == len(set(calls))
    by_call: dict[str, int] = {}
    for finding in result.findings:
        for place in finding.places:
            by_call[place.call] = by_call.get(place.call, 0) + place.tokens_lost
    rows = {row.id: row for row in result.calls}
    for call, lost in by_call.items():
        total, read = rows[call].total_input, rows[call].cache_read
        assert total is not None
        assert read is not None
        assert lost <= total - read


# ── what stood at a change ───────────────────────────────────────────────────────────────────────


def test_a_clock_is_seen_and_not_shown(demo: AuditResult) -> None:
    change = row(demo, "msg_demo_16").first_change
    assert change is not None
    assert change.masked
    assert (
        change.before_text == change.after_text == "…x xxxxxxx. Xxx xxxx xx 9999-99-99X99:99:⟦99⟧."
    )


def test_the_text_is_shown_where_it_is_asked_for() -> None:
    change = row(audited(DEMO, show_text=True), "msg_demo_16").first_change
    assert change is not None
    assert not change.masked
    assert change.before_text == "…e nothing. The time is 2026-11-12T10:15:⟦33⟧."
    assert change.after_text == "…e nothing. The time is 2026-11-12T10:15:⟦41⟧."


def test_a_change_is_against_the_call_that_it_was_compared_with() -> None:
    """A request beside the conversation does not come between its two prompts."""
    (session,) = Corpus([SESSIONS / "demo.session.jsonl"], Problems(), silent).sessions()
    known = {call.id: call for call in session.calls}
    forced, free = known["msg_demo_26"], known["msg_demo_27"]
    beside = msgspec.structs.replace(
        known["msg_demo_01"], id="beside", purpose="probe", started_at=forced.ended_at
    )
    change = audit_of(session, (forced, beside, free))["msg_demo_27"]["first_change"]
    assert change["path"] == "tool_choice"
    # The request in between forced no tool: against it nothing would have been removed.
    assert change["before_text"] == '{"xxxx":"xxxxxx_xxxx","xxxx":"xxxx"}'
    assert change["after_text"] is None


def audit_of(session: Any, calls: tuple[Any, ...]) -> dict[str, Any]:
    """Audit a session with other calls, through the job itself."""
    from cacheaudit.jobs.audit import _Work
    from cacheaudit.pricing.book import PriceBook

    inputs = Inputs(paths=(), environment={}, home=Path("/nonexistent"))
    work = _Work(PriceBook(), inputs, Problems())
    work.take(msgspec.structs.replace(session, calls=calls))
    return {row.id: msgspec.to_builtins(row) for row in work._spool}


def test_nothing_of_a_prompt_is_in_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    words = ("The time is", "Read an issue of the tracker", "Offsets such as", "Summary: parser")
    for form in ("json", "html", "md", "csv", "text", "sarif"):
        hidden = run(tmp_path, "audit", DEMO, "--format", form)
        assert hidden.exit_code == 0, hidden.stderr
        assert not [word for word in words if word in hidden.stdout], form
    shown = run(tmp_path, "audit", DEMO, "--json", "--show-text").stdout
    assert all(word in shown for word in words)
    assert json.loads(shown)["command"] == f"cacheaudit audit {DEMO} --show-text"


def test_no_text_without_bodies_or_an_earlier_prompt() -> None:
    for name in (USAGE_ONLY, "fixtures/sessions/plain.jsonl"):
        assert all(row.first_change is None for row in audited(name).calls)
    (session,) = Corpus([SESSIONS / "demo.session.jsonl"], Problems(), silent).sessions()
    before, after = session.calls[14], session.calls[15]
    assert before.prompt is not None
    assert after.prompt is not None
    change = first_change(before.prompt, after.prompt)
    alone = CallRows().row(after, None, None, None, change, None).first_change
    assert alone is not None
    assert (alone.before_text, alone.after_text) == (None, None)


# ── why a read was short ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "reasons"),
    [
        (EXERCISE, {"msg_exercise_07": "expired", "msg_exercise_11": "beyond_lookback"}),
        (USAGE_ONLY, {"exercise-14#8": "expired"}),
    ],
)
def test_a_long_request_and_a_long_turn_have_their_reasons(
    name: str, reasons: dict[str, str]
) -> None:
    said = {row.id: row.predicted.why for row in audited(name).calls if row.predicted is not None}
    assert {one: why for one, why in said.items() if why is not None} == reasons


def test_the_demo_expired_twice(demo: AuditResult) -> None:
    short = [row.id for row in demo.calls if row.predicted and row.predicted.why == "expired"]
    assert short == ["msg_demo_11", "msg_demo_45"]


# ── rules used ───────────────────────────────────────────────────────────────────────────────────


def test_every_rule_used_has_its_row(exercise: AuditResult) -> None:
    facts = {fact.name: fact for fact in exercise.facts}
    assert len(facts) == len(exercise.facts)
    assert {fact.model for fact in exercise.facts} == {"claude-opus-5"}
    assert facts["minimum_tokens"].value == "512"
    assert facts["lookback_positions"].value == "20"
    assert facts["ttl_seconds"].value == "5m 300, 1h 3,600"
    assert facts["level_order"].value == "tools, system, messages"
    in_force = rules("anthropic", "claude-opus-5", None)
    assert in_force is not None
    for name, fact in facts.items():
        assert fact.source == in_force.facts[name].source
        assert fact.checked is not None
    assert exercise.simulation.assumed == ["claude-opus-5: drops.beta_headers"]
    assert exercise.simulation.switches == Switches().in_force()
    assert [row.name for row in exercise.simulation.disputed] == [s.name for s in SWITCHES]
    assert all(row.value == row.default for row in exercise.simulation.disputed)


def test_sizes_rest_on_fewer_rules() -> None:
    facts = {fact.name for fact in audited(USAGE_ONLY).facts}
    assert "ttl_seconds" in facts
    assert not facts & {"lookback_positions", "most_markers", "drops.tool_choice"}


def test_rows_that_two_models_share_stand_there_once() -> None:
    used = UsedRules()
    for model in ("claude-opus-5", "claude-sonnet-4-6"):
        found = rules("anthropic", model)
        assert found is not None
        used.add("bodies", [found])
    facts = {fact.name: fact for fact in used.rows() if fact.name != "minimum_tokens"}
    assert facts["ttl_seconds"].model == "claude-opus-5, claude-sonnet-4-6"
    sizes = {f.model: f.value for f in used.rows() if f.name == "minimum_tokens"}
    assert sizes == {"claude-opus-5": "512", "claude-sonnet-4-6": "1,024"}


def test_the_row_of_the_day_is_taken() -> None:
    """A rule that changed has both rows where calls stand on both sides of the change."""
    early, late = (
        rules("anthropic", "claude-opus-5", at) for at in (1_786_000_000.0, 1_795_000_000.0)
    )
    assert early is not None
    assert late is not None
    changed = [n for n, fact in late.facts.items() if n in early.facts and early.facts[n] != fact]
    used = UsedRules()
    used.add("bodies", [early, late])
    for name in set(changed) & {fact.name for fact in used.rows()}:
        days = {fact.checked for fact in used.rows() if fact.name == name}
        assert days == {
            early.facts[name].valid_from.isoformat(),
            late.facts[name].valid_from.isoformat(),
        }


def test_what_the_machine_asks_for_is_what_is_listed() -> None:
    found = rules("anthropic", "claude-opus-5")
    assert found is not None
    used = UsedRules()
    used.add("bodies", [found])
    names = {fact.name for fact in used.rows()}
    # Without a listed fact the machine's rules would be others, or the default happens to agree.
    for name in ("minimum_tokens", "collapse_runs"):
        rest = {key: fact for key, fact in found.facts.items() if key != name}
        poorer = type(found)(found.provider, found.model, found.surface, rest)
        assert claude_rules(poorer, Switches()) != claude_rules(found, Switches())
        assert name in names


def test_nothing_read_rests_on_nothing() -> None:
    assert UsedRules().rows() == []
    assert UsedRules().assumed() == []


# ── command lines ────────────────────────────────────────────────────────────────────────────────


def made_again(home: Path, command: str) -> dict[str, Any]:
    words = shlex.split(command)
    assert words[0] == "cacheaudit"
    result = run(home, *words[1:], "--json")
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.mark.parametrize("name", [DEMO, EXERCISE])
def test_commands_make_the_same_figures(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    result = made_again(tmp_path, f"cacheaudit audit {name}")
    what_if = result["what_if"]
    assert made_again(tmp_path, result["command"])["totals"] == result["totals"]
    every = made_again(tmp_path, what_if["all_fixes"]["command"])["what_if"]["all_fixes"]
    for field in ("saves", "cost", "cache_read", "cache_write", "calls"):
        assert every[field] == what_if["all_fixes"][field], field
    for row in what_if["scenarios"]:
        if row["name"] in ("no-caching", "ideal"):
            assert row["command"] is None
            continue
        again = made_again(tmp_path, row["command"])["what_if"]["scenarios"][0]
        assert again["saves"] == row["saves"]
        assert again["command"] == row["command"]


def test_settings_from_usage_alone_are_backtests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    rows = made_again(tmp_path, f"cacheaudit audit {USAGE_ONLY}")["what_if"]["scenarios"]
    told = [row for row in rows if row["command"] is not None]
    assert {row["name"] for row in told} == {"no-caching", "one-hour", "keep-alive"}
    for row in told:
        (policy,) = made_again(tmp_path, row["command"])["policies"]
        assert policy["saves"] == row["saves"]
        assert policy["refreshes"] == row["added_calls"]


def test_no_command_where_none_gives_the_figures(tmp_path: Path) -> None:
    both = audited(DEMO, EXERCISE).what_if
    mixed = audited(DEMO, USAGE_ONLY).what_if
    for what_if in (both, mixed):
        assert not [row for row in what_if.scenarios if getattr(row, "command", None)]
        assert getattr(what_if.all_fixes, "command", "x") is None
    del tmp_path


def test_a_range_needs_requests_of_all(exercise: AuditResult) -> None:
    assert exercise.what_if.low is not None
    assert exercise.what_if.low.cost == "0.5506625"
    mixed = audited(EXERCISE, USAGE_ONLY).what_if
    assert (mixed.low, mixed.high) == (None, None)
    assert mixed.reason == "disputed rules can be tried on recorded requests only"


def test_rules_are_named_as_the_catalogue_has_them(exercise: AuditResult) -> None:
    for check in exercise.checks:
        rule = find_rule(check.rule)
        assert rule is not None
        assert (check.name, check.title) == (rule.name, rule.title)
