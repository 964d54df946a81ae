"""The pytest plugin in runs of its own: what fails, what passes, what it costs those without it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import httpx
import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.errors import PromptError
from cacheaudit.jobs.guard import CachePrefixGuard

pytest_plugins = ["pytester"]

MARK = {"type": "ephemeral"}
PLUGIN = ("-p", "cacheaudit.pytest_plugin", "-p", "no:cacheprovider")
HEAD = """
import pytest

def body(*texts, system="You help.", **more):
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": t} for i, t in enumerate(texts)]
    return {"model": "claude-opus-5", "system": system, "messages": messages, **more}
"""


def body(*texts: Any, system: Any = "You help.", **more: Any) -> dict[str, Any]:
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": t} for i, t in enumerate(texts)]
    return {"model": "claude-opus-5", "system": system, "messages": messages, **more}


def outcome(pytester: pytest.Pytester, code: str, **counts: int) -> str:
    pytester.makepyfile(HEAD + code)
    result = pytester.runpytest_inprocess(*PLUGIN, "--strict-markers")
    result.assert_outcomes(**counts)
    return str(result.stdout)


def test_a_growing_conversation_passes(pytester: pytest.Pytester) -> None:
    code = """
def test_agent(cache_prefix_guard):
    cache_prefix_guard.record(body("one"))
    cache_prefix_guard.record(body("one", "two", "three"))
    cache_prefix_guard.record(body("one", "two", "three", "four", "five"))
    assert cache_prefix_guard.requests == 3
"""
    outcome(pytester, code, passed=1)


def test_a_changed_system_prompt_fails_with_its_place(pytester: pytest.Pytester) -> None:
    code = """
def test_agent(cache_prefix_guard):
    cache_prefix_guard.record(body("one", system="The secret is 10:31."))
    cache_prefix_guard.record(body("one", "two", "three", system="The secret is 10:32."))
"""
    shown = outcome(pytester, code, failed=1)
    assert "Request 2 does not extend request 1 (conversation 'main')." in shown
    assert "level system, system[0]: edited, byte 18 of the field" in shown
    assert "tokens from there on are not read" in shown
    assert "moves_cache_prefix" in shown
    assert "secret is" not in shown.partition("The cached prefix moved.")[2]


def test_a_test_that_fails_by_itself_keeps_its_own_reason(pytester: pytest.Pytester) -> None:
    code = """
def test_agent(cache_prefix_guard):
    cache_prefix_guard.record(body("one", system="a"))
    cache_prefix_guard.record(body("one", "two", "three", system="b"))
    assert False, "its own reason"
"""
    shown = outcome(pytester, code, failed=1)
    assert "its own reason" in shown
    assert "The cached prefix moved" not in shown


def test_the_marker_excuses_a_move_and_only_a_move(pytester: pytest.Pytester) -> None:
    code = """
@pytest.mark.moves_cache_prefix(reason="the mode changes the tools")
def test_moves(cache_prefix_guard):
    cache_prefix_guard.record(body("one"))
    cache_prefix_guard.record(body("one", "two", "three", tool_choice={"type": "any"}))

@pytest.mark.moves_cache_prefix(reason="no longer true")
def test_does_not(cache_prefix_guard):
    cache_prefix_guard.record(body("one"))
    cache_prefix_guard.record(body("one", "two", "three"))

@pytest.mark.moves_cache_prefix
def test_without_a_reason(cache_prefix_guard):
    cache_prefix_guard.record(body("one"))

@pytest.mark.moves_cache_prefix(reason=" ")
def test_with_a_blank_reason(cache_prefix_guard):
    pass
"""
    shown = outcome(pytester, code, passed=1, failed=1, errors=2)
    assert "marked as moving its cached prefix (no longer true)" in shown
    assert "needs a reason" in shown


def test_what_another_fixture_sends_late_is_looked_at_too(pytester: pytest.Pytester) -> None:
    code = """
@pytest.fixture
def agent(cache_prefix_guard):
    cache_prefix_guard.record(body("one"))
    yield
    cache_prefix_guard.record(body("one", "two", "bye", system="other"))

def test_agent(agent):
    pass
"""
    shown = outcome(pytester, code, passed=1, errors=1)
    assert "level system" in shown


def test_expected_failures_and_parametrised_tests(pytester: pytest.Pytester) -> None:
    code = """
@pytest.mark.parametrize("system", ["a", "b"])
def test_each_has_a_guard_of_its_own(cache_prefix_guard, system):
    cache_prefix_guard.record(body("one", system=system))

@pytest.mark.xfail(strict=True)
def test_known_to_move(cache_prefix_guard):
    cache_prefix_guard.record(body("one", system="a"))
    cache_prefix_guard.record(body("one", "two", "three", system="b"))
"""
    outcome(pytester, code, passed=2, xfailed=1)


def test_compaction_is_announced(pytester: pytest.Pytester) -> None:
    code = """
