"""The four requests of the probe, and those of the fan-out experiment."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

Api = Literal["messages", "chat"]
Case = Literal["prepare", "confirm", "new_question", "changed_beginning"]
CASES: Final[tuple[Case, ...]] = ("prepare", "confirm", "new_question", "changed_beginning")
MOST_OUTPUT: Final = 96
SUMMARISE: Final = "Say in one sentence what this text is about."
LIST: Final = "Name three main points of this text."


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of whom.

    Attributes:
        model: Model id.
        document: Text that is to be kept.
        run: Identity of this run, so that what an earlier one left behind is not read.
        api: ``messages`` or ``chat`` (Chat Completions).
        ttl: Lifetime asked for; ``None``: the provider's default.
        limit_field: Name of the field that bounds the output.
        most_output: Most output tokens of a request.
    """

    model: str
    document: str
    run: str
    api: Api = "messages"
    ttl: str | None = None
    limit_field: str = "max_tokens"
    most_output: int = MOST_OUTPUT

    def prefix(self, version: str = "A") -> str:
        """Return what stands in front of the question; versions differ near its beginning."""
        return (
            f"Run {self.run}\nVersion {version} of the text\n"
            f"Answer from the text below.\n\n{self.document}"
        )

    def body(self, case: Case) -> dict[str, Any]:
        """Return one request; each differs from the one before it in one thing, or in nothing."""
        question = SUMMARISE if case in ("prepare", "confirm") else LIST
        return self.ask(self.prefix("B" if case == "changed_beginning" else "A"), question)

    def ask(self, prefix: str, question: str) -> dict[str, Any]:
        """Return a streamed request of a prefix and a question."""
        shared: dict[str, Any] = {
            "model": self.model,
            self.limit_field: self.most_output,
            "stream": True,
        }
        if self.api == "chat":
            return {
                **shared,
                "stream_options": {"include_usage": True},
                "messages": [
                    {"role": "system", "content": prefix},
                    {"role": "user", "content": question},
                ],
            }
        return {
            **shared,
            "system": [{"type": "text", "text": prefix, "cache_control": self.marker}],
            "messages": [{"role": "user", "content": question}],
        }

    @property
    def marker(self) -> dict[str, str]:
        """The cache marker."""
        return {"type": "ephemeral"} | ({} if self.ttl is None else {"ttl": self.ttl})
