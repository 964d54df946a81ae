"""Tells which calls without usage may have cost something."""

from __future__ import annotations

from typing import Final

from cacheaudit.model.call import Call

_REFUSED: Final = 400


def is_open(call: Call) -> bool:
    """Whether a call may have been billed by an amount that nobody knows.

    A call that the server refused by its status is not billed; one that broke off may be.
    """
    if call.usage is not None:
        return False
    error = call.error
    return error is None or error.status is None or error.status < _REFUSED