def test_compacts(cache_prefix_guard):
    guard = cache_prefix_guard
    guard.record(body("one", "two", "three"))
    guard.compaction()
    guard.record(body("one", "two", "three", "four", "Summarise."))
    guard.record(body("Summary: one to four.", "yes", "go on"))
    guard.record(body("Summary: one to four.", "yes", "go on", "six", "seven"))

def test_without_announcement(cache_prefix_guard):
    guard = cache_prefix_guard
    guard.record(body("one", "two", "three"))
    guard.record(body("Summary: one to four.", "yes", "go on"))

def test_only_messages_may_change(cache_prefix_guard):
    guard = cache_prefix_guard
    guard.record(body("one", "two", "three"))
    guard.compaction()
    guard.record(body("Summary.", "yes", "go on", system="Another."))

def test_it_never_comes(cache_prefix_guard):
    guard = cache_prefix_guard
    guard.record(body("one", "two", "three"))
    guard.compaction()
    guard.record(body("one", "two", "three", "four", "five"))
"""
    shown = outcome(pytester, code, passed=1, failed=3)
    assert "no request changed the history" in shown


def test_runs_without_the_fixture_import_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
import sys

def test_nothing_came_along():
    heavy = ("msgspec", "rich", "click", "sqlalchemy", "pydantic", "jinja2")
    ours = [name for name in sys.modules if name.startswith("cacheaudit.")]
    assert sorted(ours) == ["cacheaudit._version", "cacheaudit.pytest_plugin"]
    assert [name for name in heavy if name in sys.modules] == []
"""
    )
    env = ("-p", "no:hypothesispytest", "-p", "no:anyio", "-p", "no:respx")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *PLUGIN, *env, "-q", str(pytester.path)],
        capture_output=True,
        check=False,
        timeout=120,
        cwd=pytester.path,
    )
    assert done.returncode == 0, done.stdout.decode()


def test_the_marker_is_known(pytester: pytest.Pytester) -> None:
    shown = pytester.runpytest_inprocess(*PLUGIN, "--markers")
    shown.stdout.fnmatch_lines(["@pytest.mark.moves_cache_prefix(reason)*"])


def breaks(*bodies: dict[str, Any]) -> list[tuple[int, str, str, str]]:
    guard = CachePrefixGuard()
    for item in bodies:
        guard.record(item)
    return [(b.number, b.change.level, b.change.path, b.change.kind) for b in guard.breaks]


def test_markers_and_the_form_of_text_are_no_change() -> None:
    block = {"type": "text", "text": "one"}
    marked = {**block, "cache_control": MARK}
    system = [{"type": "text", "text": "You help.", "cache_control": MARK}]
    assert (
        breaks(
            body("one"),
            body([marked], "two", "three"),
            body([block], "two", [{"type": "text", "text": "three", "cache_control": MARK}]),
            body("one", "two", "three", "four", "five", system=system, cache_control=MARK),
        )
        == []
    )


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        (body("ONE", "two", "three"), ("messages", "messages[0].content[0]", "edited")),
        (
            body("one", "two", "three", thinking={"type": "adaptive"}),
            ("messages", "thinking", "parameter"),
        ),
        (body("one", "two", "three", model="claude-opus-4-8"), ("tools", "model", "parameter")),
        (
            body("one", "two", "three", tools=[{"name": "a", "input_schema": {}}]),
            ("tools", "tools[0]", "added"),
        ),
    ],
)
def test_what_moves_the_prefix(later: dict[str, Any], expected: tuple[str, str, str]) -> None:
    assert breaks(body("one"), later) == [(2, *expected)]


def test_the_order_of_keys_in_the_history_counts() -> None:
    """P17: the arguments of an old call are written with their keys in another order."""

    def request(arguments: dict[str, str], *more: Any) -> dict[str, Any]:
        call = {"type": "tool_use", "id": "t", "name": "a", "input": arguments}
        result = {"type": "tool_result", "tool_use_id": "t", "content": "ok"}
        return body("q", [call], [result], *more)

    first = request({"city": "x", "unit": "c"})
    second = request({"unit": "c", "city": "x"}, "done", "more")
    assert breaks(first, second) == [(2, "messages", "messages[1].content[0]", "key_order_only")]


def test_conversations_do_not_disturb_each_other() -> None:
    reminder = {"type": "text", "text": "Reminder that every conversation carries."}

    def ask(text: str) -> list[dict[str, str]]:
        return [reminder, {"type": "text", "text": text}]

    assert (
        breaks(
            body(ask("main task")),
            body(ask("find a title"), system="Titles."),
            body(ask("main task"), "two", "three"),
            body(ask("look there"), system="You search."),
            body(ask("look there"), "found", "next", system="You search."),
            body(ask("main task"), "two", "three", "four", "five"),
            body(ask("main task")),  # the same question again, from the beginning
        )
        == []
    )


