"""Requests that send only what is new are rebuilt to the full prompt."""

from __future__ import annotations

import json
from typing import Any

from cacheaudit.model.change import first_change, is_extension
from cacheaudit.providers.registry import expand
from cacheaudit.providers.threads import ThreadStore

TOOLS = [{"name": "f", "input_schema": {"type": "object"}}]
USE = {"type": "tool_use", "id": "t1", "name": "f", "input": {"b": 1, "a": 2}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "ok"}
FIRST: dict[str, Any] = {
    "model": "claude-opus-5",
    "system": "s",
    "tools": TOOLS,
    "messages": [{"role": "user", "content": "go"}],
    "thread": {"type": "create"},
}
SECOND: dict[str, Any] = {
    "model": "claude-opus-5",
    "messages": [{"role": "user", "content": [RESULT]}],
    "thread": {"type": "continue", "previous_message_id": "msg_1"},
}
THIRD: dict[str, Any] = {
    "model": "claude-opus-5",
    "messages": [{"role": "user", "content": "more"}],
    "thread": {"type": "continue", "previous_message_id": "msg_2"},
}
# What a client without threads would have sent in the third turn.
FULL: dict[str, Any] = {
    "model": "claude-opus-5",
    "system": "s",
    "tools": TOOLS,
    "messages": [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [USE]},
        {"role": "user", "content": [RESULT]},
        {"role": "assistant", "content": [{"type": "text", "text": "done"}]},
        {"role": "user", "content": "more"},
    ],
}


def test_a_thread_of_three_turns() -> None:
    store = ThreadStore()
    bodies = []
    for number, (body, content) in enumerate(
        ((FIRST, [USE]), (SECOND, [{"type": "text", "text": "done"}]), (THIRD, None)), start=1
    ):
        before = json.dumps(body)
        rebuilt = store.rebuild(body)
        assert json.dumps(body) == before
        assert rebuilt.reason is None
        assert rebuilt.body is not None
        store.remember(f"msg_{number}", rebuilt.body, content)
        bodies.append(rebuilt.body)
    assert bodies[2] == FULL
    assert "thread" not in bodies[0]
    prompts = [expand(body) for body in bodies]
    assert is_extension(prompts[0], prompts[1])
    assert is_extension(prompts[1], prompts[2])
    assert first_change(prompts[0], prompts[2]) is None
    assert prompts[2].prefix_digests == expand(FULL).prefix_digests


def test_what_is_not_known_is_refused_with_the_reason() -> None:
    store = ThreadStore()
    unknown = store.rebuild(SECOND)
    assert unknown.body is None
    assert unknown.reason == "The request continues msg_1, which was not recorded."
    store.remember("msg_1", FIRST, None)
    bare = store.rebuild(SECOND)
    assert bare.body is None
    assert bare.reason == "The request continues msg_1, whose content was not recorded."
    nameless = store.rebuild({**SECOND, "thread": {"type": "continue"}})
    assert nameless.body is None
    assert nameless.reason is not None
    store.remember("msg_1", FIRST, [USE])
    broken = store.rebuild({**SECOND, "messages": None})
    assert (broken.body, broken.reason is not None) == (None, True)


def test_a_turn_may_be_continued_again_after_a_failure() -> None:
    store = ThreadStore()
    store.remember("msg_1", store.rebuild(FIRST).body or {}, [USE])
    assert store.rebuild(SECOND) == store.rebuild(SECOND)


def test_a_paused_turn_resumes_with_no_new_message() -> None:
    store = ThreadStore()
    store.remember("msg_1", store.rebuild(FIRST).body or {}, [USE])
    resumed = store.rebuild({**SECOND, "messages": []})
    assert resumed.body is not None
    assert resumed.body["messages"][-1] == {"role": "assistant", "content": [USE]}


def test_a_new_setting_of_the_turn_wins_and_tools_are_the_threads() -> None:
    store = ThreadStore()
    store.remember("msg_1", store.rebuild(FIRST).body or {}, [USE])
    rebuilt = store.rebuild({**SECOND, "tool_choice": {"type": "any"}})
    assert rebuilt.body is not None
    assert (rebuilt.body["tools"], rebuilt.body["system"]) == (TOOLS, "s")
    change = first_change(expand(FIRST), expand(rebuilt.body))
    assert change is not None
    assert (change.kind, change.path, change.level) == ("parameter", "tool_choice", "messages")


def test_memory_has_a_limit() -> None:
    store = ThreadStore(limit=2)
    for number in range(5):
        store.remember(f"msg_{number}", FIRST, [])
    assert len(store) == 2
    assert store.rebuild({**THIRD}).reason == "The request continues msg_2, which was not recorded."


def test_the_responses_api_chains_the_input_alone() -> None:
    store = ThreadStore()
    first = {"model": "gpt-6", "instructions": "i", "input": "go"}
    call = {"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": "{}"}
    store.remember("resp_1", store.rebuild(first).body or {}, [call])
    answer = {"type": "function_call_output", "call_id": "c", "output": "ok"}
    second = {"model": "gpt-6", "input": [answer], "previous_response_id": "resp_1"}
    rebuilt = store.rebuild(second)
    assert rebuilt.body is not None
    assert rebuilt.body["input"] == [
        {"type": "message", "role": "user", "content": "go"},
        call,
        answer,
    ]
    assert "instructions" not in rebuilt.body
    kept = store.rebuild({**second, "instructions": "i"})
    assert kept.body is not None
    assert first_change(expand(first), expand(kept.body)) is None
