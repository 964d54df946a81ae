"""Settings in the cache key: said so that a change of one stays a change of that one."""

from __future__ import annotations

from typing import Any

import pytest

from cacheaudit.jobs.replaying.settings import Sent, settings_of
from cacheaudit.model.prompt import Parameter
from tests.unit.replay.builders import prompt_of, text, tool, user

TOOLS: dict[str | None, str] = {"read": "t0"}


def sent(**fields: Any) -> Sent:
    body = {"tools": [tool("read")], "messages": [user(text("a"))], **fields}
    return settings_of(prompt_of(body).parameters, TOOLS)


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, {}),
        ({"tool_choice": {"type": "auto"}}, {}),
        ({"tool_choice": {"type": "any"}}, {"tool_choice": {"type": "any"}}),
        (
            {"tool_choice": {"type": "tool", "name": "read"}},
            {"tool_choice": {"type": "tool", "name": "t0"}},
        ),
        (
            {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
            {"tool_choice": {"disable_parallel_tool_use": True, "type": "auto"}},
        ),
        (
            {"tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
            {"tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
        ),
        ({"speed": "fast"}, {"speed": "fast"}),
        ({"output_config": {"effort": "low"}}, {"output_config": {"effort": "low"}}),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 2048}},
            {"thinking": {"type": "adaptive", "budget_tokens": 2048}},
        ),
    ],
)
def test_what_is_sent(fields: dict[str, Any], wanted: dict[str, Any]) -> None:
    found = sent(**fields)
    assert (found.fields, found.unsent) == (wanted, ())


def test_schemas_differ_where_the_recorded_ones_do_and_are_not_those() -> None:
    def of(name: str) -> Any:
        schema = {"type": "object", "properties": {name: {"type": "string"}}}
        found = sent(output_config={"format": {"type": "json_schema", "schema": schema}})
        return found.fields["output_config"]["format"]["schema"]

    assert of("secret") == of("secret") != of("other")
    assert "secret" not in str(of("secret"))


def test_effort_and_format_are_said_together() -> None:
    schema = {"type": "object"}
    config = {"effort": "low", "format": {"type": "json_schema", "schema": schema}}
    assert sorted(sent(output_config=config).fields["output_config"]) == ["effort", "format"]


@pytest.mark.parametrize(
    "parameter",
    [
        Parameter("context_management", "messages", b'{"edits":[]}'),
        Parameter("mcp_servers", "tools", b'"0f"'),
        Parameter("output_config.effort", "messages", b'"extreme"'),
        Parameter("tool_choice", "messages", b'{"type":"tool","name":"gone"}'),
        Parameter("speed", "system", b"not json"),
    ],
    ids=["cleared", "servers", "effort", "choice", "broken"],
)
def test_what_cannot_be_sent_is_named(parameter: Parameter) -> None:
    assert settings_of([parameter], TOOLS) == Sent({}, (parameter.name,))


def test_a_foreign_server_is_asked_to_think_with_room_for_it() -> None:
    thinking = Parameter("thinking", "messages", b'{"type":"enabled","budget_tokens":2048}')
    found = settings_of([thinking], TOOLS, is_ours=False).fields
    assert found == {"thinking": {"type": "enabled", "budget_tokens": 2048}, "max_tokens": 2049}
