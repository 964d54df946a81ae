"""Settings that take part in the cache key, said so that an engine accepts them.

A change of a setting stays a change of the same one; names and schemas are replaced, since they
are content.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from cacheaudit.model.prompt import Parameter, digest

_EFFORTS: Final = frozenset({"low", "medium", "high", "xhigh", "max"})
_CHOICES: Final = frozenset({"auto", "any", "tool", "none"})
# Part of the prompt's identity by itself.
_ELSEWHERE: Final = frozenset({"model"})


class Sent(msgspec.Struct, frozen=True):
    """Settings of one request.

    Attributes:
        fields: Of the body.
        unsent: Names of those that cannot be sent.
    """

    fields: dict[str, Any] = {}
    unsent: tuple[str, ...] = ()


def settings_of(
    parameters: Sequence[Parameter], tools: Mapping[str | None, str], *, is_ours: bool = True
) -> Sent:
    """Write the settings of a request.

    Args:
        parameters: As recorded.
        tools: Names that are sent, by recorded names.
        is_ours: Whether the server is this project's own.
    """
    fields: dict[str, Any] = {}
    unsent: list[str] = []
    for parameter in parameters:
        if parameter.name in _ELSEWHERE:
            continue
        made = _field(parameter, tools, is_ours=is_ours)
        if made is None:
            unsent.append(parameter.name)
            continue
        for name, value in made.items():
            both = isinstance(value, dict) and isinstance(fields.get(name), dict)
            fields[name] = {**fields[name], **value} if both else value
    if "disable_parallel_tool_use" in fields.get("tool_choice", {}):
        fields["tool_choice"].setdefault("type", "auto")
    return Sent(fields, tuple(unsent))


def _field(
    parameter: Parameter, tools: Mapping[str | None, str], *, is_ours: bool
) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(parameter.value)
    except msgspec.DecodeError:
        return None
    if parameter.name == "tool_choice":
        return _tool_choice(value, tools)
    if parameter.name == "tool_choice.disable_parallel_tool_use":
        return {"tool_choice": {"disable_parallel_tool_use": True}}
    if parameter.name == "thinking":
        return _thinking(value, is_ours=is_ours)
    if parameter.name == "output_config.effort":
        return {"output_config": {"effort": value}} if value in _EFFORTS else None
    if parameter.name == "output_config.format":
        return {"output_config": {"format": _format(parameter.value)}}
    if parameter.name == "speed":
        return {"speed": value} if value in ("standard", "fast") else None
    return None


def _tool_choice(value: Any, tools: Mapping[str | None, str]) -> dict[str, Any] | None:
    kind = value.get("type") if isinstance(value, dict) else None
    if kind not in _CHOICES or (kind == "any" and not tools):
        return None
    if kind != "tool":
        return {"tool_choice": {"type": kind}}
    name = tools.get(value.get("name"))
    return None if name is None else {"tool_choice": {"type": "tool", "name": name}}


def _thinking(value: Any, *, is_ours: bool) -> dict[str, Any] | None:
    """Say how much to think without asking for it: an answer here has one token."""
    if not isinstance(value, dict):
        return None
    if value.get("type") != "enabled":
        return {"thinking": value} if value.get("type") in ("disabled", "adaptive") else None
    budget = value.get("budget_tokens")
    if is_ours:
        return {"thinking": {**value, "type": "adaptive"}}
    return {"thinking": value, "max_tokens": budget + 1} if isinstance(budget, int) else None


def _format(value: bytes) -> dict[str, Any]:
    """Make a schema that is another one where the recorded one is."""
    name = f"f{digest(value).hex()}"
    schema = {
        "type": "object",
        "properties": {name: {"type": "boolean"}},
        "required": [name],
        "additionalProperties": False,
    }
    return {"type": "json_schema", "schema": schema}
