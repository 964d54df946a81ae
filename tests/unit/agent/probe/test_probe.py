"""Four requests against servers that cache, do not, do not say, or break off."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import count
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.agent.fan_out.cells import four_cells
from cacheaudit.agent.probe.conclude import conclude
from cacheaudit.agent.probe.http import Endpoint, Event, RequestFailedError, endpoint
from cacheaudit.agent.probe.requests import CASES, Probe
from cacheaudit.agent.probe.run import Row, probe
from cacheaudit.agent.probe.service import cost, plan, target
from cacheaudit.errors import UsageError
from cacheaudit.pricing.book import PriceBook
from tests.unit.agent.fan_out.cache_server import CacheScript
from tests.unit.agent.servers import KEY, Reply, Script, events, frame, loopback, message

TEXT = "All of this is public. " * 400
NAMES = list(CASES)


def clock() -> Callable[[], float]:
    ticks = count()
    return lambda: next(ticks) / 8


def made(api: Any = "messages", **more: Any) -> Probe:
    return Probe(model="claude-opus-5", document=TEXT, run="r1", api=api, **more)


def rows_of(script: Script, api: Any = "messages", key: str | None = KEY) -> list[Row]:
    with loopback(script) as address:
        return list(probe(made(api), endpoint(address, api, key), clock()))


def test_requests_differ_in_one_thing_each() -> None:
    bodies = [made().body(case) for case in CASES]
    assert bodies[0] == bodies[1]
    assert bodies[1]["system"] == bodies[2]["system"]
    assert bodies[1]["messages"] != bodies[2]["messages"]
    assert bodies[2]["messages"] == bodies[3]["messages"]
    first, second = (body["system"][0]["text"] for body in bodies[2:])
    assert len(first) == len(second)
    (at,) = [i for i, (a, b) in enumerate(zip(first, second, strict=True)) if a != b]
    assert at < 40
    assert first[:10] == "Run r1\nVer"
    assert all(body["max_tokens"] == 96 for body in bodies)
    assert bodies[0]["system"][0]["cache_control"] == {"type": "ephemeral"}
    hour = made(ttl="1h").body("prepare")
    assert hour["system"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}


def test_a_server_that_caches_prefixes() -> None:
    script = CacheScript()
    rows = rows_of(script)
    size = len(made().prefix()) // 4
    assert [row.case for row in rows] == NAMES
    assert [(row.cache_write, row.cache_read) for row in rows] == [
        (size, 0),
        (0, size),
        (0, size),
        (size, 0),
    ]
    assert all(row.complete and row.stop_reason == "end_turn" for row in rows)
    assert all(row.first_text_s is not None and row.request_s is not None for row in rows)
    found = conclude(rows)
    assert found.verdict == "confirmed"
    assert found.requests == 4


def test_a_server_that_keeps_nothing_is_asked_twice() -> None:
    class Forgetful(CacheScript):
        def _look_up(self, blocks: Any) -> Any:
            return 0, super()._look_up(blocks)[1]

    script = Forgetful()
    rows = rows_of(script)
    assert [row.case for row in rows] == NAMES[:2]
    assert len(script.sent) == 2
    assert conclude(rows).verdict == "not_confirmed"


def test_what_a_server_does_not_say_stays_unknown() -> None:
    quiet = {"input_tokens": 900, "output_tokens": 7}
    script = Script(*[Reply(frames=events(n, usage=quiet)) for n in (1, 2, 3, 4)])
    rows = rows_of(script)
    assert len(rows) == len(script.sent) == 2
    row = rows[1]
    assert (row.cache_read, row.cache_write) == (None, None)
    assert row.output == 7
    assert conclude(rows).verdict == "unknown"


def test_reuse_that_does_not_depend_on_the_beginning_is_no_prefix() -> None:
    said = {"input_tokens": 4, "cache_read_input_tokens": 900, "output_tokens": 7}
    script = Script(*[Reply(frames=events(n, usage=said)) for n in (1, 2, 3, 4)])
    assert conclude(rows_of(script)).verdict == "contradicted"


def test_reuse_by_an_equal_request_only() -> None:
    def reply(read: int) -> Reply:
        used = {"input_tokens": 4, "cache_read_input_tokens": read, "output_tokens": 7}
        return Reply(frames=events(1, usage=used))

    assert conclude(rows_of(Script(reply(0), reply(9), reply(0), reply(0)))).verdict == "partly"


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply({"error": {"type": "authentication_error", "message": KEY}}, 401), "HTTP 401"),
        (Reply({"error": {"message": "no"}}, 404), "HTTP 404"),
        (Reply(b"<html>", 200), "no_json"),
        (Reply(b"[1]", 200), "no_json"),
        (Reply(b"", 302, headers={"location": "http://127.0.0.1:9/"}), "HTTP 302"),
        (Reply(frames=events(1)[:4]), "ended_early"),
        (Reply(frames=events(1)[:4], cut=True), "ended_early"),
        (Reply(frames=[b"data: {\n\n", b"garbage\n\n"]), "ended_early"),
        (
            Reply(
                frames=[
                    *events(1)[:3],
                    frame("error", {"type": "error", "error": {"type": "overloaded_error"}}),
                ]
            ),
            "overloaded_error",
        ),
    ],
)
def test_the_first_failure_is_the_end(reply: Reply, error: str) -> None:
    script = Script(reply)
    (row,) = rows_of(script)
    assert len(script.sent) == 1
    assert not row.complete
    assert row.error is not None
    assert row.error.startswith(error)
    assert KEY not in msgspec.json.encode(row).decode()
    assert conclude([row]).verdict == "incomplete"


def test_known_usage_of_a_broken_stream_is_kept() -> None:
    script = Script(Reply(frames=events(1)[:4]))
    (row,) = rows_of(script)
    assert (row.cache_read, row.cache_write, row.total_input) == (2000, 300, 2340)


def test_a_failure_further_on_keeps_what_was_seen() -> None:
    script = CacheScript()
    with loopback(script) as address:
        server = endpoint(address, "messages", KEY)
        steps = probe(made(), server, clock())
        rows = [next(steps), next(steps)]
        script._fails = lambda _: True
        rows += list(steps)
    assert [row.complete for row in rows] == [True, True, False]
    assert conclude(rows).verdict == "incomplete"


def test_nobody_is_there() -> None:
    server = endpoint("http://127.0.0.1:9", "messages", timeout=2)
    (row,) = probe(made(), server, clock())
    assert row.error == "no_connection"


def test_a_server_that_does_not_stream() -> None:
    used = {"input_tokens": 4, "cache_read_input_tokens": 900, "output_tokens": 7}
    rows = rows_of(Script(*[Reply(message(n, usage=used)) for n in (1, 2, 3, 4)]))
    assert len(rows) == 4
    assert rows[1].cache_read == 900
    assert rows[1].first_text_s is None


def chat(read: int | None) -> Reply:
    details = {} if read is None else {"prompt_tokens_details": {"cached_tokens": read}}
    used = {"prompt_tokens": 2_400, "completion_tokens": 9, "total_tokens": 2_409, **details}

    def event(**more: Any) -> bytes:
        whole = {"object": "chat.completion.chunk", "id": "c", "model": "m", "choices": [], **more}
        return f"data: {json.dumps(whole)}\n\n".encode()

    return Reply(
        frames=[
            event(choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}}]),
            event(choices=[{"index": 0, "delta": {"content": "hi"}}]),
            event(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}]),
            event(usage=used),
            b"data: [DONE]\n\n",
        ]
    )


def test_chat_completions() -> None:
    script = Script(chat(0), chat(2_304), chat(2_304), chat(0))
    rows = rows_of(script, "chat")
    assert [row.cache_read for row in rows] == [0, 2_304, 2_304, 0]
    assert [row.uncached_input for row in rows] == [2_400, 96, 96, 2_400]
    assert all(row.complete and row.first_text_s is not None for row in rows)
    assert conclude(rows).verdict == "confirmed"
    assert script.paths == ["/v1/chat/completions"] * 4
    assert script.heads[0]["authorization"] == f"Bearer {KEY}"
    assert json.loads(script.sent[0])["stream_options"] == {"include_usage": True}


def test_chat_completions_without_details() -> None:
    assert conclude(rows_of(Script(chat(None), chat(None)), "chat")).verdict == "unknown"


@pytest.mark.parametrize(
    ("base", "api", "url"),
    [
        ("https://api.anthropic.com", "messages", "https://api.anthropic.com/v1/messages"),
        ("https://api.openai.com/v1", "chat", "https://api.openai.com/v1/chat/completions"),
        ("https://api.openai.com/v1/", "chat", "https://api.openai.com/v1/chat/completions"),
        (
            "https://api.deepseek.com/anthropic",
            "messages",
            "https://api.deepseek.com/anthropic/v1/messages",
        ),
        ("http://127.0.0.1:80/x/messages", "messages", "http://127.0.0.1:80/x/messages"),
    ],
)
def test_addresses(base: str, api: Any, url: str) -> None:
    assert endpoint(base, api, KEY).url == url


@pytest.mark.parametrize("address", ["ftp://x", "api.anthropic.com", "file:///etc/passwd", ""])
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(UsageError):
        endpoint(address, "messages")


def test_a_key_does_not_travel_in_the_clear() -> None:
    with pytest.raises(UsageError, match="unencrypted"):
        endpoint("http://example.com", "messages", KEY)
    assert KEY not in repr(endpoint("https://example.com", "messages", KEY))


@pytest.mark.parametrize(
    ("base", "api", "key", "is_local"),
    [
        ("https://api.anthropic.com", "messages", "ANTHROPIC_API_KEY", False),
        ("https://api.openai.com/v1", "chat", "OPENAI_API_KEY", False),
        ("https://api.deepseek.com", "chat", "DEEPSEEK_API_KEY", False),
        ("https://api.deepseek.com/anthropic", "messages", "DEEPSEEK_API_KEY", False),
        ("http://localhost:8080", "messages", None, True),
        ("http://127.0.0.1:8000/v1/chat/completions", "chat", None, True),
    ],
)
def test_targets(base: str, api: str, key: str | None, is_local: bool) -> None:
    found = target(base)
    assert (found.api, found.key_name, found.is_local) == (api, key, is_local)


def test_a_target_that_nobody_knows_needs_the_name_of_a_key() -> None:
    with pytest.raises(UsageError, match="which key"):
        target("https://gateway.example.com")
    assert target("https://gateway.example.com", key_name="MY_KEY").key_name == "MY_KEY"


def test_what_it_costs_at_most() -> None:
    found = target("https://api.anthropic.com")
    wanted = plan(found, "claude-opus-5", TEXT, "r1")
    said = cost(found, wanted, PriceBook(), 1_795_996_800.0)
    tokens = round((len(wanted.prefix()) + 36) / 3.6)
    assert said.tokens == tokens
    # Nothing read: four writes at 6.25, four times 96 tokens of output at 25, for a million.
    assert said.cost == 4 * (tokens * Decimal("0.00000625") + 96 * Decimal("0.000025"))
    assert said.minimum == 512
    unknown = plan(found, "claude-unheard-of", TEXT, "r1")
    assert cost(found, unknown, PriceBook(), 1_795_996_800.0).cost is None


def test_a_text_that_is_too_short_costs_nothing() -> None:
    found = target("https://api.anthropic.com")
    with pytest.raises(UsageError, match="keeps nothing under 512"):
        cost(found, plan(found, "claude-opus-5", "short", "r"), PriceBook(), 1_795_996_800.0)
    with pytest.raises(UsageError, match="empty"):
        plan(found, "claude-opus-5", " \n", "r")


def test_the_field_of_the_limit_follows_the_provider() -> None:
    openai = plan(target("https://api.openai.com/v1"), "gpt-6.1", TEXT, "r")
    assert openai.body("prepare")["max_completion_tokens"] == 96
    deepseek = plan(target("https://api.deepseek.com"), "deepseek-chat", TEXT, "r")
    assert deepseek.body("prepare")["max_tokens"] == 96


maybe = st.one_of(st.none(), st.integers(0, 10_000))
drawn_rows = st.lists(st.tuples(maybe, maybe, st.booleans()), min_size=1, max_size=4)


class Scripted:
    """A server that says what it was told to say, or fails."""

    def __init__(self, rows: list[tuple[int | None, int | None, bool]]) -> None:
        self._rows = iter(rows)
        self.asked = 0

    def events(self, body: Any, tick: Callable[[], float]) -> Iterator[Event]:
        self.asked += 1
        read, write, fails = next(self._rows, (None, None, True))
        if fails:
            raise RequestFailedError("HTTP 500")
        used: dict[str, Any] = {"input_tokens": 3, "output_tokens": 1}
        if read is not None:
            used["cache_read_input_tokens"] = read
        if write is not None:
            used["cache_creation_input_tokens"] = write
        yield Event(tick(), message(1, usage=used))


@given(drawn_rows)
def test_whatever_a_server_says(rows: list[tuple[int | None, int | None, bool]]) -> None:
    server = Scripted(rows)
    found = list(probe(made(), server, clock()))
    assert server.asked == len(found) <= 4
    for row in found[:-1]:
        assert row.complete
    if len(found) > 2:
        assert found[1].cache_read
    for row, (read, write, fails) in zip(found, rows, strict=False):
        assert (row.cache_read, row.cache_write) == ((None, None) if fails else (read, write))
    verdict = conclude(found).verdict
    if verdict == "confirmed":
        assert found[2].cache_read > found[3].cache_read  # type: ignore[operator]


def test_the_four_cells_of_a_fan_out() -> None:
    size = len(made().prefix()) // 4

    class Patient(CacheScript):
        """Cells that do not wait send all at once: three must be there before one is answered."""

        def answer(self, path: str, head: Any, body: bytes) -> Any:
            import threading

            waits = b"-waiting" in body
            if not waits and self._barrier.parties == 1:
                self._barrier = threading.Barrier(3)
            elif waits and self._barrier.parties == 3:
                self._barrier = threading.Barrier(1)
            return super().answer(path, head, body)

    with loopback(Patient()) as address:
        server: Endpoint = endpoint(address, "messages")
        cells = list(four_cells(made(), server, clock()))
    shares = [(c.cache_write or 0) // size for c in cells]
    assert shares == [3, 3, 3, 1]
    assert [(c.cache_read or 0) // size for c in cells] == [0, 0, 0, 2]
    assert all(row.complete for cell in cells for row in cell.rows)
