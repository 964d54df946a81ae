"""Rules and engine together: usage is what the rules allow and the engine really reused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.local_backend.rules.fourteen import SYSTEM, Item, Step, steps
from tests.unit.local_backend.server.running import Running, filled, running

MARK = {"cache_control": {"type": "ephemeral"}}
# A fifth of the recorded sizes, which leaves room for the JSON of the smallest tool.
SCALE = 5


def text(content: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": content, **more}


def prefix(content: str, **more: Any) -> dict[str, Any]:
    """A request with a marked system prompt."""
    return {"system": [text(content, **MARK)], **more}


def parts(answer: dict[str, Any]) -> tuple[int, int, int]:
    usage = answer["usage"]
    return (
        usage["cache_read_input_tokens"],
        usage["cache_creation_input_tokens"],
        usage["input_tokens"],
    )


# ── one rule at a time ───────────────────────────────────────────────────────────────────────────


def test_an_hour_passes(server: Running) -> None:
    asked = prefix("a" * 99)
    assert parts(server.ask(asked)) == (0, 100, 7)
    for seconds, read in ((299, 100), (299, 100), (301, 0)):
        server.call("/admin/clock", {"advance_s": seconds})
        found = server.ask(asked)
        assert parts(found) == (read, 100 - read, 7)
        assert found["cacheaudit"]["miss"] == (None if read else "expired")
    hour = {"system": [text("h" * 99, cache_control={"type": "ephemeral", "ttl": "1h"})]}
    for read, seconds in ((0, 3599), (100, 3601), (0, 0)):
        assert parts(server.ask(hour))[0] == read
        server.call("/admin/clock", {"advance_s": seconds})


def test_a_request_brings_its_own_time(server: Running) -> None:
    now = server.call("/health")[1]["now"]
    asked = prefix("b" * 99)
    late = {"x-cacheaudit-now": str(now + 100.0), "x-cacheaudit-began": str(now + 110.0)}
    assert parts(server.ask(asked, late))[0] == 0
    assert server.call("/health")[1]["now"] == now + 100.0
    for seconds, read in ((105.0, 0), (110.0, 100), (400.0, 100)):
        found = server.ask(asked, {"x-cacheaudit-now": str(now + seconds)})
        assert parts(found)[0] == read, seconds
    status, answer, _ = server.call("/v1/messages", filled(asked), {"x-cacheaudit-now": "soon"})
    assert (status, answer["error"]["type"]) == (400, "invalid_request_error")
    assert server.call("/admin/clock", {"advance_s": -1})[0] == 400


def test_moments_may_be_rfc_3339() -> None:
    with running() as server:
        server.ask({}, {"x-cacheaudit-now": "2026-11-30T00:00:00Z"})
        assert server.call("/health")[1]["now"] == 1_795_996_800.0


def test_the_machines_clock_cannot_be_set() -> None:
    with running(clock="system") as server:
        assert server.call("/admin/clock", {"advance_s": 5})[0] == 404
        assert server.call("/v1/messages", filled({}), {"x-cacheaudit-now": "5"})[0] == 400
        asked = prefix("c" * 50)
        assert [parts(server.ask(asked))[0] for _ in range(2)] == [0, 51]


@pytest.mark.parametrize("marked", [[-1], [14, -1]], ids=["one marker", "two markers"])
def test_the_lookback(server: Running, marked: list[int]) -> None:
    def blocks(count: int, marks: list[int], name: str) -> dict[str, Any]:
        content = [text(f"{name}{n:02}" * 3) for n in range(count)]
        for mark in marks:
            content[mark] |= MARK
        return {"messages": [{"role": "user", "content": content}]}

    name = f"{len(marked)}"
    server.ask(blocks(15, [-1], name))
    found = server.ask(blocks(35, marked, name))
    assert parts(found)[0] == (0 if len(marked) == 1 else 15 * 9 + 1)
    assert found["cacheaudit"]["miss"] == ("lookback" if len(marked) == 1 else None)


def test_a_change_drops_its_level(server: Running) -> None:
    tool = {"name": "f", "description": "d" * 60, "input_schema": {"type": "object"}}

    def asked(**more: Any) -> tuple[int, int, int]:
        user = [{"role": "user", "content": [text("u" * 50, **MARK)]}]
        base = {"tools": [{**tool, **MARK}], **prefix("s" * 60), "messages": user}
        return parts(server.ask({**base, **more}))

    _, whole, _ = asked()
    front = whole - 51
    tools = front - 60
    assert asked()[0] == whole
    assert asked(tool_choice={"type": "none"})[0] == front
    assert asked(thinking={"type": "adaptive"})[0] == front
    assert asked(speed="fast")[0] == tools
    assert asked(tools=[{**tool, **MARK, "description": "e" * 60}])[0] == 0
    assert asked()[0] == whole


def test_workspaces_share_nothing(server: Running) -> None:
    asked = prefix("w" * 99)
    ways = [{}, {"x-api-key": "a"}, {"x-api-key": "b"}, {"x-cacheaudit-workspace": "w"}]
    found = [server.ask(asked, headers) for headers in ways]
    assert [parts(one)[0] for one in found] == [0, 0, 0, 0]
    assert [one["cacheaudit"]["engine"]["hit_tokens"] for one in found] == [0, 0, 0, 0]
    assert [parts(server.ask(asked, headers))[0] for headers in ways] == [100] * 4


def test_models_share_nothing() -> None:
    with running(any_model=True) as server:
        asked = prefix("m" * 599)
        names = ("claude-opus-5", "claude-sonnet-5", "other")
        found = [[parts(server.ask({**asked, "model": n})) for n in names] for _ in range(2)]
        # The second model's published minimum is 1,024 tokens.
        assert found[0] == [(0, 600, 7), (0, 0, 607), (0, 600, 7)]
        assert found[1] == [(600, 0, 7), (0, 0, 607), (600, 0, 7)]


def test_markers_that_are_refused(server: Running) -> None:
    five = {"messages": [{"role": "user", "content": [text(f"{n}", **MARK) for n in range(5)]}]}
    status, kind, message = server.refused(filled(five))
    assert (status, kind) == (400, "invalid_request_error")
    assert message == "messages.0.content.4: at most 4 blocks may have cache_control; found 5"
    automatic = server.ask({"cache_control": {"type": "ephemeral"}, "system": "auto" * 20})
    assert parts(automatic) == (0, 81 + 6, 1)


def test_parallel_requests_all_write(server: Running) -> None:
    """None has begun when the last one starts, so each pays; later ones read."""
    asked = prefix("p" * 999)
    found: list[tuple[int, int, int]] = []
    headers = {"x-cacheaudit-began": "1e9"}
    threads = [
        threading.Thread(target=lambda: found.append(parts(server.ask(asked, headers))))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [(0, 1000, 7)] * 3


# ── what the engine no longer holds ──────────────────────────────────────────────────────────────


def test_evicted_pages_are_written_again_and_it_is_said() -> None:
    with running(pages=700) as server:
        asked = prefix("e" * 399)
        assert parts(server.ask(asked)) == (0, 400, 7)
        assert parts(server.ask(asked)) == (400, 0, 7)
        for letter in "xy":
            server.ask(prefix(letter * 500))
        told = {**asked, "diagnostics": {"previous_message_id": None}}
        status, found, headers = server.call("/v1/messages", filled(told))
        lost = found["cacheaudit"]["evicted_input_tokens"]
        assert status == 200
        assert 0 < lost <= 400
        assert parts(found) == (400 - lost, lost, 7)
        assert found["cacheaudit"]["miss"] == "evicted"
        assert found["cacheaudit"]["engine"]["computed_tokens"] == lost + 7
        assert found["diagnostics"]["evicted_input_tokens"] == lost
        assert headers["x-cacheaudit-evicted-tokens"] == str(lost)
        assert server.metric("usage_tokens_total", kind="evicted") == lost
        assert server.metric("engine_evicted_pages_total") > 0
        server.pages_are_free()


def test_pages_of_sixteen_are_exact_to_the_token_too() -> None:
    with running(page_size=16) as server:
        asked = prefix("r" * 99)
        server.ask(asked)
        found = server.ask(asked)
        assert parts(found) == (100, 0, 7)
        assert found["cacheaudit"]["miss"] is None


def test_implicit_rules_read_the_longest_prefix() -> None:
    with running(rules="implicit") as server:
        first = server.ask({"system": "i" * 200, "max_tokens": 10})
        again = server.ask({"system": "i" * 150 + "j" * 50, "max_tokens": 10})
        assert parts(first) == (0, 0, 208)
        assert parts(again) == (151, 0, 57)
        assert again["cacheaudit"]["engine"]["hit_tokens"] == 151


def pictured(data: str | None, **more: Any) -> dict[str, Any]:
    """A text, perhaps a picture, a text."""
    source = {"type": "base64", "media_type": "image/png", "data": data}
    middle = [{"type": "image", "source": source}] if data else []
    content = [text("a" * 49), *middle, text("b" * 50, **more)]
    return {"messages": [{"role": "user", "content": content}], "max_tokens": 1}


def test_pictures_are_told_apart_by_their_digest() -> None:
    with running(rules="implicit", media_tokens=20) as server:
        found = [parts(server.ask(pictured(data))) for data in ("QQ==", "QQ==", "Qg==")]
        assert found == [(0, 0, 121), (120, 0, 1), (50, 0, 71)]


def test_the_first_picture_drops_the_messages(server: Running) -> None:
    whole = 50 + 256 + 50
    assert parts(server.ask(pictured("QQ==", **MARK))) == (0, whole, 1)
    assert parts(server.ask(pictured("QQ==", **MARK))) == (whole, 0, 1)
    body = pictured(None)
    body["messages"][0]["content"][0] |= MARK
    assert parts(server.ask(body)) == (0, 50, 51)
    body = pictured("QQ==")
    body["messages"][0]["content"][0] |= MARK
    assert parts(server.ask(body)) == (0, 50, 256 + 51)


def test_pages_that_left_the_cache_come_back() -> None:
    with running(host_mib=8, pages=70) as server:
        asked = prefix("t" * 399)
        cold = server.ask({**asked, "max_tokens": 20})
        for letter in "xyz":
            server.ask(prefix(letter * 900))
        warm = server.ask({**asked, "max_tokens": 20})
        assert (parts(cold), parts(warm)) == ((0, 400, 7), (400, 0, 7))
        assert warm["cacheaudit"]["engine"]["restored_tokens"] > 0
        assert warm["content"] == cold["content"]


def test_pages_on_a_disk_outlive_the_server(tmp_path: Path) -> None:
    asked, answers = {"system": "d" * 400, "max_tokens": 20}, []
    for _ in range(2):
        with running(disk=str(tmp_path / "pages"), rules="implicit") as server:
            answers.append(server.ask(asked))
    restored = [answer["cacheaudit"]["engine"]["restored_tokens"] for answer in answers]
    assert restored == [0, 400]
    assert [parts(answer) for answer in answers] == [(0, 0, 408), (400, 0, 8)]
    assert answers[0]["content"] == answers[1]["content"]


# ── the session of fourteen requests ─────────────────────────────────────────────────────────────


def body_of(step: Step) -> dict[str, Any]:
    """A request of the session, each content block as large as the table says."""
    seen = set[str]()

    def filler(name: str, size: int, *fixed: str) -> str:
        """Text that makes a content block a fifth as large, what surrounds it included."""
        room = size // SCALE - sum(map(len, fixed))
        assert room > 0
        return (name * room)[:room]

    def speaks(role: str) -> int:
        """1 where the speaker changes, which costs a token."""
        new = role not in seen
        seen.clear()
        seen.add(role)
        return int(new)

    def tool(name: str, size: int) -> dict[str, Any]:
        fixed = f'{{"name":"{name}","description":"","input_schema":{{"type":"object"}}}}'
        extra = "x" * speaks("system")
        description = filler(name, size, fixed, extra)
        return {"name": name, "description": description, "input_schema": {"type": "object"}}

    def content(item: Item) -> dict[str, Any]:
        extra = "x" * speaks(item.role)
        marked = MARK if item.marked else {}
        if item.kind == "tool_use":
            fixed = f'{{"id":"{item.name}","name":"f","input":{{"":""}}}}'
            given = {"": filler(item.name, item.tokens, fixed, extra)}
            return {"type": "tool_use", "id": item.name, "name": "f", "input": given, **marked}
        if item.kind == "tool_result":
            result = filler(item.name, item.tokens, f"{item.name}\n", extra)
            return {
                "type": "tool_result", "tool_use_id": item.name, "content": result, **marked
            }  # fmt: skip
        return text(filler(item.name, item.tokens, extra), **marked)

    tools = [tool(name, size) for name, size in step.tools]
    speaks("system")
    system = [text(filler("system", SYSTEM), **MARK)]
    messages: list[dict[str, Any]] = []
    for item in step.items:
        block = content(item)
        if messages and messages[-1]["role"] == item.role:
            messages[-1]["content"].append(block)
        else:
            messages.append({"role": item.role, "content": [block]})
    choice = {"tool_choice": {"type": "tool", "name": "first"}} if step.forced else {}
    return {"tools": tools, "system": system, "messages": messages, "max_tokens": 1, **choice}


@pytest.fixture(scope="module")
def session() -> Iterator[Running]:
    with running(min_cache_tokens=100) as found:
        yield found


def test_every_row_on_the_engine(session: Running) -> None:
    found = []
    for step in steps():
        times = {"x-cacheaudit-now": str(step.at), "x-cacheaudit-began": str(step.at + 2)}
        answer = session.ask(body_of(step), times)
        engine = answer["cacheaudit"]["engine"]
        read, written, uncached = parts(answer)
        assert engine["hit_tokens"] == read
        assert engine["computed_tokens"] == written + uncached
        found.append((read * SCALE, written * SCALE, uncached))
    assert found == [(step.read, step.written, 1) for step in steps()]
    session.pages_are_free()


def test_counting_agrees_with_the_table(session: Running) -> None:
    for step in steps():
        _, found, _ = session.call("/v1/messages/count_tokens", filled(body_of(step)))
        sizes = [size for _, size in step.tools] + [SYSTEM] + [i.tokens for i in step.items]
        assert [count * SCALE for count in found["content_tokens"]] == sizes
        assert found["input_tokens"] == step.total // SCALE + 1


def test_a_whole_answer_is_the_same_from_the_cache(session: Running) -> None:
    step = replace(next(iter(steps())), forced=False)
    body = {**body_of(step), "max_tokens": 24}
    names = ("cold", "warm", "warm")
    ways = [{"x-cacheaudit-workspace": n, "x-cacheaudit-now": "9000"} for n in names]
    answers = [session.ask(body, way) for way in ways]
    assert [a["cacheaudit"]["engine"]["hit_tokens"] > 0 for a in answers] == [False, False, True]
    assert len({a["content"][0]["text"] for a in answers}) == 1
