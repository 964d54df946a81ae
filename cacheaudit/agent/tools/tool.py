"""One tool, and what comes of a call."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from cacheaudit.agent.outputs.size import well_formed
from cacheaudit.errors import ToolError

NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")
SEARCH: Final = "search_tools"
CALL: Final = "call_tool"
SCRIPT: Final = "run_code"
READ_OUTPUT: Final = "read_output"
SEARCH_OUTPUT: Final = "search_output"
PLACEHOLDER: Final = "deferred_tools_placeholder"
RESERVED: Final = frozenset({SEARCH, CALL, SCRIPT, READ_OUTPUT, SEARCH_OUTPUT, PLACEHOLDER})


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as it is declared, and how it is run.

    Attributes:
        name: What the model calls it.
        description: What it is for.
        input_schema: JSON schema of its arguments; an object at the root.
        run: Called with the arguments, already valid; may return an awaitable.
        source: Who offers it; empty: this program.
        pinned: Whether it is declared by itself in every exposure.
        timeout: Seconds after which a call is given up; ``None``: the directory's.
        tags: Words by which it is found too, and by which a permission check may go.
        trusted: Whether its schema was written here. Regular expressions of other people's
            schemas are left to whoever wrote them: one can keep a process busy for ever.
        generated: Whether its schema was made from types, and so is known to be valid.
    """

    name: str
    description: str
    input_schema: Mapping[str, Any]
    run: Callable[[dict[str, Any]], Any]
    source: str = ""
    pinned: bool = False
    timeout: float | None = None
    tags: tuple[str, ...] = ()
    trusted: bool = True
    generated: bool = False

    def __post_init__(self) -> None:
        """Refuse what no provider would take."""
        if not NAME.fullmatch(self.name):
            raise ToolError(
                f"{self.name[:140]!r} is no name for a tool.",
                "Use 1 to 128 letters, digits, _ and -.",
            )
        if self.input_schema.get("type") != "object":
            raise ToolError(
                f"The schema of {self.name!r} is not one of an object.",
                'Give it "type": "object" and name the arguments under "properties".',
            )
        if self.timeout is not None and self.timeout <= 0:
            raise ToolError(f"The timeout of {self.name!r} must be above 0 s.")

    def definition(self) -> dict[str, Any]:
        """Return what stands in a request's ``tools``."""
        return {
            "name": self.name,
            "description": self.description,
            "input_schema": dict(self.input_schema),
        }

    def digest(self) -> str:
        """Return what changes when the model should read the tool anew; key order does not."""
        return digest_of(self.definition())


class ToolOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool may return where text alone does not say it all.

    Attributes:
        text: The output.
        exit_status: Of the program that wrote it.
        is_error: Whether the model should take it for a failure.
        blocks: Content blocks beside the text, such as pictures.
        value: What a script gets in place of the text; ``None``: the text.
    """

    text: str = ""
    exit_status: int | None = None
    is_error: bool = False
    blocks: tuple[dict[str, Any], ...] = ()
    value: Any = None


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What goes back to the model for one call.

    Attributes:
        tool: Name of the tool that was meant.
        content: Text, or content blocks.
        error: Why there is no result: ``unknown_tool``, ``schema_not_shown``, ``schema_changed``,
            ``invalid_arguments``, ``not_permitted``, ``timed_out``, ``unavailable``, ``failed``;
            ``None``: there is one.
        is_error: Whether it is marked as an error.
        seconds: How long the tool ran; 0 where it did not.
        tokens_before: Estimated tokens of the output before it was cut.
        tokens_after: The same afterwards.
        handle: Where the full output is stored.
    """

    tool: str
    content: str | list[dict[str, Any]]
    error: str | None = None
    is_error: bool = False
    seconds: float = 0.0
    tokens_before: int = 0
    tokens_after: int = 0
    handle: str | None = None


def digest_of(definition: Mapping[str, Any]) -> str:
    """Return a digest of a definition that does not depend on the order of keys."""
    data = encoded(definition, in_order=True).encode()
    return hashlib.blake2b(data, digest_size=12).hexdigest()


def encoded(value: Any, *, in_order: bool = False) -> str:
    """Write a value as JSON without spaces, whatever numbers and characters are in it."""
    text = json.dumps(
        value, ensure_ascii=False, separators=(",", ":"), sort_keys=in_order, default=str
    )
    return well_formed(text)


def failure(tool: str, error: str, do: str, **details: Any) -> Outcome:
    """Make the outcome of a call that did not run, in a form that the model can act on.

    Args:
        tool: The tool that was meant.
        error: What kind of failure.
        do: What the model can do about it.
        details: More fields of the answer.
    """
    body = {"error": error, "tool": tool, **details, "do": do}
    return Outcome(tool=tool, content=encoded(body), error=error, is_error=True)
