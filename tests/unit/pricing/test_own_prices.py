"""Price files of the user, and genai-prices as a further source."""

from __future__ import annotations

import json
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from cacheaudit.errors import ConfigError, MissingExtraError
from cacheaudit.jobs.inputs import Inputs, silent
from cacheaudit.jobs.usage import usage
from cacheaudit.model.clock import parse_time
from cacheaudit.pricing.book import PriceBook

NOV = parse_time("2026-11-20T12:00:00Z")
MILLION = Decimal(1_000_000)
HEAD = 'checked = 2026-11-15\nsource = "contract 17"\n'


def _file(tmp_path: Path, text: str, name: str = "prices.toml") -> Path:
    path = tmp_path / name
    path.write_text(text, "utf-8")
    return path


def test_own_rows_replace_built_in_ones(tmp_path: Path) -> None:
    path = _file(
        tmp_path,
        HEAD
        + """
[[prices]]
provider = "anthropic"
model = "claude-opus-5-5"
uncached = 2.2
read = "0.11"
write_5m = 2.75
write_1h = 4.4
output = 11
""",
    )
    book = PriceBook([path])
    card = book.card("anthropic", "claude-opus-5-5-20260921", NOV)
    assert card is not None
    assert card.uncached * MILLION == Decimal("2.2")
    assert card.read * MILLION == Decimal("0.11")
    assert (card.source, card.checked) == ("contract 17", "2026-11-15")
    other = book.card("anthropic", "claude-opus-5", NOV)
    assert other is not None
    assert other.uncached * MILLION == 5


def test_own_models_of_own_providers(tmp_path: Path) -> None:
    path = _file(
        tmp_path,
        json.dumps(
            {
                "checked": "2026-11-15",
                "prices": [
                    {
                        "provider": "in-house",
                        "model": "our-model",
                        "also": ["our-model-fp8"],
                        "currency": "EUR",
                        "uncached": "0.1",
                        "output": 0.3,
                    }
                ],
            }
        ),
        "prices.json",
    )
    book = PriceBook([path])
    for provider, model in (
        ("in-house", "our-model"),
        (None, "our-model"),
        (None, "our-model-fp8"),
    ):
        card = book.card(provider, model, NOV)
        assert card is not None
        assert card.currency == "EUR"
        assert card.output == Decimal("0.0000003")
        assert card.source == "price file prices.json"
    assert book.card("other", "our-model", NOV) is None


def test_own_price_of_a_model_is_not_taken_for_its_snapshots(tmp_path: Path) -> None:
    """gpt-4o-2024-05-13 has a price of its own, which an own price of gpt-4o leaves alone."""
    row = '[[prices]]\nprovider = "openai"\nmodel = "gpt-4o"\nuncached = 1\noutput = 1\n'
    book = PriceBook([_file(tmp_path, HEAD + row)])
    rates = {
        model: card.uncached * MILLION
        for model in ("gpt-4o", "gpt-4o-2024-08-06", "gpt-4o-2024-05-13")
        if (card := book.card("openai", model, NOV)) is not None
    }
    assert rates == {"gpt-4o": 1, "gpt-4o-2024-08-06": 1, "gpt-4o-2024-05-13": 5}


def test_the_later_of_two_files_counts(tmp_path: Path) -> None:
    row = '[[prices]]\nprovider = "x"\nmodel = "m"\noutput = 1\nuncached = {}\n'
    files = [_file(tmp_path, HEAD + row.format(n), f"{n}.toml") for n in (1, 2)]
    card = PriceBook(files).card("x", "m", NOV)
    assert card is not None
    assert card.uncached * MILLION == 2


