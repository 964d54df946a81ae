"""The installed ``genai-prices`` package as a source of prices that our tables lack."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
from typing import Any, Final

from cacheaudit._lazy import need
from cacheaudit.pricing.genai_convert import rows_of, write_ttl
from cacheaudit.pricing.table import SCHEMA, Table

# Our table → provider id there, where the two differ.
PROVIDER_IDS: Final = {
    "bedrock": "aws",
    "moonshot": "moonshotai",
    "xai": "x-ai",
}


class GenaiSource:
    """Reads the data that ``genai-prices`` carries; never its network update.

    Raises:
        MissingExtraError: The package is not installed.
    """

    def __init__(self) -> None:
        data = need("genai_prices.data", "genai-prices")
        self._version = importlib.metadata.version("genai-prices")
        self._providers: dict[str, Any] = {p.id: p for p in data.providers}

    def table(self, provider: str, model: str, checked: dt.date) -> Table | None:
        """Return a table that holds this one model, or ``None`` where it is not known there.

        Args:
            provider: Name of our table.
            model: Model id as recorded.
            checked: Day to state for the prices; the package itself dates none.
        """
        seller = self._providers.get(PROVIDER_IDS.get(provider, provider))
        found = None if seller is None else seller.find_model(model)
        if found is None:
            return None
        rows = rows_of(provider, found)
        if not rows:
            return None
        title = f"genai-prices {self._version}, {seller.name}" if seller else ""
        raw = {
            "schema": SCHEMA,
            "provider": provider,
            "checked": checked,
            "write_ttl": write_ttl(provider, found.id),
            "sources": {"g": {"title": title}},
            "models": {found.id: {"rows": rows}},
        }
        return Table(raw, f"genai-prices: {provider}")