def test_forks_of_one_history_need_names() -> None:
    base = ("one", "two", "three")
    forks = [body(*base, "four", "left"), body(*base, "four", "right")]
    assert len(breaks(body(*base), *forks)) == 1
    guard = CachePrefixGuard()
    guard.record(body(*base), conversation="left")
    for name, fork in zip(("left", "right"), forks, strict=True):
        assert guard.record(fork, conversation=name) is None


def test_bodies_are_taken_as_they_are_at_the_time() -> None:
    guard = CachePrefixGuard()
    messages: list[dict[str, str]] = [{"role": "user", "content": "one"}]
    request = {"model": "claude-opus-5", "messages": messages}
    before = json.dumps(request)
    guard.record(request)
    assert json.dumps(request) == before
    messages[0]["content"] = "ONE"
    messages += [{"role": "assistant", "content": "two"}, {"role": "user", "content": "three"}]
    assert guard.record(request) is not None


def test_json_text_and_bad_bodies() -> None:
    guard = CachePrefixGuard()
    guard.record(json.dumps(body("one")))
    guard.record(json.dumps(body("one", "two", "three")).encode())
    assert (guard.requests, guard.breaks) == (2, [])
    for bad in ("{", "[]", "{}", b"\xff"):
        with pytest.raises(PromptError):
            guard.record(bad)
    guard.record({**body("new"), "thread": {"type": "continue", "previous_message_id": "m"}})
    assert (guard.requests, guard.skipped) == (2, 1)


@given(
    texts=st.lists(st.text(min_size=1, max_size=8), min_size=3, max_size=9),
    data=st.data(),
)
def test_growth_never_breaks_and_a_change_always_does(
    texts: list[str], data: st.DataObject
) -> None:
    texts = [f"{number}: {text}" for number, text in enumerate(texts)]
    lengths = range(1, len(texts) + 1, 2)
    assert breaks(*(body(*texts[:length]) for length in lengths)) == []
    place = data.draw(st.integers(0, lengths[-1] - 1))
    changed = list(texts)
    changed[place] += "!"
    whole = body(*changed, "reply", "next") if len(texts) % 2 else body(*changed[:-1], "r", "n")
    [found] = breaks(body(*texts[: lengths[-1]]), whole)
    assert found[1:] == ("messages", f"messages[{place}].content[0]", "edited")


URL = "https://provider.test/v1/messages"


@pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])
def test_transport_and_hook_in_both_clients(library: Any) -> None:
    seen: list[bytes] = []

    def answer(request: Any) -> Any:
        seen.append(request.content)
        return library.Response(200, json={"ok": True})

    guard = CachePrefixGuard()
    inner = library.MockTransport(answer)
    with library.Client(transport=guard.transport(inner)) as client:
        sent = json.dumps(body("one")).encode()
        assert client.post(URL, content=sent).json() == {"ok": True}
        client.post(URL, content=iter([sent[:9], sent[9:]]))
        client.post(URL.replace("messages", "messages/count_tokens"), json=body("x"))
        client.post("https://provider.test/v1/embeddings", json={"input": "x", "model": "m"})
        client.post(URL, content=b"not json")
        client.post(URL, json=body("one", "two", "three", system="Other."))
    assert seen[0] == seen[1] == sent
    assert (guard.requests, guard.skipped) == (3, 1)
    assert [b.change.level for b in guard.breaks] == ["system"]
    hooked = CachePrefixGuard()
    with library.Client(transport=inner, event_hooks={"request": [hooked.on_request]}) as client:
        client.post(URL, json=body("one"))
    assert hooked.requests == 1


@pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])
def test_asynchronous_clients(library: Any) -> None:
    guard = CachePrefixGuard()

    async def answer(request: Any) -> Any:
        del request
        return library.Response(200, json={})

    async def work() -> None:
        inner = library.MockTransport(answer)
        hooks = {"request": [guard.on_async_request]}
        async with library.AsyncClient(transport=guard.transport(inner)) as client:
            await client.post(URL, json=body("one"))
        async with library.AsyncClient(transport=inner, event_hooks=hooks) as client:
            await client.post(URL, json=body("one", "two", "three"))

    asyncio.run(work())
    assert (guard.requests, guard.breaks) == (2, [])


def test_an_sdk_client_is_guarded() -> None:
    anthropic = pytest.importorskip("anthropic")
    reply = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "claude-opus-5",
        "content": [{"type": "text", "text": "two"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    inner = httpx2.MockTransport(lambda request: httpx2.Response(200, json=reply))
    guard = CachePrefixGuard()
    with httpx2.Client(transport=guard.transport(inner)) as http:
        client = anthropic.Anthropic(api_key="none", http_client=http)
        for texts in (("one",), ("one", "two", "three"), ("uno", "two", "three", "four", "five")):
            client.messages.create(max_tokens=5, **body(*texts))
    assert guard.requests == 3
    assert [b.number for b in guard.breaks] == [3]
