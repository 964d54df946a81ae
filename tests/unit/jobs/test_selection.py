"""Audits with some of the rules, with none, and of the bare figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cacheaudit.cli import main
from cacheaudit.diagnose.rule import all_rules
from cacheaudit.errors import UsageError
from cacheaudit.jobs.selection import Selection, parse_selection

DEMO = "fixtures/sessions/demo.session.jsonl"


def audit(root: Path, *options: str, code: int = 0) -> Any:
    import json

    run = CliRunner().invoke(main, ["audit", str(root / DEMO), "--json", "--quiet", *options])
    assert run.exit_code == code, run.output
    return json.loads(run.stdout) if code == 0 else run.output


def ids(selection: Selection) -> set[str]:
    return {rule.id for rule in selection.rules()}


EVERY = {rule.id for rule in all_rules()}


@pytest.mark.parametrize(
    ("select", "ignore", "expected"),
    [
        ([], [], EVERY),
        (["all"], [], EVERY),
        (["none"], [], set()),
        (["TTL101"], [], {"TTL101"}),
        (["ttl101, pfx201"], [], {"TTL101", "PFX201"}),
        (["clock-in-system"], [], {"PFX201"}),
        (["ttl"], ["TTL101"], {i for i in EVERY if i.startswith("TTL")} - {"TTL101"}),
        ([], ["all"], set()),
        ([], ["PFX", "TOL"], {i for i in EVERY if i[:3] not in ("PFX", "TOL")}),
    ],
)
def test_words_name_rules(select: list[str], ignore: list[str], expected: set[str]) -> None:
    assert ids(parse_selection(select, ignore)) == expected


def test_a_word_that_names_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="TLL") as caught:
        parse_selection(["TLL"], [])
    assert "TTL" in (caught.value.hint or "")


def test_only_selected_rules_speak(root: Path) -> None:
    whole = audit(root)
    some = audit(root, "--select", "PFX", "--ignore", "PFX102")
    assert {f["rule"] for f in some["findings"]} == {
        f["rule"] for f in whole["findings"] if f["rule"][:3] == "PFX" and f["rule"] != "PFX102"
    }
    states = {check["rule"]: check["state"] for check in some["checks"]}
    assert {rule for rule, state in states.items() if state != "off"} == {
        rule for rule in EVERY if rule[:3] == "PFX" and rule != "PFX102"
    }
    assert some["diagnosed"] is True
    assert some["totals"] == whole["totals"]
    assert "--select PFX --ignore PFX102" in some["command"]


@pytest.mark.parametrize("options", [["--quick"], ["--select", "none"]])
def test_without_rules_nothing_is_said_of_losses(root: Path, options: list[str]) -> None:
    whole, bare = audit(root), audit(root, *options)
    assert bare["totals"] == whole["totals"]
    assert bare["findings"] == []
    assert bare["diagnosed"] is False
    assert bare["what_if"]["all_fixes"] is None
    assert bare["what_if"]["reason"]
    assert {check["state"] for check in bare["checks"]} == {"off"}
    bill = [call["cost"] for call in whole["calls"]]
    assert [call["cost"] for call in bare["calls"]] == bill
    is_predicted = any(call["predicted"] for call in bare["calls"])
    assert is_predicted == (options != ["--quick"])
    assert options[-1] in bare["command"]


@pytest.mark.parametrize("form", ["text", "md", "html"])
def test_reports_say_that_nothing_was_looked_for(root: Path, form: str) -> None:
    run = CliRunner().invoke(
        main, ["audit", str(root / DEMO), "--quick", "--quiet", "--format", form]
    )
    assert run.exit_code == 0
    assert "osses were not looked for" in run.stdout
    assert "no loss to cache misses was found" not in run.stdout
    assert "none expired in use" not in run.stdout
    assert "nothing in this record was lost" not in run.stdout


@pytest.mark.parametrize(
    "option", [["--select", "PFX"], ["--ignore", "PFX"], ["--fail-over", "5usd"]]
)
def test_bare_figures_cannot_be_judged(root: Path, option: list[str]) -> None:
    assert "--quick" in audit(root, "--quick", *option, code=2)


@pytest.mark.parametrize("option", [["--select", "none"], ["--ignore", "all"]])
def test_a_gate_without_rules_does_not_pass(root: Path, option: list[str]) -> None:
    assert "No rule is left to run" in audit(root, *option, "--fail-over", "1%", code=2)
