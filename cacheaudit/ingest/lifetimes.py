"""Which lifetime unlabelled cache writes are billed at: the request's markers or the default."""

from __future__ import annotations

from typing import Final

from cacheaudit.dialects.after import with_write_ttl
from cacheaudit.ingest.endpoints import provider_of_model
from cacheaudit.model.prompt import Prompt
from cacheaudit.model.usage import TTLS, Ttl, Usage

# Documented defaults, autumn 2026; providers that bill no writes are absent.
_DEFAULTS: Final[dict[str, Ttl]] = {"anthropic": "5m", "openai": "30m", "moonshot": "5m"}
_ALIASES: Final[dict[str, Ttl]] = {"300s": "5m", "3600s": "1h", "60m": "1h"}


def with_assumed_ttl(
    usage: Usage | None, prompt: Prompt | None, provider: str | None, model: str | None
) -> Usage | None:
    """Say what unlabelled writes are billed at; the usage then carries ``write_ttl_assumed``.

    A record that names neither provider nor model is taken for Anthropic's shortest lifetime: it is
    the only provider whose logs count writes without saying more.
    """
    if usage is None or not usage.write_other:
        return usage
    owner = provider or provider_of_model(model)
    default = "5m" if owner is None and model is None else _DEFAULTS.get(owner or "")
    return with_write_ttl(usage, _marked(prompt, default) or default)


def _marked(prompt: Prompt | None, default: Ttl | None) -> Ttl | None:
    """Return the lifetime that all markers of a request agree on."""
    if prompt is None:
        return None
    markers = [block.marker for block in prompt.blocks if block.marker is not None]
    if prompt.automatic_marker is not None:
        markers.append(prompt.automatic_marker)
    found = {_ttl(marker.ttl) if marker.ttl else default for marker in markers}
    return found.pop() if len(found) == 1 else None


def _ttl(name: str) -> Ttl | None:
    for ttl in TTLS:
        if ttl == name:
            return ttl
    return _ALIASES.get(name)
