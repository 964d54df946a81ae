"""``override`` without the cost of importing it at run time."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from typing_extensions import override as override
else:
    _T = TypeVar("_T")

    def override(method: _T) -> _T:
        """Return the method as it is."""
        return method
