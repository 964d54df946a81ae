"""Lets small outputs pass, cuts large ones, and keeps the full text of those in the store."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from cacheaudit.agent.outputs.excerpt import Excerpt, excerpt
from cacheaudit.agent.outputs.size import Counter, estimated, well_formed
from cacheaudit.agent.outputs.store import OutputStore, Stored
from cacheaudit.errors import ConfigError, OutputError

Action = Literal["pass", "truncate", "spill"]
_LEAST: Final = 200


class OutputBudget(msgspec.Struct, frozen=True, kw_only=True):
    """How much of an output enters the context.

    Attributes:
        max_tokens: Most that is shown of one output, its note included.
        spill_from: Tokens from which the full text is stored; ``None``: whatever is cut.
        evidence: Whether rows that tell of failures are kept besides the beginning and the end.

    Raises:
        ConfigError: A value makes no sense.
    """

    max_tokens: int = 4_000
    spill_from: int | None = None
    evidence: bool = True

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if self.max_tokens < _LEAST:
            raise ConfigError(
                f"An output budget of {self.max_tokens} tokens leaves no room for its note.",
                f"Give {_LEAST} or more.",
            )


class Filtered(msgspec.Struct, frozen=True):
    """What the model gets of an output.

    Attributes:
        text: The whole, or a note and an excerpt.
        action: ``pass``, ``truncate`` (cut, not stored) or ``spill`` (cut, stored).
        tokens_before: Size of the output.
        tokens_after: Size of ``text``.
        handle: Where the full text is; ``None``: it was not stored.
    """

    text: str
    action: Action
    tokens_before: int
    tokens_after: int
    handle: str | None = None


class OutputFilter:
    """Applies one budget to the outputs of tools.

    Args:
        budget: How much is shown.
        store: Where full texts go; ``None``: they are cut only.
        count: Counts tokens; by default they are estimated from bytes.
    """

    def __init__(
        self,
        budget: OutputBudget | None = None,
        store: OutputStore | None = None,
        count: Counter = estimated,
    ) -> None:
        self.budget = budget or OutputBudget()
        self.store = store
        self.count = count

    def apply(self, text: str, *, exit_status: int | None = None) -> Filtered:
        """Cut an output where it is too large. Never fails because of the store: it says so.

        Args:
            text: The output.
            exit_status: Of the program that wrote it, told in the first line.
        """
        text = well_formed(text)
        status = "" if exit_status is None else f"exit status: {exit_status}\n"
        before = self.count(text)
        whole = status + text
        if before <= self.budget.max_tokens and self.count(whole) <= self.budget.max_tokens:
            return Filtered(whole, "pass", before, self.count(whole))
        stored, trouble = self._spill(text, before)
        shown = self._fit(text, before, status, stored, trouble)
        action: Action = "spill" if stored else "truncate"
        handle = stored.handle if stored else None
        return Filtered(shown, action, before, self.count(shown), handle)

    def _spill(self, text: str, tokens: int) -> tuple[Stored | None, str]:
        if self.store is None or tokens < (self.budget.spill_from or 0):
            return None, "not kept"
        try:
            return self.store.put(text), ""
        except OutputError as error:
            return None, f"could not be kept: {error.message}"

    def _fit(self, text: str, tokens: int, status: str, stored: Stored | None, trouble: str) -> str:
        most = self.budget.max_tokens
        size = stored.size if stored else len(text.encode("utf-8", "surrogatepass"))
        room = most - self.count(status + _note(tokens, size, None, stored, trouble)) - 32
        while True:
            cut = excerpt(text, max(0, room), self.count, evidence=self.budget.evidence)
            shown = f"{status}{_note(tokens, size, cut, stored, trouble)}\n{cut.text}"
            if self.count(shown) <= most or room <= 0:
                return shown
            room = min(room - 8, room * 9 // 10)


def _note(tokens: int, size: int, cut: Excerpt | None, stored: Stored | None, trouble: str) -> str:
    rows = f"{cut.shown} of {cut.rows} rows" if cut else ""
    failures = f"; {cut.failures} rows tell of failures" if cut and cut.failures else ""
    where = (
        f"full text: {stored.handle} (read_output(handle, offset, limit) by row,"
        " search_output(handle, pattern))"
        if stored
        else f"full text: {trouble}"
    )
    return f"[output of {size} bytes, about {tokens} tokens, cut to {rows}{failures}; {where}]"
