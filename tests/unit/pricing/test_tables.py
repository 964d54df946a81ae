"""The tables that come with the package, and the check that guards them."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
import tomllib
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cacheaudit.errors import PricingError
from cacheaudit.pricing.book import PriceBook
from cacheaudit.pricing.check import check_table
from cacheaudit.pricing.table import Table, builtin_names, load_builtin, parse_hours

NAMES = builtin_names()
REQUIRED = (
    "anthropic", "azure", "bedrock", "deepseek", "fireworks", "google", "groq", "minimax",
    "mistral", "moonshot", "openai", "openrouter", "qwen", "together", "xai", "zai",
)  # fmt: skip


def test_every_provider_of_the_rules_has_a_table() -> None:
    assert set(REQUIRED) <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_built_in_tables_are_sound(name: str) -> None:
    table = load_builtin(name)
    assert table is not None
    assert table.provider == name
    assert list(check_table(table)) == []
    assert table.models


@pytest.mark.parametrize("name", NAMES)
def test_every_row_has_a_source_and_a_date(name: str) -> None:
    table = load_builtin(name)
    assert table is not None
    for model in table.models:
        for row in table.model(model).rows:
            assert len(row.source) > 10
            assert dt.date(2026, 1, 1) < row.checked <= table.as_of
            assert all(type(rate) is Decimal for rate in row.rates.values())


# Resellers do list such prices; the makers themselves do not.
@pytest.mark.parametrize("name", [name for name in REQUIRED if name != "openrouter"])
def test_reads_are_never_dearer_and_long_writes_never_cheaper(name: str) -> None:
    """What no provider does; a typing error in a table would."""
    table = load_builtin(name)
    assert table is not None
    for model in table.models:
        for row in table.model(model).rows:
            rates = row.rates
            if "read" in rates:
                assert rates["read"] <= rates["uncached"], model
            if "write_5m" in rates and "write_1h" in rates:
                assert rates["write_5m"] < rates["write_1h"], model
            if "write_30m" in rates and "write_12h" in rates:
                assert rates["write_30m"] < rates["write_12h"], model


def test_newest_date_is_that_of_the_tables() -> None:
    book = PriceBook()
    assert book.as_of == max(table.as_of for table in book.tables()).isoformat()


def test_committed_tables_are_what_the_script_writes(root: Path) -> None:
    pytest.importorskip("genai_prices")
    script = root / "fixtures" / "make" / "make_prices.py"
    done = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_look_up_loads_neither_pydantic_nor_other_tables() -> None:
    code = (
        "import sys\n"
        "from cacheaudit.pricing.book import PriceBook\n"
        "book = PriceBook()\n"
        "assert book.card('anthropic', 'claude-opus-5', 1.8e9) is not None\n"
        "assert not {'pydantic', 'genai_prices', 'sqlalchemy'} & set(sys.modules)\n"
        "assert list(book._builtin) == ['anthropic']\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


ROW = {"uncached": 3, "output": 15, "source": "s"}


def _table(*rows: dict[str, Any], **head: Any) -> Table:
    raw = {
        "schema": 1,
        "provider": "p",
        "checked": dt.date(2026, 11, 1),
        "sources": {"s": {"title": "price list"}},
        "models": {"m": {"rows": list(rows)}},
    }
    return Table(raw | head, "t")


@pytest.mark.parametrize(
    ("rows", "word"),
    [
        ([ROW | {"to": dt.date(2026, 2, 1)}, ROW | {"from": dt.date(2026, 3, 1)}], "nothing holds"),
        ([ROW | {"to": dt.date(2026, 3, 1)}, ROW | {"from": dt.date(2026, 2, 1)}], "overlap"),
        ([ROW, ROW], "two rows for the same prompt size"),
        ([ROW | {"above": 5}], "no row for small prompts"),
        ([ROW | {"hours": "01:00-02:00"}], "no row for the rest of the day"),
        (
            [ROW, ROW | {"hours": "01:00-03:00"}, ROW | {"hours": "02:00-04:00"}],
            "hours overlap",
        ),
        (
            [ROW, ROW | {"hours": "23:00-01:00"}, ROW | {"hours": "00:30-00:40"}],
            "hours overlap",
        ),
        ([ROW | {"when": "batch"}], "no row for ordinary service"),
        ([ROW | {"uncached": 0.1}], "no exact decimal"),
        ([ROW | {"uncached": -1}], "not a finite number"),
        ([ROW | {"uncached": "NaN"}], "not a finite number"),
        ([ROW | {"uncached": "abc"}], "no number"),
        ([ROW | {"source": "x"}], "not in [sources]"),
        ([{"uncached": 3}], "not in [sources]"),
        ([{"output": 3, "source": "s"}], "'uncached' is missing"),
        ([ROW | {"uncachd": 3}], "unknown key 'uncachd'"),
        ([ROW | {"hours": "1-2"}], "cannot be read"),
        ([ROW | {"from": dt.date(2026, 2, 1), "to": dt.date(2026, 2, 1)}], "not after"),
        ([], "no rows"),
    ],
)
def test_faults_are_named(rows: list[dict[str, Any]], word: str) -> None:
    assert any(word in problem for problem in check_table(_table(*rows)))


def test_a_sound_table_has_no_faults() -> None:
    rows = [
        ROW | {"to": dt.date(2026, 2, 1)},
        ROW | {"from": dt.date(2026, 2, 1)},
        ROW | {"from": dt.date(2026, 2, 1), "above": 100},
        ROW | {"from": dt.date(2026, 2, 1), "hours": "01:00-02:00 22:00-23:00", "days": "mon-fri"},
    ]
    assert list(check_table(_table(*rows))) == []


def test_two_models_under_one_name() -> None:
    entry = {"rows": [ROW]}
    table = _table(models={"m": entry, "M": entry})
    assert any("also filed as" in problem for problem in check_table(table))
    table = _table(models={"m": entry, "n": entry | {"also": ["m"]}})
    assert table.names["m"] == "m"


def test_a_table_of_another_version_is_refused() -> None:
    with pytest.raises(PricingError, match="schema is 2"):
        _table(ROW, schema=2)


def test_hours_past_midnight() -> None:
    (span,) = parse_hours("16:30-00:30", None, "t")
    inside = [minute for minute in range(24 * 60) if span.holds(minute, 3)]
    assert inside == [*range(30), *range(16 * 60 + 30, 24 * 60)]
    (weekdays,) = parse_hours("00:00-24:00", "mon-fri", "t")
    assert [weekdays.holds(0, day) for day in range(7)] == [True] * 5 + [False] * 2


def test_default_multipliers_are_documented(root: Path) -> None:
    path = root / "cacheaudit" / "pricing" / "data" / "_defaults.toml"
    raw = tomllib.loads(path.read_text("utf-8"), parse_float=Decimal)
    assert raw["checked"] == dt.date(2026, 11, 30)
    for name, entry in raw.items():
        if isinstance(entry, dict):
            assert entry["source"], name
            assert f"write_{entry['write_ttl']}" in entry, name
