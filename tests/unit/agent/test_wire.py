"""``observe`` changes no byte of a request and nothing that belongs to the caller."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from typing import Any

import anthropic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit import CacheAudit
from tests.unit.agent.servers import (
    HTTP,
    KEY,
    MODEL,
    Reply,
    Script,
    async_client,
    client,
    loopback,
    message,
)
from tests.unit.agent.test_styles import ASYNC, SYNC

# What the SDK itself adds as soon as a client has any middleware.
OF_THE_SDK = {"x-stainless-raw-response"}


@pytest.mark.parametrize("style", SYNC, ids=lambda f: f.__name__)
@pytest.mark.parametrize("mode", ["observe", "auto"])
def test_the_bytes_are_the_same(make: Callable[..., CacheAudit], style: Any, mode: str) -> None:
    bare, recorded = Script(), Script()
    style(client(bare))
    style(make(mode=mode).wrap(client(recorded)))
    assert recorded.sent == bare.sent
    assert recorded.paths == bare.paths


@pytest.mark.parametrize("style", ASYNC, ids=lambda f: f.__name__)
def test_the_bytes_are_the_same_async(audit: CacheAudit, style: Any) -> None:
    bare, recorded = Script(), Script()

    async def run() -> None:
        await style(async_client(bare))
        await style(audit.wrap(async_client(recorded)))

    asyncio.run(run())
    assert recorded.sent == bare.sent


@pytest.mark.parametrize("style", SYNC, ids=lambda f: f.__name__)
def test_the_headers_are_the_same_but_for_one_of_the_sdk(audit: CacheAudit, style: Any) -> None:
    heads = []
    for wrap in (lambda c: c, audit.wrap):
        script = Script()
        with loopback(script) as address, anthropic.Anthropic(api_key=KEY, base_url=address) as c:
            style(wrap(c))
        heads.append({k: v for k, v in script.heads[0].items() if k not in (*OF_THE_SDK, "host")})
    assert heads[0] == heads[1]
    assert any(KEY in value for value in heads[0].values())


@pytest.mark.parametrize("style", SYNC, ids=lambda f: f.__name__)
def test_the_answer_is_the_same(audit: CacheAudit, style: Any) -> None:
    assert style(audit.wrap(client(Script()))) == style(client(Script()))


def test_the_raw_bytes_of_a_stream_are_the_same(audit: CacheAudit) -> None:
    seen = []
    for wrap in (lambda c: c, audit.wrap):
        ask = {"model": MODEL, "max_tokens": 4, "messages": [{"role": "user", "content": "x"}]}
        streaming = wrap(client(Script())).messages.with_streaming_response
        with streaming.create(**ask, stream=True) as response:
            seen.append(list(response.iter_bytes()))
    assert seen[0] == seen[1]


TEXT = st.text(max_size=20)
BLOCK = st.fixed_dictionaries({"type": st.just("text"), "text": TEXT})
TURN = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "assistant"]),
        "content": TEXT | st.lists(BLOCK, max_size=3),
    }
)
BODY = st.fixed_dictionaries(
    {"messages": st.lists(TURN, max_size=4)},
    optional={
        "system": TEXT | st.lists(BLOCK, max_size=2),
        "tools": st.lists(
            st.fixed_dictionaries(
                {"name": TEXT, "input_schema": st.dictionaries(TEXT, TEXT, max_size=2)}
            ),
            max_size=2,
        ),
        "extra_body": st.dictionaries(TEXT, TEXT, max_size=2),
    },
)


def test_whatever_is_sent_is_sent_alike_and_left_alone(audit: CacheAudit) -> None:
    bare, recorded = Script(), Script()
    plain, wrapped = client(bare), audit.wrap(client(recorded))

    @given(BODY)
    def check(body: dict[str, Any]) -> None:
        given_body = copy.deepcopy(body)
        for script, one in ((bare, plain), (recorded, wrapped)):
            script.sent.clear()
            one.messages.create(model=MODEL, max_tokens=1, **body)
        assert recorded.sent == bare.sent
        assert body == given_body

    check()
    assert audit.state.faults == {}


def test_a_request_that_the_caller_changes_later_is_recorded_as_sent(audit: CacheAudit) -> None:
    history: list[Any] = [{"role": "user", "content": "first"}]
    wrapped = audit.wrap(client(Script()))
    with audit.session("s") as s:
        wrapped.messages.create(model=MODEL, max_tokens=1, messages=history)
        history[0]["content"] = "changed behind the recorder's back"
        history.append({"role": "user", "content": "more"})
    (call,) = s.calls()
    assert call.prompt is not None
    assert len(call.prompt.blocks) == 1
    assert call.prompt.blocks[0].size == len(b'{"text":"first","type":"text","role":"user"}')


def test_an_error_of_the_server_reaches_the_caller_unchanged(audit: CacheAudit) -> None:
    body = {"type": "error", "error": {"type": "invalid_request_error", "message": "no such"}}
    found = []
    for wrap in (lambda c: c, audit.wrap):
        wrapped = wrap(client(Script(Reply(body, 400)), max_retries=0))
        with pytest.raises(anthropic.BadRequestError) as caught:
            wrapped.messages.create(model=MODEL, max_tokens=1, messages=[])
        found.append((str(caught.value), caught.value.body, caught.value.status_code))
    assert found[0] == found[1]


def test_the_transport_changes_nothing_either(audit: CacheAudit) -> None:
    sent = []
    for wrap in (lambda t: t, audit.transport):
        script = Script()
        inner = HTTP.MockTransport(
            lambda r, s=script: HTTP.Response(
                200,
                json=message(),
                headers={
                    "x": s.answer(r.url.path, dict(r.headers), r.content).headers["content-type"]
                },
            )
        )
        with HTTP.Client(transport=wrap(inner)) as http:
            http.post(
                "https://api.anthropic.com/v1/messages", json={"model": MODEL, "messages": []}
            )
        sent.append((script.sent, script.heads, script.paths))
    assert sent[0] == sent[1]
