"""Takes out of foreign fields whatever may be text of a user's or a secret."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cacheaudit.model.prompt import digest

# Identifiers, numbers, paths; no sentence, and nothing that looks like a key.
_IDENTIFIER = re.compile(r"(?!sk-|ghp_|gho_|xox|AKIA|AIza|eyJ)\S{0,128}\Z")
_SECRET_FIELD = re.compile(r"auth|secret|passw|cookie|token$|api.?key", re.IGNORECASE)


def without_text(value: Any) -> Any:
    """Replace every text that is no identifier by its digest; numbers and structure stay."""
    if isinstance(value, str):
        return value if _IDENTIFIER.match(value) else _digested(value)
    if isinstance(value, Mapping):
        return {
            (key if _IDENTIFIER.match(key) else str(_digested(key)["blake2b"])): (
                _digested(item)
                if isinstance(item, str) and _SECRET_FIELD.search(key)
                else without_text(item)
            )
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [without_text(item) for item in value]
    return value


def _digested(text: str) -> dict[str, Any]:
    data = text.encode(errors="surrogatepass")
    return {"blake2b": digest(data).hex(), "bytes": len(data)}
