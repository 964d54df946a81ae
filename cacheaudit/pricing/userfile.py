"""Price files that users write; imported only when one is given, since pydantic is slow to load."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from cacheaudit.errors import ConfigError, PricingError
from cacheaudit.pricing.check import check_table
from cacheaudit.pricing.names import table_name
from cacheaudit.pricing.table import SCHEMA, UNITS, Table, parse_hours, parse_toml, price

_LARGEST: Final = 16 << 20
_EXAMPLE: Final = (
    "A row looks like: provider = 'anthropic', model = 'my-model', uncached = 3, read = 0.3, "
    "output = 15."
)


def _exact(value: object) -> Decimal:
    try:
        return price(value, "price")
    except PricingError as error:
        raise ValueError("write an exact number of 0 or more, such as 0.25 or '0.25'") from error


Price = Annotated[Decimal, BeforeValidator(_exact)]
Text = Annotated[str, Field(min_length=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class PriceEntry(_Strict):
    """One row: prices for a million tokens, ``web_search`` for a thousand searches."""

    provider: Text
    model: Text
    also: list[Text] = []
    currency: Annotated[str, Field(pattern="^[A-Z]{3}$")] = "USD"
    when: Text = "standard"
    valid_from: dt.date | None = Field(None, alias="from")
    valid_to: dt.date | None = Field(None, alias="to")
    above: int = Field(0, ge=0)
    hours: str | None = None
    days: str | None = None
    write_ttl: str | None = Field(None, pattern="^(5m|1h|30m|12h)$")
    uncached: Price
    read: Price | None = None
    write_5m: Price | None = None
    write_1h: Price | None = None
    write_30m: Price | None = None
    write_12h: Price | None = None
    output: Price | None = None
    web_search: Price | None = None
    source: Text | None = None
    checked: dt.date | None = None
    note: str | None = None


class PriceFile(_Strict):
    """A whole file; ``source`` and ``checked`` hold for rows that do not say."""

    schema_: int = Field(SCHEMA, alias="schema", ge=SCHEMA, le=SCHEMA)
    source: Text | None = None
    checked: dt.date
    prices: list[PriceEntry] = Field(min_length=1)


def load_user_file(path: Path) -> list[Table]:
    """Read a price file, TOML or JSON by its ending.

    Raises:
        ConfigError: It cannot be read, or says something that cannot be; the message names the
            file and the key and says what to write.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(_LARGEST + 1)
        text = data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path}: the price file cannot be read ({error.__class__.__name__}).",
            "Check the path; the file must be TOML or JSON in UTF-8.",
        ) from error
    if len(data) > _LARGEST:
        raise ConfigError(
            f"{path}: larger than {_LARGEST >> 20} MiB, so no price file.", "Check the path."
        )
    try:
        parsed = PriceFile.model_validate(_parse(text, path))
    except ValidationError as error:
        raise ConfigError(*_explain(path, error)) from error
    return _tables(parsed, path)


def _parse(text: str, path: Path) -> Any:
    if path.suffix.lower() != ".json":
        try:
            return parse_toml(text, str(path))
        except PricingError as error:
            raise ConfigError(error.message, error.hint) from error
    try:
        return json.loads(text, parse_float=Decimal)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}.", "Correct the file; it must be JSON.") from error


def _explain(path: Path, error: ValidationError) -> tuple[str, str]:
    first = error.errors(include_url=False, include_input=False)[0]
    key = ""
    for part in first["loc"]:
        key += f"[{part + 1}]" if isinstance(part, int) else f".{part}" if key else str(part)
    more = error.error_count() - 1
    rest = f" ({more} more)" if more else ""
    what = first["msg"].removeprefix("Value error, ")
    message = f"{path}: {key or 'the file'}: {what[:1].lower()}{what[1:]}{rest}."
    return message, _EXAMPLE + " The file itself needs 'checked', the day you read the prices."


def _tables(parsed: PriceFile, path: Path) -> list[Table]:
    raw: dict[tuple[str, str], dict[str, Any]] = {}
    for number, entry in enumerate(parsed.prices, 1):
        _check_hours(entry, f"{path}: prices[{number}]")
        provider = table_name(entry.provider)
        table = raw.setdefault(
            (provider, entry.currency),
            {
                "schema": SCHEMA,
                "provider": provider,
                "currency": entry.currency,
                "checked": parsed.checked,
                "sources": {},
                "models": {},
            },
        )
        _add(table, entry, parsed.source or f"price file {path.name}")
    tables = [Table(table, str(path)) for table in raw.values()]
    for built in tables:
        for problem in check_table(built):
            raise ConfigError(problem, "Rows of one model must follow each other without a gap.")
    return tables


def _add(table: dict[str, Any], entry: PriceEntry, default_source: str) -> None:
    source = entry.source or default_source
    table["sources"][source] = {"title": source}
    model = table["models"].setdefault(entry.model, {"also": [], "rows": []})
    model["also"] += entry.also
    if entry.write_ttl:
        model["write_ttl"] = entry.write_ttl
    row = entry.model_dump(by_alias=True, exclude_none=True)
    kept = {*UNITS, "when", "from", "to", "above", "hours", "days", "checked", "note"}
    model["rows"].append({key: row[key] for key in kept & row.keys()} | {"source": source})


def _check_hours(entry: PriceEntry, where: str) -> None:
    if entry.hours is None:
        if entry.days is not None:
            raise ConfigError(f"{where}.days: given without hours.", "Write hours as well.")
        return
    try:
        parse_hours(entry.hours, entry.days, where)
    except PricingError as error:
        raise ConfigError(error.message, error.hint) from error
