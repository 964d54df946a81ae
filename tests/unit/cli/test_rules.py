"""``cacheaudit rules``: the whole catalogue, and what each rule needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cacheaudit.diagnose.rule import FAMILIES, all_rules
from cacheaudit.jobs.linting.catalogue import CHECKS
from tests.unit.cli.helpers import ROOT, run


def rules(folder: Path, *args: str) -> dict[str, Any]:
    result = run(folder, "rules", "--json", *args)
    assert result.exit_code == 0, result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    assert document["schema"] == "cacheaudit.rules/1"
    return document


def test_every_rule_and_check_is_listed(tmp_path: Path) -> None:
    found = rules(tmp_path)
    assert [(r["id"], r["name"]) for r in found["rules"]] == [(r.id, r.name) for r in all_rules()]
    assert {r["family"] for r in found["rules"]} <= FAMILIES.keys()
    assert {c["name"]: c["level"] for c in found["lint"]} == {
        name: check.level for name, check in CHECKS.items()
    }


def test_what_rules_need_is_found_in_their_examples(tmp_path: Path) -> None:
    needs = {r["name"]: set(r["needs"]) for r in rules(tmp_path)["rules"]}
    assert "requests" in needs["tools-changed"]
    assert "requests" in needs["system-changed"]
    assert "start_times" in needs["ttl-expired"]
    assert "requests" not in needs["ttl-expired"]
    assert "provider_reasons" in needs["miss-reason-unavailable"]
    assert "boundaries" in needs["compacted"]
    assert all(needs.values())


def test_one_family(tmp_path: Path) -> None:
    found = rules(tmp_path, "--family", "ttl")
    assert {r["family"] for r in found["rules"]} == {"TTL"}
    assert found["lint"] == []
    result = run(tmp_path, "rules", "--family", "XYZ")
    assert result.exit_code == 2
    assert "TTL" in result.stderr


def test_text_and_markdown(tmp_path: Path) -> None:
    shown = run(tmp_path, "rules", env={"COLUMNS": "120"}).stdout
    markdown = run(tmp_path, "rules", "--format", "md").stdout
    for rule in all_rules():
        assert rule.id in shown
        assert f"| {rule.id} | {rule.name} |" in markdown
    for name in CHECKS:
        assert name in shown
        assert f"| {name} |" in markdown


def test_the_guide_describes_every_check() -> None:
    text = (ROOT / "docs" / "guide" / "lint.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    for name, check in CHECKS.items():
        [row] = [line for line in rows if f"`{name}`" in line]
        assert check.level.replace("_", " ") in row
