"""Names that only the type checker needs, so that they cost no import at run time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import override
else:

    def override(method: Any) -> Any:
        """Mark a method as an override; does nothing at run time."""
        return method


__all__ = ["override"]
