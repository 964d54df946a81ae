"""Fan-outs that are really sent: by the real SDK, over loopback, to a server with a cache."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Any

import anthropic
import pytest

from cacheaudit import CacheAudit
from cacheaudit.agent.fan_out.send import FanOutResult
from cacheaudit.errors import UsageError
from tests.unit.agent.fan_out.cache_server import CacheScript
from tests.unit.agent.servers import KEY, MODEL, loopback

DOCUMENT = "abcd" * 4_000  # 4,000 tokens on this server
N = 4


def requests(count: int = N, **more: Any) -> list[dict[str, Any]]:
    mark = {"type": "ephemeral"}
    return [
        {
            "model": MODEL,
            "max_tokens": 50,
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": DOCUMENT},
                        {"type": "text", "text": f"{n:04}" * 10, "cache_control": mark},
                    ],
                }
            ],
            **more,
        }
        for n in range(count)
    ]


def send(audit: CacheAudit, script: CacheScript, **settings: Any) -> FanOutResult:
    with (
        loopback(script) as address,
        anthropic.Anthropic(api_key=KEY, base_url=address, max_retries=0) as client,
    ):
        audit.wrap(client)
        return audit.fan_out(
            settings.pop("requests", requests()), client=audit.wrap(client), **settings
        )


def asend(audit: CacheAudit, script: CacheScript, **settings: Any) -> FanOutResult:
    async def main(address: str) -> FanOutResult:
        async with anthropic.AsyncAnthropic(api_key=KEY, base_url=address, max_retries=0) as client:
            given = settings.pop("requests", requests())
            return await audit.afan_out(given, client=audit.wrap(client), **settings)

    with loopback(script) as address:
        return asyncio.run(main(address))


WAYS = pytest.mark.parametrize("way", [send, asend])


@WAYS
@pytest.mark.parametrize(
    ("mark", "order", "counts"),
    [
        (False, False, [(4_010, 0)] * N),
        (True, False, [(4_010, 0)] * N),
        (False, True, [(4_010, 0)] * N),
        (True, True, [(4_010, 0)] + [(10, 4_000)] * (N - 1)),
    ],
)
def test_the_four_cells(
    audit: CacheAudit, way: Any, mark: bool, order: bool, counts: list[tuple[int, int]]
) -> None:
    script = CacheScript(together=1 if order else N)
    found = way(audit, script, mark=mark, order=order)
    assert [(w, r) for w, r, _ in script.counts] == counts
    assert found.cache_write == sum(w for w, _ in counts)
    assert found.cache_read == sum(r for _, r in counts)


@WAYS
def test_responses_come_in_order_and_are_whole(audit: CacheAudit, way: Any) -> None:
    found = way(audit, CacheScript())
    assert [reply.content[0].text for reply in found] == ["hello there"] * N
    assert [(g.leader, g.members) for g in found.groups] == [(0, (1, 2, 3))]


@WAYS
def test_siblings_go_when_the_leader_begins_and_not_when_it_ends(
    audit: CacheAudit, way: Any
) -> None:
    class Slow(CacheScript):
        """The leader's stream ends only when every sibling has arrived."""

        def _frames(self, frames: list[bytes], keys: set[str]) -> Any:
            self._entries |= keys
            yield from frames[:1]
            deadline = time.monotonic() + 10
            while len(self.sent) < N:
                assert time.monotonic() < deadline
                time.sleep(0.002)
            yield from frames[1:]

    script = Slow()
    assert len(way(audit, script)) == N
    assert script.counts[0][:2] == (4_010, 0)
    assert all(counts[:2] == (10, 4_000) for counts in script.counts[1:])


@WAYS
def test_a_warm_up_writes_the_prefix_by_itself(audit: CacheAudit, way: Any) -> None:
    script = CacheScript()
    with audit.session("s"):
        way(audit, script, warm_up=True)
    first, *others = map(json.loads, script.sent)
    assert first["max_tokens"] == 0
    assert len(others) == N
    assert not any(body.get("stream") for body in others)
    assert [c[1] for c in script.counts][1:].count(4_000) == N - 1
    purposes = [c.purpose for s in audit.sessions(["s"]) for c in s.calls]
    assert purposes.count("warm_up") == 1


@WAYS
def test_where_no_warm_up_is_taken_the_leader_goes_first(audit: CacheAudit, way: Any) -> None:
    script = CacheScript()
    forced = requests(tools=[{"name": "f", "input_schema": {}}], tool_choice={"type": "any"})
    way(audit, script, requests=forced, warm_up=True)
    assert [json.loads(body)["max_tokens"] for body in script.sent] == [50] * N


