"""Checks arguments against a tool's schema and says what is wrong in words for the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cacheaudit._lazy import need
from cacheaudit.agent.tools.tool import Tool
from cacheaudit.errors import ToolError

_MOST: Final = 10
_LONGEST: Final = 300
# Their regular expressions run in this process, and may never come to an end.
_PATTERNS: Final = ("pattern", "patternProperties")


class Validator:
    """Validates by JSON Schema, draft 2020-12 unless the schema names another.

    Args:
        tool: The tool whose arguments to check.

    Raises:
        MissingExtraError: The library is not installed.
        ToolError: The schema is not valid itself, or refers to another document.
    """

    def __init__(self, tool: Tool) -> None:
        library = need("jsonschema", "tools")
        referencing = need("referencing", "tools")
        schema = tool.input_schema
        base = library.validators.validator_for(schema, default=library.Draft202012Validator)
        _refuse_foreign(schema, tool.name)
        try:
            if tool.trusted and not tool.generated:
                base.check_schema(schema)
        except library.SchemaError as error:
            raise ToolError(
                f"The schema of {tool.name!r} is not valid at {_path(error.absolute_path)}:"
                f" {error.message[:_LONGEST]}."
            ) from error
        kind = base
        if not tool.trusted:
            kind = library.validators.extend(base, dict.fromkeys(_PATTERNS, _let_pass))
        self._trusted = tool.trusted
        # An empty registry: nothing is ever fetched to resolve a reference.
        self._check = kind(schema, registry=referencing.Registry())

    def problems(self, arguments: Mapping[str, Any]) -> list[dict[str, str]]:
        """Return what is wrong with arguments, at most ten things; empty: nothing."""
        try:
            errors = sorted(
                self._check.iter_errors(arguments), key=lambda e: _path(e.absolute_path)
            )
        except RecursionError:
            return [{"at": "/", "problem": "nested too deeply to be checked"}]
        except Exception:
            if self._trusted:
                raise
            return []  # a schema of a server that makes no sense here: the server will judge
        return [
            {"at": _path(error.absolute_path), "problem": _shortened(error.message)}
            for error in errors[:_MOST]
        ]


def _let_pass(*_: Any) -> None:
    return None


def _path(path: Any) -> str:
    return "/" + "/".join(str(part).replace("~", "~0").replace("/", "~1") for part in path)


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _refuse_foreign(schema: Any, name: str) -> None:
    """Refuse references to other documents: they would have to be fetched."""
    if isinstance(schema, Mapping):
        reference = schema.get("$ref")
        if isinstance(reference, str) and not reference.startswith("#"):
            raise ToolError(
                f"The schema of {name!r} refers to another document, {reference[:100]!r}.",
                "Put what it refers to under $defs.",
            )
        for value in schema.values():
            _refuse_foreign(value, name)
    elif isinstance(schema, list):
        for value in schema:
            _refuse_foreign(value, name)
