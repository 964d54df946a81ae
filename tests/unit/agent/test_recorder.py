"""The queue: bounded, counted, never in the caller's way; and what becomes of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from cacheaudit import CacheAudit
from cacheaudit.agent.recorder import Limits
from cacheaudit.model.call import Call
from cacheaudit.store import Entry, Store, WriteCount, open_store
from tests.unit.agent.servers import MODEL, Script, async_client, client

ASK: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 16,
    "messages": [{"role": "user", "content": "hello"}],
}


class Held:
    """A store that does nothing until it is let go."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.reached = threading.Event()
        self.go = threading.Event()

    def commit(self, batch: Sequence[Entry]) -> WriteCount:
        self.reached.set()
        assert self.go.wait(60)
        return self._store.commit(batch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Held:
    store = Held(open_store(str(tmp_path / "usage.db")))
    monkeypatch.setattr(CacheAudit, "_open", lambda _: store)
    return store


def test_the_caller_never_waits_for_the_store(make: Callable[..., CacheAudit], held: Held) -> None:
    audit = make(limits=Limits(quiet=0))
    wrapped = audit.wrap(client(Script()))
    wrapped.messages.create(**ASK)
    assert held.reached.wait(30)
    for _ in range(20):
        wrapped.messages.create(**ASK)
    assert not held.go.is_set()
    assert audit.state.written == 0
    assert audit.state.waiting == 21
    assert audit.flush(0.05) is False
    held.go.set()
    assert audit.flush()
    assert (audit.state.written, audit.state.waiting) == (21, 0)


def test_too_many_calls_are_counted_and_left_out(
    make: Callable[..., CacheAudit], held: Held
) -> None:
    audit = make(limits=Limits(calls=5, quiet=0))
    wrapped = audit.wrap(client(Script()))
    for _ in range(12):
        assert wrapped.messages.create(**ASK).content[0].text == "hello there"
    held.go.set()
    assert audit.flush()
    state = audit.state
    assert (state.written, state.dropped_calls, state.waiting) == (5, 7, 0)
    wrapped.messages.create(**ASK)
    assert audit.flush()
    assert audit.state.written == 6


def test_too_many_bytes_cost_prompts_and_no_calls(
    make: Callable[..., CacheAudit], held: Held
) -> None:
    script = Script()
    audit = make(limits=Limits(body_bytes=500, quiet=0, linger=0))
    wrapped = audit.wrap(client(script))
    with audit.session("s") as s:
        wrapped.messages.create(**ASK)
        assert held.reached.wait(30)  # the writer is stuck: its body is read, the others wait
        for _ in range(8):
            wrapped.messages.create(**ASK)
    size = len(script.sent[0])
    fitting = 1 + 500 // size
    held.go.set()
    calls = s.calls()
    assert len(calls) == 9
    assert sum(call.prompt is not None for call in calls) == fitting
    assert all(call.usage is not None for call in calls)
    assert audit.state.dropped_bodies == 9 - fitting
    with audit.session("s"):
        wrapped.messages.create(**ASK)
    assert s.calls()[-1].prompt is not None


def test_the_report_says_what_was_left_out(make: Callable[..., CacheAudit], held: Held) -> None:
    audit = make(limits=Limits(calls=2, quiet=0))
    wrapped = audit.wrap(client(Script()))
    with audit.session("s") as s:
        for _ in range(3):
            wrapped.messages.create(**ASK)
    held.go.set()
    assert "1 call not recorded: too many waited" in s.report()


class Failing:
    """A store that refuses what it is told to refuse."""

    def __init__(self, store: Store, refuse: Callable[[Sequence[Entry]], bool]) -> None:
        self._store = store
        self._refuse = refuse

    def commit(self, batch: Sequence[Entry]) -> WriteCount:
        if self._refuse(batch):
            raise OSError("disk on fire")
        return self._store.commit(batch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def failing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuse: Callable[[Sequence[Entry]], bool]
) -> None:
    store = Failing(open_store(str(tmp_path / "usage.db")), refuse)
    monkeypatch.setattr(CacheAudit, "_open", lambda _: store)
    monkeypatch.setattr("cacheaudit.agent.ledger._PATIENCE", (0.0, 0.0, 0.0))


def test_a_store_in_trouble_gets_the_calls_later(
    make: Callable[..., CacheAudit], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = iter([True, True, True])
    failing(tmp_path, monkeypatch, lambda _: next(refusals, False))
    audit = make()
    with audit.session("s") as s:
        audit.wrap(client(Script())).messages.create(**ASK)
    assert len(s.calls()) == 1
    assert (audit.state.lost, audit.state.faults) == (0, {"store:OSError": 3})


def test_one_bad_call_costs_no_other(
    make: Callable[..., CacheAudit], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(tmp_path, monkeypatch, lambda batch: any(e.call.id == "msg_0003" for e in batch))
    audit = make(limits=Limits(quiet=0.2))
    wrapped = audit.wrap(client(Script()))
    with audit.session("s") as s:
        for _ in range(6):
            wrapped.messages.create(**ASK)
    assert [call.id for call in s.calls()] == [f"msg_{n:04}" for n in (1, 2, 4, 5, 6)]
    assert audit.state.lost == 1


def test_a_store_that_never_opens_is_told_and_costs_nothing(
    make: Callable[..., CacheAudit], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cacheaudit.agent.ledger._PATIENCE", ())
    audit = make(db=tmp_path)  # a folder is no database
    wrapped = audit.wrap(client(Script()))
    assert wrapped.messages.create(**ASK).content[0].text == "hello there"
    audit.flush()
    assert audit.state.lost == 1
    assert set(audit.state.faults) == {"store:StoreError"}


def test_sixteen_threads(make: Callable[..., CacheAudit]) -> None:
    audit = make()
    wrapped = audit.wrap(client(Script()))
    start = threading.Barrier(16)

    def work(number: int) -> None:
        start.wait()
        with audit.session(f"s{number}"):
            for turn in range(20):
                said = [{"role": "user", "content": f"{number} {turn}"}]
                wrapped.messages.create(model=MODEL, max_tokens=1, messages=said)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = {session.id: session for session in audit.sessions()}
    assert {name: len(s.calls) for name, s in found.items()} == {f"s{n}": 20 for n in range(16)}
    assert audit.state.faults == {}
    sizes = [len(call.prompt.blocks) for s in found.values() for call in s.calls if call.prompt]
    assert sizes == [1] * 320


def test_a_thousand_concurrent_calls(make: Callable[..., CacheAudit]) -> None:
    audit = make()
    wrapped = audit.wrap(async_client(Script()))

    async def one(number: int) -> int:
        async with audit.session(f"s{number % 10}", fresh=True):
            said = [{"role": "user", "content": f"question {number}"}]
            ask = {"model": MODEL, "max_tokens": 1, "messages": said}
            if number % 2:
                return (await wrapped.messages.create(**ask)).usage.output_tokens
            async with wrapped.messages.stream(**ask) as stream:
                return (await stream.get_final_message()).usage.output_tokens

    async def run() -> list[int]:
        return await asyncio.gather(*(one(n) for n in range(1000)))

    assert asyncio.run(run()) == [12] * 1000
    sessions = audit.sessions()
    assert sorted(len(s.calls) for s in sessions) == [100] * 10
    usages = [call.usage for s in sessions for call in s.calls]
    assert sum(u.total_input or 0 for u in usages if u) == 1000 * 2340
    assert sum(u.output or 0 for u in usages if u) == 12_000
    state = audit.state
    assert (state.waiting, state.dropped_calls, state.dropped_bodies) == (0, 0, 0)
    assert state.faults == {}


def test_after_closing_it_begins_anew(audit: CacheAudit) -> None:
    wrapped = audit.wrap(client(Script()))
    with audit.session("s") as s:
        wrapped.messages.create(**ASK)
        assert audit.close()
        assert not [t for t in threading.enumerate() if t.name == "cacheaudit-writer"]
        wrapped.messages.create(**ASK)
    assert len(s.calls()) == 2


def test_closing_writes_what_running_streams_have_said(audit: CacheAudit) -> None:
    with audit.session("s") as s:
        stream = audit.wrap(client(Script())).messages.create(**ASK, stream=True)
        iterator = iter(stream)
        next(iterator)
        assert audit.close()
        (call,) = s.calls()
        assert call.usage is not None
        assert (call.usage.cache_read, call.extra["unfinished"]) == (2000, True)
        list(iterator)
    (call,) = s.calls()
    assert call.usage is not None
    assert call.usage.output == 12


def test_nothing_is_started_before_the_first_call(audit: CacheAudit, tmp_path: Path) -> None:
    audit.wrap(client(Script()))
    assert audit.flush()
    assert not [t for t in threading.enumerate() if t.name == "cacheaudit-writer"]
    assert not (tmp_path / "usage.db").exists()


def test_calls_come_to_the_observer(make: Callable[..., CacheAudit]) -> None:
    seen: list[str] = []
    audit = make(on_call=lambda call: seen.append(call.id))
    wrapped = audit.wrap(client(Script()))
    wrapped.messages.create(**ASK)
    wrapped.messages.create(**ASK)
    assert audit.flush()
    assert seen == ["msg_0001", "msg_0002"]


def test_text_of_prompts_is_kept_only_when_asked_for(
    make: Callable[..., CacheAudit], tmp_path: Path
) -> None:
    secret = "the wording of a prompt that nobody else should read"
    ask = {**ASK, "messages": [{"role": "user", "content": secret}]}
    for name, keep in (("without.db", False), ("with.db", True)):
        audit = make(db=tmp_path / name, store_text=keep)
        audit.wrap(client(Script())).messages.create(**ask)
        assert audit.close()
        data = b"".join(f.read_bytes() for f in tmp_path.glob(f"{name}*"))
        assert (secret.encode() in data) is keep
        assert b"sk-ant-not-a-real-key" not in data


class Counted:
    """A store that counts its transactions."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.sizes: list[int] = []
        self.wrote = threading.Event()

    def commit(self, batch: Sequence[Entry]) -> WriteCount:
        self.sizes.append(len(batch))
        done = self._store.commit(batch)
        self.wrote.set()
        return done

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_calls_one_by_one_are_written_together_and_never_wait_for_long(
    make: Callable[..., CacheAudit], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Counted(open_store(str(tmp_path / "usage.db")))
    monkeypatch.setattr(CacheAudit, "_open", lambda _: store)
    told: list[str] = []
    heard = threading.Semaphore(0)

    def hear(call: Call) -> None:
        told.append(call.id)
        heard.release()

    audit = make(limits=Limits(quiet=0, linger=3_600), on_call=hear)
    wrapped = audit.wrap(client(Script()))
    for number in range(4):
        wrapped.messages.create(**ASK)
        assert heard.acquire(timeout=30)  # made at once, and told of
        assert len(told) == number + 1
    assert store.sizes == []
    assert audit.flush()
    assert store.sizes == [4]
    brisk = make(limits=Limits(quiet=0, linger=0.01))
    store.wrote.clear()
    brisk.wrap(client(Script())).messages.create(**ASK)
    assert store.wrote.wait(30)  # nobody asked for it


def test_sizes_are_there_for_whoever_is_told_and_for_whoever_reads(
    make: Callable[..., CacheAudit],
) -> None:
    told: list[Call] = []
    audit = make(on_call=told.append)
    with audit.session("s") as s:
        audit.wrap(client(Script())).messages.create(**ASK)
    (stored,) = s.calls()
    for call in (*told, stored):
        assert call.prompt is not None
        assert call.usage is not None
        assert call.prompt.tokens == call.usage.prompt_size
        assert {block.tokens_origin for block in call.prompt.blocks} == {"estimated"}


def test_bodies_that_pile_up_are_held_once(make: Callable[..., CacheAudit], held: Held) -> None:
    """Ten requests of 40 KB would not fit; they are the same but for their ends."""
    script = Script()
    audit = make(limits=Limits(body_bytes=100_000, quiet=0, linger=0))
    wrapped = audit.wrap(client(script))
    with audit.session("s") as s:
        wrapped.messages.create(**ASK)
        assert held.reached.wait(30)  # the writer is stuck: all that follows waits
        for number in range(10):
            said = [{"role": "user", "content": "x" * 40_000}]
            said += [
                {"role": "assistant", "content": "so"},
                {"role": "user", "content": "y"},
            ] * number
            wrapped.messages.create(**{**ASK, "messages": said})
    held.go.set()
    calls = s.calls()
    assert audit.state.dropped_bodies == 0
    assert [len(call.prompt.blocks) if call.prompt else None for call in calls] == [
        1, *(1 + 2 * number for number in range(10))
    ]  # fmt: skip
