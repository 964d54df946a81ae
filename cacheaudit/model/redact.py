"""Takes out of foreign fields whatever may be text of a user's or a secret."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from cacheaudit.model.call import Call, CallError, MissReason
from cacheaudit.model.prompt import digest

# Identifiers, numbers, paths: printable ASCII without blanks. No sentence, in whatever script (many
# are written without blanks), and nothing that looks like a key.
_IDENTIFIER = re.compile(
    r"(?!sk-|pk-|rk-|xai-|gsk_|hf_|r8_|pplx-|glpat-|github_pat_|gh[opsu]_|xox|A[KS]IA|AIza|ya29|eyJ)"
    r"[!-~]{0,128}\Z"
)
_SECRET_FIELD = re.compile(r"auth|secret|passw|cookie|token$|api.?key", re.IGNORECASE)


def word(text: str) -> str:
    """Return a kind or a reason as it is; ``other`` where it is no name but may be a text."""
    return text if _IDENTIFIER.match(text) else "other"


def without_quotes(call: Call) -> Call:
    """Leave out of a call what may quote a prompt, apart from the prompt itself and extra fields.

    These are an error's message, and kinds and reasons that are no names.
    """
    changes: dict[str, Any] = {}
    error, miss, stop = call.error, call.diagnostics, call.stop_reason
    if error is not None:
        kind = None if error.type is None else word(error.type)
        changes["error"] = CallError(kind, error.status)
    if miss is not None:
        changes["diagnostics"] = MissReason(word(miss.type), miss.missed_tokens)
    if stop is not None:
        changes["stop_reason"] = word(stop)
    return msgspec.structs.replace(call, **changes) if changes else call


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
