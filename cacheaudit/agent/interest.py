"""Tells from an address whether a request is one to record, and as what."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from cacheaudit.agent.attempt import Kind

_CALL: Final = re.compile(
    r"/(messages|chat/completions|completions|responses|invoke|invoke-with-response-stream|converse"
    r"|converse-stream|api/chat|api/generate|interactions)$"
    r"|:(generateContent|streamGenerateContent|rawPredict|streamRawPredict)$"
)
_BATCH: Final = re.compile(r"/messages/batches$")
_RESULTS: Final = re.compile(r"/messages/batches/[^/]+/results$")


@lru_cache(maxsize=1024)
def interest(method: str, path: str) -> Kind | None:
    """Return what a request is recorded as; ``None``: it is let through unseen.

    Args:
        method: HTTP method, in any case.
        path: Address or path; a query does not matter.
    """
    bare = path.partition("?")[0].rstrip("/")
    if method.upper() == "POST":
        if _CALL.search(bare):
            return "call"
        return "batch" if _BATCH.search(bare) else None
    return "results" if method.upper() == "GET" and _RESULTS.search(bare) else None
