"""Who asks. Callers of two workspaces share no cache."""

from __future__ import annotations

import hashlib
import hmac

from starlette.datastructures import Headers

from local_backend.server.errors import ApiError
from local_backend.server.settings import Settings

WORKSPACE = "x-cacheaudit-workspace"
_BEARER = "bearer "


def workspace_of(headers: Headers, settings: Settings) -> str:
    """The workspace of a caller: a digest of its key, and the name that it gave one.

    Raises:
        ApiError: A key is needed, and this is none of them.
    """
    key = _key(headers)
    if settings.api_keys:
        sent = key.encode()
        # All are compared, so that the time says nothing about which one was close.
        matches = [hmac.compare_digest(sent, known.encode()) for known in settings.api_keys]
        if not any(matches):
            raise ApiError(401, "no valid API key: send it as x-api-key")
    digest = hashlib.blake2b(key.encode(), digest_size=16).hexdigest() if key else ""
    return f"{digest}/{headers.get(WORKSPACE, '')}"


def _key(headers: Headers) -> str:
    found = headers.get("x-api-key", "")
    if found:
        return found
    value = headers.get("authorization", "")
    return value[len(_BEARER) :].strip() if value.lower().startswith(_BEARER) else ""
