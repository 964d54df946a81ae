"""Chat Completions through the real SDK."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.unit.local_backend.server.running import Running, running

MARK = {"type": "ephemeral"}
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer", "maximum": 9}, "b": {"const": 2}},
            "required": ["a", "b"],
        },
    },
}


@pytest.fixture
def client(server: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="k", max_retries=0) as found:
        yield found


def ask(client: openai.OpenAI, **body: Any) -> Any:
    user = [{"role": "user", "content": "hello"}]
    return client.chat.completions.create(
        **{"model": "tiny", "max_completion_tokens": 5, "messages": user, **body}
    )


def test_a_plain_answer(client: openai.OpenAI, server: Running) -> None:
    found = ask(client)
    (choice,) = found.choices
    assert (found.object, choice.message.role, choice.finish_reason) == (
        "chat.completion",
        "assistant",
        "length",
    )
    assert (found.usage.prompt_tokens, found.usage.completion_tokens) == (7, 5)
    assert found.usage.total_tokens == 12
    same = server.ask({"max_tokens": 5})
    assert choice.message.content == same["content"][0]["text"]


def test_usage_includes_what_was_read(client: openai.OpenAI) -> None:
    part = {"type": "text", "text": "s" * 300, "cache_control": MARK}
    messages = [{"role": "system", "content": [part]}, {"role": "user", "content": "hello"}]
    cold, warm = (ask(client, messages=messages).usage for _ in range(2))
    assert cold.prompt_tokens == warm.prompt_tokens == 301 + 6 + 1
    assert (cold.prompt_tokens_details.cached_tokens, warm.prompt_tokens_details.cached_tokens) == (
        0,
        301,
    )
    assert cold.prompt_tokens_details.cache_write_tokens == 301


def test_a_stream_with_usage(client: openai.OpenAI) -> None:
    plain = ask(client).choices[0].message.content
    chunks = list(ask(client, stream=True, stream_options={"include_usage": True}))
    texts = [c.choices[0].delta.content or "" for c in chunks if c.choices]
    assert "".join(texts) == plain
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"
    assert chunks[-1].choices == []
    assert (chunks[-1].usage.prompt_tokens, chunks[-1].usage.completion_tokens) == (7, 5)
    assert all(c.usage is None for c in chunks[:-1])


def test_a_stream_without_usage(client: openai.OpenAI) -> None:
    assert all(chunk.choices for chunk in ask(client, stream=True))


def test_a_forced_call_and_its_result(client: openai.OpenAI) -> None:
    found = ask(client, tools=[TOOL], tool_choice="required", max_completion_tokens=40)
    (choice,) = found.choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    (call,) = choice.message.tool_calls
    given = json.loads(call.function.arguments)
    assert (call.function.name, set(given), given["b"]) == ("add", {"a", "b"}, 2)
    assert given["a"] <= 9
    messages = [
        {"role": "user", "content": "hello"},
        choice.message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "11"},
    ]
    # Random weights may spell no text at all, so what counts is that the turn was taken.
    (said,) = (after := ask(client, messages=messages, tools=[TOOL])).choices
    assert (said.finish_reason, said.message.tool_calls) == ("length", None)
    assert after.usage.completion_tokens == 5
    assert after.usage.prompt_tokens > found.usage.prompt_tokens


def test_a_forced_call_in_a_stream(client: openai.OpenAI) -> None:
    choice = {"type": "function", "function": {"name": "add"}}
    chunks = list(ask(client, tools=[TOOL], tool_choice=choice, stream=True))
    bits = [d for c in chunks for d in c.choices[0].delta.tool_calls or ()]
    assert (bits[0].function.name, bits[0].index) == ("add", 0)
    assert json.loads("".join(b.function.arguments for b in bits))["b"] == 2
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_an_answer_in_a_schema(client: openai.OpenAI) -> None:
    schema = {"name": "s", "schema": {"type": "object", "properties": {"x": {"type": "number"}}}}
    form = {"type": "json_schema", "json_schema": schema}
    found = ask(client, response_format=form, max_completion_tokens=30).choices[0]
    assert isinstance(json.loads(found.message.content)["x"], int | float)
    assert found.finish_reason == "stop"


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"temperature": 2.5}, "temperature"),
        ({"n": 2}, "n"),
        ({"messages": [{"role": "nobody", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "user"}]}, "messages.0.content"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"extra_body": {"nonsense": 1}}, "nonsense"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_errors_name_the_place(client: openai.OpenAI, body: dict[str, Any], place: str) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        ask(client, **body)
    assert error.value.body["message"].startswith(f"{place}: ")


def test_an_unknown_model(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        ask(client, model="gpt-6-sol")


def test_hits_and_misses_of_deepseek_rules() -> None:
    """A+B, A+C, A+D: the second finds out that A is common, the third reads it."""
    with (
        running(rules="deepseek") as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="k") as client,
    ):
        usages = []
        for letter in "bcd":
            messages = [
                {"role": "system", "content": "a" * 255},
                {"role": "user", "content": letter * 200},
            ]
            usages.append(ask(client, messages=messages).usage)
        # The speaker's token and 255 letters are four whole units.
        assert [u.prompt_cache_hit_tokens for u in usages] == [0, 0, 256]
        assert [u.prompt_cache_miss_tokens for u in usages] == [458, 458, 202]
        assert [u.prompt_tokens_details.cached_tokens for u in usages] == [0, 0, 256]


@pytest.mark.parametrize(
    "more",
    [
        {"frequency_penalty": 0, "presence_penalty": 0.0, "logit_bias": {}},
        {"logprobs": False, "top_logprobs": 0, "audio": None, "modalities": ["text"]},
        {"verbosity": "low", "prediction": {"type": "content", "content": "x"}},
        {"prompt_cache_retention": "24h", "prompt_cache_options": {"mode": "implicit"}},
        {"prompt_cache_key": "k", "safety_identifier": "s", "user": "u", "store": False},
    ],
    ids=lambda more: next(iter(more)),
)
def test_settings_that_change_nothing(client: openai.OpenAI, more: dict[str, Any]) -> None:
    plain, changed = ask(client), ask(client, **more)
    assert changed.choices[0].message.content == plain.choices[0].message.content


@pytest.mark.parametrize(
    "more",
    [
        {"frequency_penalty": 1},
        {"logprobs": True},
        {"logit_bias": {"5": 1}},
        {"functions": [{"name": "f"}]},
        {"web_search_options": {}},
    ],
    ids=lambda more: next(iter(more)),
)
def test_what_is_not_done_here_is_refused(client: openai.OpenAI, more: dict[str, Any]) -> None:
    with pytest.raises(openai.BadRequestError, match="is not supported by this server"):
        ask(client, **more)


def test_an_answer_may_end_at_a_line_break(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="stop: must not be empty"):
        ask(client, stop="")
    whole = ask(client, max_completion_tokens=300, temperature=0.0).choices[0].message.content
    blank = next((c for c in whole if not c.strip()), "\n")
    found = ask(client, max_completion_tokens=300, temperature=0.0, stop=blank).choices[0]
    assert found.message.content == whole.partition(blank)[0]


def test_a_choice_among_some_tools(client: openai.OpenAI) -> None:
    other = {"type": "function", "function": {"name": "other"}}

    def choice(mode: str, *names: str) -> dict[str, Any]:
        listed = [{"type": "function", "function": {"name": name}} for name in names]
        return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": listed}}

    called = {
        ask(client, tools=[TOOL, other], tool_choice=choice("required", "other"), seed=seed)
        .choices[0]
        .message.tool_calls[0]
        .function.name
        for seed in range(4)
    }
    assert called == {"other"}
    free = ask(client, tools=[TOOL, other], tool_choice=choice("auto", "add"))
    assert free.choices[0].message.tool_calls is None
    for names in ((), ("absent",)):
        with pytest.raises(openai.BadRequestError, match=r"tool_choice\.allowed_tools\.tools"):
            ask(client, tools=[TOOL], tool_choice=choice("auto", *names))


def test_files_and_refusals(client: openai.OpenAI) -> None:
    def spent(*messages: dict[str, Any]) -> int:
        return int(ask(client, messages=messages).usage.prompt_tokens)

    def file(**more: str) -> dict[str, Any]:
        return {"role": "user", "content": [{"type": "file", "file": more}]}

    assert spent(file(file_data="data:application/pdf;base64,QUJD")) == 1 + 256 + 1
    assert spent(file(file_id="f", filename="n.pdf")) == 1 + len("n.pdf\n") + 256 + 1
    user = {"role": "user", "content": "a"}
    no = {"role": "assistant", "content": None, "refusal": "no"}
    assert spent(user, no, user) == 2 + 3 + 2 + 1
