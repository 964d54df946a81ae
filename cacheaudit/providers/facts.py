"""Dated facts on providers' caches: what holds for a model, on a surface, at a moment.

One TOML file a provider in ``data``: ``schema``, ``provider``, ``checked``, ``[sources]``, and one
``[[fact]]`` a row with ``name``, ``value``, ``from`` (day), ``source``, ``confidence`` and, where
the row is not for all, ``models`` (patterns) and ``surfaces``. Rows with equal models and surfaces
replace one another by date; the oldest of them also holds for earlier moments. Of the rows that
apply, the one that names the model most exactly counts, then the one that names the surface.
"""

from __future__ import annotations

import datetime as dt
import re
import tomllib
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from cacheaudit.errors import ConfigError
from cacheaudit.pricing.names import candidates, infer_table, table_name

RULES_VERSION: Final = "2026-11-30"
"""Date of the newest fact; a test compares it with the files."""

Confidence = Literal["high", "medium", "low"]
_SCHEMA: Final = 1
_DATA: Final = Path(__file__).with_name("data")
_EPOCH: Final = dt.date(1970, 1, 1)
_DAY: Final = 86_400
# Platforms that carry other firms' models: the model says whose rules hold.
_CARRIERS: Final = frozenset(
    {"bedrock", "google", "azure", "openrouter", "github-copilot", "opencode", "vercel", "litellm"}
)
_LOCAL: Final = frozenset({"local", "vllm", "sglang", "llama.cpp", "llamacpp", "ollama"})
_SURFACES: Final = {
    "vertex": "google_cloud",
    "vertex_ai": "google_cloud",
    "vertexai": "google_cloud",
    "google": "google_cloud",
    "aws_bedrock": "bedrock",
    "amazon_bedrock": "bedrock",
    "microsoft_foundry": "foundry",
    "claude_platform_on_aws": "claude_aws",
}
# What a provider's name says of the surface, where the record names none.
_HOME_SURFACES: Final = {
    "anthropic": "claude_api",
    "bedrock": "bedrock",
    "azure": "azure",
    "openrouter": "openrouter",
}
_GLOBAL: Final = re.compile(r"^global\.")
_WILD: Final = re.compile(r"[*?[]")
_DOTTED: Final = re.compile(r"(?<=\d)\.(?=\d)")


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """One row.

    Attributes:
        name: What it is about: ``minimum_tokens``, ``lookback_positions`` …
        value: Number, text, truth value, list or table.
        valid_from: Day from which the source shows it.
        source: Title of the source.
        confidence: ``high``: the provider's own text; ``medium``: an excerpt of it, or two
            secondary sources that agree; ``low``: one secondary source, or inferred.
        models: Patterns of model ids; empty for all.
        surfaces: Surfaces; empty for all.
        note: What else to know.
    """

    name: str
    value: Any
    valid_from: dt.date
    source: str
    confidence: Confidence
    models: tuple[str, ...] = ()
    surfaces: tuple[str, ...] = ()
    note: str | None = None


class Rules:
    """The facts that hold for one model, on one surface, at one moment.

    Attributes:
        provider: Whose facts they are.
        model: Model id without prefixes, versions and dates.
        surface: Surface, as named in the facts; ``None`` where it is not known.
        facts: By name.
        machine: Name of the cache machine that plays these rules; ``None`` where none is known.
        lifetimes: Seconds by the lifetimes' names.
    """

    __slots__ = ("facts", "lifetimes", "machine", "model", "provider", "surface")

    def __init__(
        self, provider: str, model: str, surface: str | None, facts: dict[str, Fact]
    ) -> None:
        self.provider = provider
        self.model = model
        self.surface = surface
        self.facts = facts
        self.machine = self.text("machine")
        self.lifetimes: Mapping[str, float] = {
            name: float(seconds) for name, seconds in self.value("ttl_seconds", {}).items()
        }

    def value(self, name: str, default: Any = None) -> Any:
        """Return a fact's value."""
        fact = self.facts.get(name)
        return default if fact is None else fact.value

    def integer(self, name: str, default: int = 0) -> int:
        """Return a number."""
        value = self.value(name, default)
        return value if isinstance(value, int) else default

    def text(self, name: str, default: str | None = None) -> str | None:
        """Return a text."""
        value = self.value(name, default)
        return value if isinstance(value, str) else default

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a truth value."""
        value = self.value(name, default)
        return value if isinstance(value, bool) else default

    def ttl_seconds(self) -> dict[str, float]:
        """Return lifetimes by their names."""
        return dict(self.lifetimes)

    def weak(self) -> tuple[str, ...]:
        """Names of the facts that rest on one secondary source or on inference."""
        return tuple(sorted(n for n, fact in self.facts.items() if fact.confidence == "low"))


def rules(
    provider: str | None, model: str | None, at: float | None = None, surface: str | None = None
) -> Rules | None:
    """Collect the facts for a call.

    Args:
        provider: As recorded; a carrier of other firms' models is looked through.
        model: As recorded.
        at: Moment in seconds since the epoch; ``None``: the newest facts.
        surface: As recorded.

    Returns:
        ``None`` where nothing is known of that provider and model.
    """
    return _found(provider, model, None if at is None else int(at // _DAY), surface)


@lru_cache(maxsize=4_096)
def _found(
    provider: str | None, model: str | None, day: int | None, surface: str | None
) -> Rules | None:
    owner = owner_of(provider, model)
    if owner is None:
        return None
    return _rules(owner, model or "", day, _surface(provider, surface, owner))


def owner_of(provider: str | None, model: str | None) -> str | None:
    """Say whose facts apply: the host's own, or the maker's where the host carries models."""
    name = table_name(provider) if provider else None
    if name in _LOCAL:
        return "local"
    if name is None or name in _CARRIERS or name not in names():
        found = _maker(model)
        if found in names():
            return found
    return name if name in names() else None


@cache
def names() -> tuple[str, ...]:
    """Providers that facts are known of: each has a file, which is read when first needed."""
    return tuple(sorted(path.stem for path in _DATA.glob("*.toml")))


def newest() -> dt.date:
    """Day of the newest fact or check over all files."""
    contents = map(_content, names())
    return max(day for checked, facts in contents for day in (checked, *_days(facts)))


def all_facts(provider: str) -> tuple[Fact, ...]:
    """Every row of one provider, as written."""
    return _content(provider)[1]


def model_id(model: str) -> str:
    """Strip a model id of prefixes, versions and dates: what two spellings have in common."""
    return list(_forms(model))[-1]


def _maker(model: str | None) -> str | None:
    if not model:
        return None
    for form in _forms(model):
        if form.startswith("nova-"):
            return "amazon"
        if found := infer_table(form):
            return "anthropic" if found == "bedrock" else found
    return None


def _surface(provider: str | None, surface: str | None, owner: str) -> str | None:
    if surface is not None:
        name = surface.strip().lower().replace("-", "_")
        return _SURFACES.get(name, name)
    name = (provider or "").strip().lower()
    if owner == "local":
        return name or None
    table = table_name(name) if name else owner
    if table == "google" and owner != "google":
        return "google_cloud"
    return _HOME_SURFACES.get(table)


def _forms(model: str) -> Iterator[str]:
    """Yield forms of a model id, each more stripped; Claude's versions with hyphens throughout."""
    for form in candidates(model):
        bare = _GLOBAL.sub("", form)
        yield _DOTTED.sub("-", bare) if "claude" in bare else bare


