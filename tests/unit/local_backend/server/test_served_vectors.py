"""Every documented case and random sessions over HTTP: by hand, and as the simulator has them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings

from tests.unit.local_backend.rules.test_against_simulator import (
    Figures,
    Sent,
    by_simulator,
    rendered,
    sessions,
)
from tests.unit.local_backend.server.running import Running, filled, running

MARK = {"cache_control": {"type": "ephemeral"}}
HOUR = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
SIZE = 10
_workspaces = itertools.count()


class Talk:
    """Requests of one workspace, so that cases do not meet."""

    def __init__(self, server: Running, **headers: str) -> None:
        self._server = server
        self._headers = {"x-cacheaudit-workspace": f"w{next(_workspaces)}", **headers}

    def send(
        self, body: dict[str, Any], at: float | None = None, began: float | None = None
    ) -> Any:
        times = {"x-cacheaudit-now": at, "x-cacheaudit-began": began}
        given_ = {name: str(value) for name, value in times.items() if value is not None}
        return self._server.call("/v1/messages", filled(body), {**self._headers, **given_})[1]

    def usage(
        self, body: dict[str, Any], at: float | None = None, began: float | None = None
    ) -> tuple[int, int, int, int]:
        """Read, written for five minutes, for an hour, and neither."""
        return parts(self.send(body, at, began))


def parts(answer: dict[str, Any]) -> tuple[int, int, int, int]:
    usage = answer["usage"]
    written = usage["cache_creation"]
    figures = (
        usage["cache_read_input_tokens"],
        written["ephemeral_5m_input_tokens"],
        written["ephemeral_1h_input_tokens"],
        usage["input_tokens"],
    )
    assert figures[1] + figures[2] == usage["cache_creation_input_tokens"]
    engine = answer["cacheaudit"]["engine"]
    assert (
        sum(figures) == engine["prompt_tokens"] == engine["hit_tokens"] + engine["computed_tokens"]
    )
    assert engine["hit_tokens"] == figures[0]
    return figures


def text(tokens: int, name: str = "x", **more: Any) -> dict[str, Any]:
    """A content block of so many tokens, apart from one where its turn begins."""
    return {"type": "text", "text": (name * tokens)[:tokens], **more}


def user(*blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(blocks)}], "max_tokens": 1, **more}


def texts(count: int, marked: list[int]) -> dict[str, Any]:
    """A turn of ``count`` blocks of ten tokens each; places count from 1, as in the vectors."""
    blocks = [text(SIZE - (n == 0), f"{n:02}") for n in range(count)]
    for place in marked:
        blocks[place - 1] |= MARK
    return user(*blocks)


@pytest.fixture(scope="module")
def served() -> Iterator[Running]:
    with running(any_model=True, media_tokens=50, pages=120_000) as found:
        yield found
        found.pages_are_free()


@pytest.fixture(scope="module")
def vectors(shared: Path) -> dict[str, dict[str, Any]]:
    known = yaml.safe_load((shared / "facts/provider_rules.yaml").read_text())
    return {vector["id"]: vector for vector in known["test_vectors"]}


@pytest.mark.shared
def test_lookback(served: Running, vectors: dict[str, Any]) -> None:
    steps = vectors["lookback-doc"]["steps"]
    second = vectors["lookback-second-bp"]["step"]
    talk, other = Talk(served), Talk(served)
    for step in steps:
        read, five, _, left = talk.usage(texts(step["blocks"], step["bp"]))
        assert read == SIZE * (step["read_at"] or 0)
        assert (read + five, left) == (SIZE * step["write_at"][0], 1)
    for step in steps[:2]:
        other.usage(texts(step["blocks"], step["bp"]))
    assert other.usage(texts(second["blocks"], second["bp"])) == (150, 200, 0, 1)


@pytest.mark.shared
def test_a_volatile_block_behind_the_marker(served: Running, vectors: dict[str, Any]) -> None:
    assert "bp on 5: reads from request 2" in vectors["volatile-suffix"]["steps"]

    def found(mark: int) -> list[int]:
        talk, reads = Talk(served), []
        for name in "abc":
            body = texts(6, [mark])
            body["messages"][0]["content"][5]["text"] = name * SIZE
            reads.append(talk.usage(body)[0])
        return reads

    assert found(6) == [0, 0, 0]
    assert found(5) == [0, 50, 50]


@pytest.mark.shared
def test_runs_of_calls_are_one_position(served: Running, vectors: dict[str, Any]) -> None:
    assert "positions +2, hit" in vectors["lookback-tool-run"]["steps"]
    names = [f"t{n}" for n in range(15)]
    calls = [{"type": "tool_use", "id": n, "name": "f", "input": {}} for n in names]
    results: list[dict[str, Any]] = [
        {"type": "tool_result", "tool_use_id": n, "content": "ok"} for n in names
    ]
    results[-1] |= MARK
    first = user(text(SIZE, "q", **MARK))
    grown = {
        "messages": [
            {"role": "user", "content": [text(SIZE, "q")]},
            {"role": "assistant", "content": calls},
            {"role": "user", "content": results},
        ]
    }

    def read_from(server: Running) -> int:
        talk = Talk(server)
        talk.usage(first)
        return talk.usage(grown)[0]

    assert read_from(served) == 1 + SIZE
    with running(collapse_runs=False) as apart:
        assert read_from(apart) == 0


@pytest.mark.shared
def test_both_lifetimes(served: Running, vectors: dict[str, Any]) -> None:
    wanted = vectors["mixed-ttl"]["usage"]
    read, hour = wanted["cache_read"], wanted["write_1h"]
    five, left = wanted["write_5m"], wanted["input_tokens"]
    talk = Talk(served)
    front = text(read - 1, "r", **HOUR)
    assert talk.usage(user(front)) == (0, 0, read, 1)
    # The token that lets the model speak is one of those that are neither.
    grown = user(front, text(hour, "h", **HOUR), text(five, "f", **MARK), text(left - 1, "u"))
    assert talk.usage(grown) == (read, five, hour, left)


@pytest.mark.shared
def test_lifetimes_count_from_the_start(served: Running, vectors: dict[str, Any]) -> None:
    vector = vectors["ttl-start-clock"]
    for at, hit in ((vector["next_start_s"], True), (vector["next_start_miss_s"], False)):
        talk = Talk(served)
        talk.usage(texts(3, [3]), vector["t0"], vector["generation_s"])
        answer = talk.send(texts(3, [3]), at)
        assert parts(answer) == ((30, 0, 0, 1) if hit else (0, 30, 0, 1))
        assert answer["cacheaudit"]["miss"] == (None if hit else "expired")


@pytest.mark.shared
def test_keeping_alive(served: Running, vectors: dict[str, Any]) -> None:
    vector = vectors["keepalive-measured"]
    for pings, hit in (([vector["ping_s"]], True), ([], vector["control_hit"])):
        talk = Talk(served)
        reads = [talk.usage(texts(3, [3]), at)[0] for at in (0, *pings, vector["read_s"])]
        assert (reads[-1] == 30) is hit


@pytest.mark.shared
def test_warming_up(served: Running, vectors: dict[str, Any]) -> None:
    wanted = vectors["prewarm"]["usage"]
    talk = Talk(served)
    shared = [text(wanted["write_5m"] - 1, "s", **MARK)]
    body = {**user(text(wanted["input_tokens"] - 2, "q")), "system": shared, "max_tokens": 0}
    answer = talk.send(body)
    assert parts(answer) == (0, wanted["write_5m"], 0, wanted["input_tokens"])
    assert (answer["content"], answer["usage"]["output_tokens"]) == ([], wanted["output_tokens"])
    assert talk.usage({**body, "max_tokens": 1})[0] == wanted["write_5m"]


@pytest.mark.shared
def test_a_common_beginning(vectors: dict[str, Any]) -> None:
    assert "request 3 hits A" in vectors["deepseek-common-prefix"]["steps"]
    with running(rules="deepseek") as server:
        # Two units of 64 tokens that all have, and one of its own.
        found = [server.ask(user(text(127, "a"), text(64, name)))["usage"] for name in "bcd"]
        assert [usage["cache_read_input_tokens"] for usage in found] == [0, 0, 128]


def test_the_marked_block_is_looked_at_first(served: Running) -> None:
    """Twenty positions with the marked one: nineteen more blocks still hit, twenty do not."""
    for more, read in ((19, 50), (20, 0)):
        talk = Talk(served)
        talk.usage(texts(5, [5]))
        assert talk.usage(texts(5 + more, [5 + more]))[0] == read


@pytest.mark.parametrize(
    ("model", "least"),
    [("claude-opus-5", 512), ("claude-sonnet-5", 1024), ("claude-opus-4-6", 4096)],
)
def test_the_minimum_is_the_published_one(served: Running, model: str, least: int) -> None:
    for size, is_kept in ((least - 1, False), (least, True)):
        talk = Talk(served)
        body = {**user(text(size - 1, "m", **MARK)), "model": model}
        answers = [talk.send(body) for _ in range(2)]
        assert parts(answers[1])[0] == (size if is_kept else 0)
        assert answers[0]["cacheaudit"]["miss"] == (
            "nothing_stored" if is_kept else "below_minimum"
        )


def test_entries_of_an_hour_before_those_of_five_minutes(served: Running) -> None:
    """After five minutes what stands behind the entry of an hour is written again."""
    talk = Talk(served)
    body = user(text(99, "h", **HOUR), text(50, "f", **MARK))
    assert talk.usage(body, 0) == (0, 50, 100, 1)
    assert talk.usage(body, 200) == (150, 0, 0, 1)
    assert talk.usage(body, 501) == (100, 50, 0, 1)
    assert talk.usage(body, 501 + 3599) == (100, 50, 0, 1)
    assert talk.usage(body, 501 + 3599 + 3600) == (0, 50, 100, 1)


def over_http(server: Running, sent: list[Sent]) -> list[Figures]:
    talk, found = Talk(server), list[Figures]()
    for one in sent:
        answer = talk.send(one.body, one.at, one.first)
        if answer["type"] == "error":
            assert answer["error"]["type"] == "invalid_request_error"
            found.append("refused")
            continue
        read, five, hour, left = parts(answer)
        found.append((read, five, hour, left))
    return found


def brief(sent: Sent) -> Sent:
    """The same with a short answer, which thinking by a budget would not allow."""
    body = {**sent.body, "max_tokens": 1}
    if body.get("thinking", {}).get("type") == "enabled":
        body["thinking"] = {"type": "adaptive", "display": "omitted"}
    return Sent(body, sent.at, sent.first)


@given(sessions())
@settings(max_examples=15)
def test_sessions_over_http_are_as_the_simulator_has_them(
    served: Running, sent: list[Sent]
) -> None:
    sent = [brief(one) for one in sent]
    prompts = rendered(sent)
    wanted: list[Figures] = [
        f if isinstance(f, str) else (*f[:3], f[3] + p.tail)
        for f, p in zip(by_simulator(sent, prompts, runs=True), prompts, strict=True)
    ]
    assert over_http(served, sent) == wanted