def test_dates_tiers_and_hours_in_an_own_file(tmp_path: Path) -> None:
    path = _file(
        tmp_path,
        HEAD
        + """
prices = [
  { provider = "x", model = "m", to = 2026-11-01, uncached = 1, output = 1 },
  { provider = "x", model = "m", from = 2026-11-01, uncached = 2, output = 2 },
  { provider = "x", model = "m", from = 2026-11-01, above = 1000, uncached = 4, output = 4 },
  { provider = "x", model = "m", from = 2026-11-01, hours = "01:00-02:00", uncached = 8 },
  { provider = "x", model = "m", when = "batch", uncached = 0.5, output = 0.5 },
]
""",
    )
    book = PriceBook([path])

    def uncached(at: str, size: int = 1, tier: str | None = None) -> Decimal:
        card = book.card("x", "m", parse_time(at), total_input=size, service_tier=tier)
        assert card is not None
        return card.uncached * MILLION

    assert uncached("2026-10-31T23:59:59Z") == 1
    assert uncached("2026-11-01T00:00:00Z") == 2
    assert uncached("2026-11-01T00:00:00Z", 1_001) == 4
    assert uncached("2026-11-01T01:30:00Z") == 8
    assert uncached("2026-11-01T01:30:00Z", tier="batch") == Decimal("0.5")
    assert book.as_of == "2026-11-30"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("nonsense", ["prices.toml", "TOML"]),
        ("prices = []\nchecked = 2026-01-01\n", ["prices", "at least 1 item"]),
        ('[[prices]]\nprovider = "x"\nmodel = "m"\nuncached = 1\n', ["checked", "required"]),
        (HEAD + '[[prices]]\nprovider = "x"\nuncached = 1\n', ["prices[1].model", "required"]),
        (HEAD + '[[prices]]\nprovider = "x"\nmodel = "m"\n', ["prices[1].uncached", "required"]),
        (
            HEAD + '[[prices]]\nprovider = "x"\nmodel = "m"\nuncached = -1\n',
            ["prices[1].uncached", "0 or more"],
        ),
        (
            HEAD + '[[prices]]\nprovider = "x"\nmodel = "m"\nuncached = 1\nreed = 1\n',
            ["prices[1].reed"],
        ),
        (
            HEAD + '[[prices]]\nprovider = "x"\nmodel = "m"\nuncached = 1\nhours = "9-17"\n',
            ["prices[1]", "01:00-04:00"],
        ),
        (
            HEAD + '[[prices]]\nprovider = "x"\nmodel = "m"\nuncached = 1\ndays = "mon-fri"\n',
            ["prices[1].days", "without hours"],
        ),
        (
            HEAD
            + 'prices = [{ provider = "x", model = "m", uncached = 1 },'
            + ' { provider = "x", model = "m", uncached = 2 }]\n',
            ["two rows for the same prompt size"],
        ),
    ],
)
def test_faults_name_file_key_and_remedy(tmp_path: Path, text: str, parts: list[str]) -> None:
    path = _file(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        PriceBook([path])
    message = str(caught.value)
    assert "prices.toml" in message
    assert caught.value.hint
    for part in parts:
        assert part in message


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        PriceBook([tmp_path / "none.toml"])


def test_bad_json(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must be JSON"):
        PriceBook([_file(tmp_path, "{", "p.json")])


def test_genai_prices_fills_in_what_our_tables_lack() -> None:
    pytest.importorskip("genai_prices")
    assert PriceBook(genai_prices=False).card("voyageai", "voyage-3.5", NOV) is None
    book = PriceBook()  # installing it is all that it takes
    card = book.card("voyageai", "voyage-3.5", NOV)
    assert card is not None
    assert card.source.startswith("genai-prices ")
    assert card.checked
    assert book.card("voyageai", "nothing-like-it", NOV) is None
    own = book.card("anthropic", "claude-opus-5-5", NOV)
    assert own is not None
    assert not own.source.startswith("genai-prices")


def test_genai_prices_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.split(".")[0] == "genai_prices"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    with pytest.raises(MissingExtraError, match="genai-prices"):
        PriceBook(genai_prices=True)
    assert PriceBook().card("voyageai", "voyage-3.5", NOV) is None


def test_genai_prices_reaches_the_bill(tmp_path: Path) -> None:
    pytest.importorskip("genai_prices")
    record = {
        "schema": "cacheaudit.call/1",
        "id": "m1",
        "started_at": "2026-11-20T12:00:00Z",
        "provider": "cursor",
        "model": "composer-2.5",
        "response": {
            "usage": {
                "prompt_tokens": 1000,
                "prompt_tokens_details": {"cached_tokens": 400},
                "completion_tokens": 10,
            }
        },
    }
    file = tmp_path / "a.session.jsonl"
    file.write_text(json.dumps(record))
    found = usage(Inputs(paths=(file,), environment={}, home=tmp_path), "day", silent)
    price = calc_price_of("composer-2.5", "cursor", fresh=600, read=400, output=10)
    assert Decimal(found.totals.cost.computed or 0) == price > 0
    assert found.totals.cost.unpriced_calls == 0


def calc_price_of(model: str, seller: str, *, fresh: int, read: int, output: int) -> Decimal:
    package = pytest.importorskip("genai_prices")
    counts = package.Usage(input_tokens=fresh + read, cache_read_tokens=read, output_tokens=output)
    price: Decimal = package.calc_price(counts, model, provider_id=seller).total_price
    return price


@pytest.mark.parametrize("model", ["gpt-5.3-codex-spark", "gpt-5.6-sol-next", "gpt-99"])
def test_a_neighbour_in_genai_prices_is_no_price(model: str) -> None:
    assert PriceBook().card("openai", model, NOV) is None