@WAYS
def test_a_leader_that_fails_is_replaced(audit: CacheAudit, way: Any) -> None:
    def fails(body: dict[str, Any]) -> bool:
        return str(body["messages"][0]["content"][1]["text"]).startswith("0000")

    script = CacheScript(fails=fails)
    found = way(audit, script, return_exceptions=True)
    assert isinstance(found[0], anthropic.BadRequestError)
    assert [c[:2] for c in script.counts] == [(4_010, 0), (10, 4_000), (10, 4_000)]
    assert found.cache_read is None
    with pytest.raises(anthropic.BadRequestError):
        way(audit, CacheScript(fails=fails))


@WAYS
def test_when_all_fail_all_are_tried(audit: CacheAudit, way: Any) -> None:
    script = CacheScript(fails=lambda _: True)
    found = way(audit, script, return_exceptions=True)
    assert len(script.sent) == N
    assert all(isinstance(e, anthropic.BadRequestError) for e in found)


@WAYS
def test_no_more_at_once_than_allowed(audit: CacheAudit, way: Any) -> None:
    active, most, lock = 0, 0, threading.Lock()

    class Counting(CacheScript):
        def answer(self, path: str, head: dict[str, str], body: bytes) -> Any:
            nonlocal active, most
            with lock:
                active += 1
                most = max(most, active)
            time.sleep(0.02)
            with lock:
                active -= 1
            return super().answer(path, head, body)

    way(audit, Counting(), requests=requests(10), concurrency=2)
    assert most <= 2


@WAYS
def test_every_request_has_a_lane_of_its_own(audit: CacheAudit, way: Any) -> None:
    with audit.session("s", task="t"):
        way(audit, CacheScript())
    calls = audit.sessions(["s"])[0].calls
    assert len({c.lane for c in calls}) == N
    assert {c.purpose for c in calls} == {"subagent"}
    assert {c.task for c in calls} == {"t"}


def test_the_callers_requests_stay_as_they_are(audit: CacheAudit) -> None:
    given = requests()
    before = json.dumps(given)
    send(audit, CacheScript(), requests=given)
    assert json.dumps(given) == before


def test_responses_of_the_sdk_can_be_sent_again(audit: CacheAudit) -> None:
    first = send(audit, CacheScript())[0]
    again = requests()
    for request in again:
        request["messages"] += [
            {"role": "assistant", "content": first.content},
            {"role": "user", "content": "and then?"},
        ]
    script = CacheScript()
    found = send(audit, script, requests=again)
    assert found.groups[0].tokens > 1_000
    sent = json.loads(script.sent[1])["messages"][1]["content"]
    # Older SDKs send fields along that a server left out.
    said = [{name: value for name, value in block.items() if value is not None} for block in sent]
    assert said == [{"type": "text", "text": "hello there"}]


def test_another_way_to_send(audit: CacheAudit) -> None:
    order: list[str] = []

    def mine(body: Any, began: Any) -> str:
        name = body["messages"][0]["content"][1]["text"][:4]
        order.append(name)
        if began is not None:
            began()
        return str(name)

    found = audit.fan_out(requests(), send=mine)
    assert list(found) == ["0000", "0001", "0002", "0003"]
    assert order[0] == "0000"


def test_a_cancelled_fan_out_sends_no_more(audit: CacheAudit) -> None:
    sent: list[int] = []

    async def mine(body: Any, began: Any) -> None:
        sent.append(1)
        await asyncio.sleep(60)

    async def main() -> None:
        task = asyncio.ensure_future(audit.afan_out(requests(), send=mine))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert len(sent) == 1


def test_no_thread_is_left(audit: CacheAudit) -> None:
    send(audit, CacheScript())
    assert not [t for t in threading.enumerate() if "fan-out" in t.name]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"concurrency": 0}, "concurrency"),
        ({"requests": ["text"]}, "request 0 is str"),
        ({"requests": [{**requests()[0], "stream": True}]}, "asks for a stream"),
    ],
)
def test_what_cannot_be_sent_is_refused(
    audit: CacheAudit, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        send(audit, CacheScript(), **settings)


def test_there_must_be_a_client(audit: CacheAudit) -> None:
    with pytest.raises(UsageError, match="no client"):
        audit.fan_out(requests())
    with anthropic.Anthropic(api_key=KEY) as client:
        with pytest.raises(UsageError, match="other kind"):
            asyncio.run(audit.afan_out(requests(), client=client))
        wrapped = audit.wrap(client)
        assert audit._latest() is wrapped


def test_nothing_to_send(audit: CacheAudit) -> None:
    assert list(send(audit, CacheScript(), requests=[])) == []
    assert list(asend(audit, CacheScript(), requests=[])) == []
