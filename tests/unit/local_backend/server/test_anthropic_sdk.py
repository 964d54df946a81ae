"""The Messages API through the real SDK."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from tests.unit.local_backend.server.running import Running, filled

MARK = {"type": "ephemeral"}
WEATHER: dict[str, Any] = {
    "name": "weather",
    "description": "Says what the weather is like.",
    "input_schema": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "minLength": 3, "maxLength": 10},
            "days": {"type": "integer", "minimum": 1, "maximum": 7},
            "unit": {"enum": ["C", "F"]},
            "details": {"type": "array", "items": {"type": "boolean"}, "minItems": 2},
        },
        "required": ["city"],
    },
}


@pytest.fixture
def client(server: Running) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key="k", max_retries=0) as found:
        yield found


def ask(client: anthropic.Anthropic, **body: Any) -> Any:
    return client.messages.create(**filled(body))


def test_a_plain_answer(client: anthropic.Anthropic) -> None:
    found = ask(client, max_tokens=7)
    assert (found.type, found.role, found.model) == ("message", "assistant", "tiny")
    assert found.id.startswith("msg_")
    assert [block.type for block in found.content] == ["text"]
    assert (found.stop_reason, found.usage.output_tokens) == ("max_tokens", 7)
    # The speaker's token, five bytes, and the token that lets the model speak.
    assert found.usage.input_tokens == 1 + 5 + 1
    assert (found.usage.cache_read_input_tokens, found.usage.cache_creation_input_tokens) == (0, 0)
    assert found._request_id.startswith("req_")


def test_equal_requests_have_equal_answers(client: anthropic.Anthropic) -> None:
    first, second = (ask(client, max_tokens=12).content[0].text for _ in range(2))
    assert first == second
    assert ask(client, max_tokens=12, extra_body={"seed": 7}).content[0].text != first


def test_the_beta_surface(client: anthropic.Anthropic) -> None:
    beta = client.beta.messages.create(**filled({}), betas=["cache-diagnosis-2026-04-07"])
    assert beta.content[0].text == ask(client).content[0].text


def test_usage_of_a_written_and_a_read_prefix(client: anthropic.Anthropic) -> None:
    system = [
        {"type": "text", "text": "s" * 400, "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    ]
    user = [{"type": "text", "text": "u" * 100, "cache_control": MARK}]
    body = {"system": system, "messages": [{"role": "user", "content": user}]}
    cold, warm = ask(client, **body).usage, ask(client, **body).usage
    assert cold.cache_creation.ephemeral_1h_input_tokens == 401
    assert cold.cache_creation.ephemeral_5m_input_tokens == 101
    assert (cold.cache_creation_input_tokens, cold.cache_read_input_tokens) == (502, 0)
    assert (warm.cache_creation_input_tokens, warm.cache_read_input_tokens) == (0, 502)
    assert cold.input_tokens == warm.input_tokens == 1


def test_what_is_read_is_not_computed(client: anthropic.Anthropic) -> None:
    body = {"system": [{"type": "text", "text": "q" * 300, "cache_control": MARK}]}
    reports = [ask(client, **body).cacheaudit["engine"] for _ in range(2)]
    assert [(r["hit_tokens"], r["computed_tokens"]) for r in reports] == [(0, 308), (301, 7)]


def test_a_stream_adds_up_to_the_plain_answer(client: anthropic.Anthropic) -> None:
    plain = ask(client, max_tokens=9)
    with client.messages.stream(**filled({"max_tokens": 9})) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == final.content[0].text == plain.content[0].text
    assert (final.stop_reason, final.usage.output_tokens) == ("max_tokens", 9)
    assert final.usage.input_tokens == plain.usage.input_tokens


def test_the_events_of_a_stream_in_order(client: anthropic.Anthropic) -> None:
    marked = [{"type": "text", "text": "v" * 50, "cache_control": MARK}]
    body = filled({"messages": [{"role": "user", "content": marked}], "stream": True})
    events = list(client.messages.create(**body))
    kinds = [event.type for event in events if event.type != "content_block_delta"]
    assert kinds == [
        "message_start",
        "content_block_start",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    start, delta = events[0].message.usage, events[-2].usage
    assert start.cache_creation.ephemeral_5m_input_tokens == 51
    assert delta.cache_creation_input_tokens == start.cache_creation_input_tokens == 51
    assert delta.input_tokens == start.input_tokens == 1
    assert events[0].message.content == []
    assert events[0].message.stop_reason is None


@pytest.mark.parametrize("choice", [{"type": "tool", "name": "weather"}, {"type": "any"}])
def test_a_forced_call_fits_its_schema(client: anthropic.Anthropic, choice: Any) -> None:
    found = ask(client, max_tokens=200, tools=[WEATHER], tool_choice=choice)
    assert found.stop_reason == "tool_use"
    (call,) = found.content
    assert (call.type, call.name) == ("tool_use", "weather")
    assert call.id.startswith("toolu_")
    assert set(call.input) == {"city", "days", "unit", "details"}
    assert 3 <= len(call.input["city"]) <= 10
    assert 1 <= call.input["days"] <= 7
    assert call.input["unit"] in ("C", "F")
    assert [type(item) for item in call.input["details"]] == [bool, bool]
    assert found.usage.output_tokens > 0


def test_a_forced_call_in_a_stream(client: anthropic.Anthropic) -> None:
    body = filled({"max_tokens": 100, "tools": [WEATHER], "tool_choice": {"type": "any"}})
    with client.messages.stream(**body) as stream:
        pieces = [e.partial_json for e in stream if e.type == "input_json"]
        final = stream.get_final_message()
    assert json.loads("".join(pieces)) == final.content[0].input
    assert final.content[0].input == ask(client, **body).content[0].input
    assert final.stop_reason == "tool_use"


def test_a_result_goes_back(client: anthropic.Anthropic) -> None:
    called = ask(client, max_tokens=50, tools=[WEATHER], tool_choice={"type": "any"})
    messages = [
        {"role": "user", "content": "hello"},
        called.to_param(),
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": called.content[0].id, "content": "rain"}
            ],
        },
    ]
    assert ask(client, tools=[WEATHER], messages=messages).content[0].type == "text"


@pytest.mark.parametrize("kind", ["auto", "none"])
def test_without_force_the_model_answers(client: anthropic.Anthropic, kind: str) -> None:
    found = ask(client, tools=[WEATHER], tool_choice={"type": kind})
    assert [block.type for block in found.content] == ["text"]
    assert found.stop_reason == "max_tokens"


def test_an_answer_in_a_schema(client: anthropic.Anthropic) -> None:
    wanted = {"type": "json_schema", "schema": WEATHER["input_schema"]}
    found = ask(client, max_tokens=100, output_config={"format": wanted})
    assert found.stop_reason == "end_turn"
    assert 1 <= json.loads(found.content[0].text)["days"] <= 7


def test_max_tokens_zero_fills_the_cache_and_says_nothing(client: anthropic.Anthropic) -> None:
    system = [{"type": "text", "text": "w" * 200, "cache_control": MARK}]
    warmed = ask(client, max_tokens=0, system=system)
    assert (warmed.content, warmed.stop_reason, warmed.usage.output_tokens) == ([], "max_tokens", 0)
    assert warmed.usage.cache_creation_input_tokens == 201
    assert ask(client, system=system).usage.cache_read_input_tokens == 201


def test_a_stop_sequence_ends_the_answer(client: anthropic.Anthropic) -> None:
    long = ask(client, max_tokens=40).content[0].text
    stop = next(
        long[i : i + 2]
        for i in range(4, len(long))
        if long[i : i + 2].strip() and "\ufffd" not in long[i : i + 2]
    )
    found = ask(client, max_tokens=40, stop_sequences=[stop])
    assert (found.stop_reason, found.stop_sequence) == ("stop_sequence", stop)
    assert found.content[0].text == long[: long.index(stop)]


def test_the_answer_goes_on_from_the_last_message(client: anthropic.Anthropic) -> None:
    whole = ask(client, max_tokens=12).content[0].text
    messages = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "abc"}]
    found = ask(client, messages=messages)
    assert found.usage.input_tokens == 6 + 1 + 3
    assert found.content[0].text != whole[:4]


def test_counting(client: anthropic.Anthropic) -> None:
    body = {
        "model": "tiny",
        "system": "ab",
        "tools": [WEATHER],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": t} for t in ("xyz", "é")]},
            {"role": "assistant", "content": "yes"},
        ],
    }
    counted = client.messages.count_tokens(**body)
    tool = len(json.dumps(WEATHER, separators=(",", ":")))
    assert counted.content_tokens == [1 + tool, 2, 1 + 3, 2, 1 + 3]
    assert counted.input_tokens == sum(counted.content_tokens) + counted.tail_tokens
    assert counted.tail_tokens == 0
    assert ask(client, **body).usage.input_tokens == counted.input_tokens


def test_models(client: anthropic.Anthropic, server: Running) -> None:
    (model,) = client.models.list().data
    assert (model.id, model.type, model.max_input_tokens) == ("tiny", "model", 40_000)
    assert client.models.retrieve("tiny").id == "tiny"
    with pytest.raises(anthropic.NotFoundError):
        client.models.retrieve("other")


def test_errors_have_their_classes(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.BadRequestError) as bad:
        ask(client, extra_body={"temperature": 3})
    assert bad.value.type == "invalid_request_error"
    assert "temperature: must be from 0.0 to 1.0" in str(bad.value)
    with pytest.raises(anthropic.NotFoundError) as unknown:
        ask(client, model="claude-opus-5")
    assert unknown.value.type == "not_found_error"


def test_diagnostics_name_what_changed(client: anthropic.Anthropic) -> None:
    def turn(system: str, previous: str | None) -> Any:
        block = {"type": "text", "text": system * 100, "cache_control": MARK}
        return ask(client, system=[block], diagnostics={"previous_message_id": previous})

    first = turn("a", None)
    same = turn("a", first.id)
    changed = turn("b", same.id)
    assert first.diagnostics is None
    assert same.diagnostics is None
    reason = changed.diagnostics.cache_miss_reason
    assert (reason.type, reason.cache_missed_input_tokens) == ("system_changed", 101)
    lost = turn("b", "msg_nobody").diagnostics.cache_miss_reason
    assert lost.type == "previous_message_not_found"


def test_the_asynchronous_client(server: Running) -> None:
    async def talk() -> tuple[str, list[str], int]:
        async with anthropic.AsyncAnthropic(base_url=server.url, api_key="k") as client:
            plain = await client.messages.create(**filled({"max_tokens": 6}))
            async with client.messages.stream(**filled({"max_tokens": 6})) as stream:
                texts = [text async for text in stream.text_stream]
            many = await asyncio.gather(
                *(client.messages.create(**filled({"max_tokens": 3})) for _ in range(20))
            )
            return plain.content[0].text, texts, len({m.content[0].text for m in many})

    plain, texts, different = asyncio.run(talk())
    assert "".join(texts) == plain
    assert different == 1


def test_thinking_is_accepted_and_answered_without(client: anthropic.Anthropic) -> None:
    found = ask(client, thinking={"type": "adaptive"})
    assert [block.type for block in found.content] == ["text"]
    with pytest.raises(anthropic.BadRequestError, match=r"thinking\.budget_tokens"):
        ask(client, thinking={"type": "enabled", "budget_tokens": 1024})
