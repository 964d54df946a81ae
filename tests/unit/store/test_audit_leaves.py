"""What ``audit --db`` leaves in the store: findings, and the prices that they rest on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from cacheaudit.cli import main
from cacheaudit.cli._machine import Machine
from cacheaudit.model.clock import FixedClock
from cacheaudit.store import open_store
from tests.unit.ingest.wire_samples import SESSIONS

DEMO = SESSIONS / "demo.session.jsonl"
PARTIAL = (
    ("--since", "2000-01-01"),
    ("--until", "2100-01-01"),
    ("--select", "TTL101"),
    ("--ignore", "TTL101"),
    ("--quick",),
)


def run(folder: Path, *arguments: object) -> Any:
    machine = Machine({"XDG_DATA_HOME": str(folder)}, folder, FixedClock(1.79e9))
    result = CliRunner().invoke(main, [str(a) for a in arguments], obj=machine)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def shape(finding: Any) -> tuple[Any, ...]:
    lost = finding["lost"] if isinstance(finding, dict) else finding.lost
    equivalents = lost["input_equivalents"] if isinstance(lost, dict) else None
    if lost is not None and equivalents is None:
        equivalents = f"{lost.input_equivalents.normalize():f}"
    if isinstance(finding, dict):
        return (finding["id"], finding["verdict"], finding["tokens_lost"], equivalents)
    return (finding.id, finding.verdict, finding.tokens_lost, equivalents)


def test_an_audit_of_a_store_puts_its_findings_and_prices_into_it(tmp_path: Path, url: str) -> None:
    run(tmp_path, "import", DEMO, "--db", url, "--json")
    for _ in range(2):  # the second replaces what the first left
        result = run(tmp_path, "audit", "--db", url, "--json")
        with open_store(url) as store:
            assert sorted(map(shape, store.findings())) == sorted(map(shape, result["findings"]))
            prices = dict(store.prices())
        assert {row["price"] for row in result["calls"]} == set(prices)
        card = prices["anthropic/claude-opus-5-5@start/standard"]
        assert card["rates"]["read"] == "0.2"
        assert card["checked"]


@pytest.mark.parametrize("options", PARTIAL, ids=lambda options: options[0])
def test_an_audit_of_a_part_replaces_nothing(tmp_path: Path, options: tuple[str, ...]) -> None:
    url = f"sqlite:///{tmp_path / 'x.db'}"
    run(tmp_path, "import", DEMO, "--db", url, "--json")
    run(tmp_path, "audit", "--db", url, "--json")
    with open_store(url) as store:
        before = store.findings()
    assert before
    run(tmp_path, "audit", "--db", url, "--json", *options)
    with open_store(url) as store:
        assert store.findings() == before


def test_a_store_that_may_not_be_written_is_audited_all_the_same(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'x.db'}"
    run(tmp_path, "import", DEMO, "--db", url, "--json")
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE findings"))
        connection.execute(sa.text("CREATE VIEW findings AS SELECT 1 AS id, 's' AS session"))
    engine.dispose()
    result = run(tmp_path, "audit", "--db", url, "--json")
    assert result["findings"]
    assert [row["kind"] for row in result["data_quality"]] == ["findings_not_stored"]