@lru_cache(maxsize=4_096)
def _rules(owner: str, model: str, day: int | None, surface: str | None) -> Rules:
    forms = tuple(dict.fromkeys(_forms(model))) if model else ()
    best: dict[str, tuple[tuple[int, int, int], Fact]] = {}
    for fact in _in_force(_content(owner)[1], day):
        rank = _rank(fact, forms, surface)
        if rank is not None and (fact.name not in best or rank > best[fact.name][0]):
            best[fact.name] = (rank, fact)
    found = {name: fact for name, (_, fact) in best.items()}
    return Rules(owner, forms[-1] if forms else "", surface, found)


def _in_force(facts: tuple[Fact, ...], day: int | None) -> list[Fact]:
    """Of each series pick the newest row that is not in the future, else the oldest."""
    limit = dt.date.max if day is None else _EPOCH + dt.timedelta(days=day)
    series: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[Fact]] = {}
    for fact in facts:
        series.setdefault((fact.name, fact.models, fact.surfaces), []).append(fact)
    chosen: list[Fact] = []
    for rows in series.values():
        rows.sort(key=lambda row: row.valid_from)
        started = [row for row in rows if row.valid_from <= limit]
        chosen.append(started[-1] if started else rows[0])
    return chosen


def _rank(fact: Fact, forms: tuple[str, ...], surface: str | None) -> tuple[int, int, int] | None:
    """Say how exactly a row names model and surface; ``None``: it is about others."""
    if fact.surfaces and surface not in fact.surfaces:
        return None
    named = 1 if fact.surfaces else 0
    if not fact.models:
        return 0, 0, named
    exact = [p for p in fact.models if p in forms]
    if exact:
        return 2, 0, named
    wide = [p for p in fact.models if any(_fits(form, p) for form in forms)]
    return (1, max(map(len, wide)), named) if wide else None


def _fits(form: str, pattern: str) -> bool:
    """Whether a model id matches a pattern; most differ at once, so that few are compiled."""
    return form.startswith(_WILD.split(pattern, 1)[0]) and fnmatchcase(form, pattern)


def _days(facts: tuple[Fact, ...]) -> Iterator[dt.date]:
    return (fact.valid_from for fact in facts)


@cache
def _content(provider: str) -> tuple[dt.date, tuple[Fact, ...]]:
    """Read a provider's file: the day on which it was checked, and its rows."""
    path = _DATA / f"{provider}.toml"
    try:
        raw = tomllib.loads(path.read_text("utf-8"))
        if raw["schema"] != _SCHEMA or raw["provider"] != provider:
            raise ConfigError(
                f"{path.name}: schema {raw['schema']!r} of {raw['provider']!r} is not {_SCHEMA} of "
                f"{provider!r}."
            )
        sources = {key: str(entry["title"]) for key, entry in raw["sources"].items()}
        return raw["checked"], tuple(_fact(entry, sources) for entry in raw["fact"])
    except (tomllib.TOMLDecodeError, KeyError, msgspec.ValidationError) as problem:
        raise ConfigError(
            f"{path.name} is no file of provider facts: {type(problem).__name__}: {problem}.",
            "Compare it with the other files of its folder.",
        ) from problem


def _fact(entry: dict[str, Any], sources: dict[str, str]) -> Fact:
    fields = {key: entry[key] for key in ("name", "value", "confidence")}
    fields["valid_from"] = entry["from"]
    fields["source"] = sources[entry["source"]]
    for key in ("models", "surfaces"):
        fields[key] = tuple(entry.get(key, ()))
    return msgspec.convert({**fields, "note": entry.get("note")}, Fact)
