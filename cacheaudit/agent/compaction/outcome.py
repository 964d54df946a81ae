"""What came of a question whether to compact."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from cacheaudit.agent.compaction.decide import Decision


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a question whether to compact.

    Attributes:
        decision: What was decided and on which prices.
        compacted: Whether the history is another one now.
        failure: Why not, where it was to be: ``request_failed``, ``called_a_tool``, ``cut_off``,
            ``refusal``, ``empty``, ``no_shorter``, ``not_valid``, ``not_supported``,
            ``server_failed``, ``not_kept`` or a field that rules it out.
        original: Handle of the history as it was.
        messages_before: Number of messages.
        messages_after: Number of messages.
        freed: Estimated tokens that went.
        attempts: Requests for a summary.
        usage: What they consumed, one entry each, as the provider reported it.
    """

    decision: Decision
    compacted: bool = False
    failure: str | None = None
    original: str | None = None
    messages_before: int = 0
    messages_after: int = 0
    freed: int = 0
    attempts: int = 0
    usage: tuple[Mapping[str, Any], ...] = ()
