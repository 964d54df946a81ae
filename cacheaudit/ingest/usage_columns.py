"""Which column of a usage log means what, and whether its input includes the cached tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from cacheaudit.dialects.plain import DIALECT
from cacheaudit.ingest._fields import is_absent, read_count
from cacheaudit.ingest.tables import normal_name
from cacheaudit.model.usage import Usage

# Role of a column by its normalised name. "input" alone does not say whether it includes the cache.
_ROLES: dict[str, tuple[str, ...]] = {
    "total": (
        "total_input", "total_input_tokens", "input_total", "prompt_tokens", "prompt",
        "prompt_token_count", "tokens_prompt", "input_tokens_total",
    ),
    "uncached": (
        "uncached_input", "uncached_input_tokens", "uncached", "fresh", "fresh_input",
        "fresh_tokens", "new_input", "input_other", "input_uncached_tokens", "cache_miss",
        "prompt_cache_miss_tokens", "non_cached_input", "uncached_tokens", "miss", "miss_tokens",
        "input_tokens_no_cache",
    ),
    "input": (
        "input", "input_tokens", "tokens_in", "in", "inputs", "input_token_count", "tokens_input",
        "in_tokens",
    ),
    "read": (
        "cache_read", "cache_read_input_tokens", "cache_read_tokens", "cached", "cached_tokens",
        "cached_input_tokens", "input_cached_tokens", "read", "reads", "cache_reads", "cache_hit",
        "cache_hit_tokens", "prompt_cache_hit_tokens", "cached_input", "cached_content_token_count",
        "input_cache_read", "prompt_cached_tokens", "cache_read_input", "tokens_cached",
        "prompt_tokens_details_cached_tokens", "input_tokens_details_cached_tokens", "read_tokens",
    ),
    "write": (
        "cache_write", "cache_creation_input_tokens", "cache_write_tokens", "write", "writes",
        "cache_writes", "cache_creation_tokens", "cache_creation", "cache_write_input_tokens",
        "input_cache_creation", "prompt_cache_creation_tokens", "cache_create", "written",
        "cache_written", "prompt_tokens_details_cache_write_tokens", "write_tokens",
        "input_tokens_details_cache_write_tokens", "cache_creation_input",
    ),
    "write_5m": (
        "cache_write_5m", "write_5m", "ephemeral_5m_input_tokens", "cache_creation_5m",
        "cache_creation_ephemeral_5m_input_tokens", "input_cache_creation_5m", "cache_write5m",
    ),
    "write_1h": (
        "cache_write_1h", "write_1h", "ephemeral_1h_input_tokens", "cache_creation_1h",
        "cache_creation_ephemeral_1h_input_tokens", "input_cache_creation_1h", "cache_write1h",
    ),
    "write_30m": ("cache_write_30m", "write_30m"),
    "write_12h": ("cache_write_12h", "write_12h"),
    "write_other": ("cache_write_other", "write_other"),
    "output": (
        "output", "output_tokens", "completion_tokens", "completion", "tokens_out", "out",
        "candidates_token_count", "tokens_completion", "output_token_count", "tokens_output",
        "out_tokens", "generated_tokens",
    ),
    "reasoning": (
        "reasoning", "reasoning_tokens", "reasoning_output_tokens", "thinking_tokens",
        "output_tokens_details_reasoning_tokens", "completion_tokens_details_reasoning_tokens",
    ),
}  # fmt: skip
_CANONICAL = {
    "total": "total_input",
    "uncached": "uncached_input",
    "read": "cache_read",
    "write": "cache_write",
    "write_5m": "cache_write_5m",
    "write_1h": "cache_write_1h",
    "write_30m": "cache_write_30m",
    "write_12h": "cache_write_12h",
    "write_other": "cache_write_other",
    "output": "output",
    "reasoning": "reasoning",
}
# What a row says beside its counts of how they are billed.
_DETAILS: dict[str, tuple[str, ...]] = {
    "cache_write_ttl": ("cache_write_ttl", "write_ttl", "ttl"),
    "service_tier": ("service_tier",),
    "speed": ("speed",),
    "inference_geo": ("inference_geo",),
    "web_searches": ("web_searches", "web_search_requests"),
}
_DETAIL_OF = {name: detail for detail, names in _DETAILS.items() for name in names}
DETAIL_COLUMNS = frozenset(_DETAIL_OF)
_CACHED = ("cache_read", "cache_write", "cache_write_5m", "cache_write_1h")
_ROLE_OF = {name: role for role, names in _ROLES.items() for name in names}
TOKEN_COLUMNS = frozenset(_ROLE_OF)

# Spelling by which a provider's own field is known: its convention then goes for ``input_tokens``.
_EXCLUSIVE_SIGNS = frozenset(
    {"cache_creation_input_tokens", "cache_read_input_tokens", "ephemeral_5m_input_tokens",
     "cache_creation_ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens",
     "cache_creation_ephemeral_1h_input_tokens"}
)  # fmt: skip
_INCLUSIVE_SIGNS = frozenset(
    {"cached_tokens", "cached_input_tokens", "input_cached_tokens", "prompt_cache_hit_tokens",
     "cached_content_token_count", "input_tokens_details_cached_tokens", "prompt_cached_tokens",
     "prompt_tokens_details_cached_tokens"}
)  # fmt: skip


class Columns(msgspec.Struct, frozen=True):
    """Where each count stands.

    Attributes:
        names: Column by role.
        details: Column by what it says of billing: ``cache_write_ttl``, ``service_tier`` …
        input_is: ``total`` or ``uncached``: what the bare input column holds; ``""`` where its
            name does not say so and the figures must decide.
    """

    names: dict[str, str]
    input_is: str = ""
    details: dict[str, str] = {}

    @property
    def is_open(self) -> bool:
        """Whether the figures must decide what the input column holds."""
        return "input" in self.names and not self.input_is


def role_of(name: str) -> str | None:
    """Return the role of a column by its normal name."""
    return _ROLE_OF.get(name)


def columns_of(header: Iterable[str]) -> Columns:
    """Tell the role of each column by its name; the first of several names of a role counts."""
    names: dict[str, str] = {}
    details: dict[str, str] = {}
    normal: set[str] = set()
    for column in header:
        name = normal_name(column)
        normal.add(name)
        role = _ROLE_OF.get(name)
        if role is not None:
            names.setdefault(role, column)
        elif name in _DETAIL_OF:
            details.setdefault(_DETAIL_OF[name], column)
    return Columns(names, _input_is(names, normal), details)


def _input_is(names: Mapping[str, str], normal: set[str]) -> str:
    """Tell by the names what a bare input column holds; ``""`` where they do not say."""
    if normal & _EXCLUSIVE_SIGNS:
        return "uncached"
    if normal & _INCLUSIVE_SIGNS or "uncached" in names:
        return "total"
    if "total" in names:
        return "uncached"
    is_cached = {"read", "write", "write_5m", "write_1h"} & names.keys()
    return "" if is_cached else "total"


def convention(columns: Columns, rows: Iterable[Mapping[str, object]]) -> tuple[str, bool]:
    """Decide by the figures what a bare input column holds.

    Input smaller than its cached part cannot include it; input that equals it in most rows does.

    Returns:
        ``total`` or ``uncached``, and whether the figures prove it.
    """
    cached_rows = equal = 0
    for row in rows:
        counts = _recorded(columns, row)
        total = counts.pop("total_input", None)
        known = [counts.get(name) for name in _CACHED]
        cached = sum(n for n in known if isinstance(n, int))
        if not isinstance(total, int) or not cached:
            continue
        if cached > total:
            return "uncached", True
        cached_rows += 1
        equal += cached == total
    return "total", equal * 2 > cached_rows


def usage_of(columns: Columns, row: Mapping[str, object]) -> Usage | None:
    """Read the token counts of one row; ``None`` where it has none.

    A cell that is no count is handed on as it is, so that the dialect flags it and leaves unknown
    what rests on it.
    """
    counts = _recorded(columns, row)
    if not counts:
        return None
    for detail, column in columns.details.items():
        value = row.get(column)
        if not is_absent(value):
            counts[detail] = detail_of(detail, value)
    return DIALECT.normalise(counts)


def detail_of(detail: str, value: object) -> object:
    """Read what a row says of billing; ``None`` where a column of that name says something else."""
    if detail == "web_searches":
        try:
            return read_count(value)
        except ValueError:
            return value
    if detail == "cache_write_ttl" and type(value) is int:
        return f"{value}s"
    if not isinstance(value, str):
        return None
    word = value.strip()
    if detail == "cache_write_ttl":
        return f"{word}s" if word.isdecimal() else word.lower()
    # A speed of 83.2 is a rate of tokens.
    return word if detail != "speed" or word.isalpha() else None


def _recorded(columns: Columns, row: Mapping[str, object]) -> dict[str, object]:
    """Collect the counts under the names of the plain dialect."""
    found: dict[str, object] = {}
    for role, column in columns.names.items():
        value = row.get(column)
        if is_absent(value):
            continue
        target = _CANONICAL[(columns.input_is or "total") if role == "input" else role]
        try:
            found.setdefault(target, read_count(value))
        except ValueError:
            found.setdefault(target, value)
    return found
