"""Clients by the name of whom they ask; the bundled engine is started and ended."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import anthropic
import pytest

from cacheaudit import CacheAudit
from cacheaudit.agent.engine import LocalEngine
from cacheaudit.errors import CacheAuditError, UsageError
from tests.unit.agent.servers import KEY, MODEL, Reply, Script, loopback

ASK: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 2,
    "messages": [{"role": "user", "content": "hi"}],
}


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        (None, anthropic.Anthropic),
        ("anthropic", anthropic.Anthropic),
        ("foundry", anthropic.AnthropicFoundry),
    ],
)
def test_hosted_ones(audit: CacheAudit, target: str | None, kind: type) -> None:
    more = {"resource": "r"} if target == "foundry" else {}
    with audit.client(target, api_key=KEY, **more) as client:
        assert type(client) is kind
        assert len(client.middleware) == 1


def test_asynchronous_ones(audit: CacheAudit) -> None:
    assert isinstance(audit.client(asynchronous=True, api_key=KEY), anthropic.AsyncAnthropic)


def test_any_address(audit: CacheAudit) -> None:
    with loopback(Script()) as address, audit.client(address, api_key=KEY) as client:
        client.messages.create(**ASK)
    (call,) = [c for s in audit.sessions() for c in s.calls]
    assert call.usage is not None


@pytest.mark.parametrize(
    ("target", "variable", "base"),
    [
        ("openai", "OPENAI_API_KEY", "https://api.openai.com/v1/"),
        ("deepseek", "DEEPSEEK_API_KEY", "https://api.deepseek.com/"),
        ("openrouter", "OPENROUTER_API_KEY", "https://openrouter.ai/api/v1/"),
    ],
)
def test_those_of_openai(
    audit: CacheAudit, monkeypatch: pytest.MonkeyPatch, target: str, variable: str, base: str
) -> None:
    pytest.importorskip("openai")
    monkeypatch.setenv(variable, KEY)
    with audit.client(target) as client:
        assert str(client.base_url).rstrip("/") == base.rstrip("/")
        assert client.api_key == KEY
    chat = {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-6.1",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": "hi"},
            }
        ],
        "usage": {
            "prompt_tokens": 20,
            "completion_tokens": 2,
            "total_tokens": 22,
            "prompt_tokens_details": {"cached_tokens": 8},
        },
    }
    with (
        loopback(Script(Reply(chat))) as address,
        audit.client(target, base_url=f"{address}/v1") as client,
    ):
        client.chat.completions.create(model="gpt-6.1", messages=[{"role": "user", "content": "x"}])
    (call,) = [c for s in audit.sessions() for c in s.calls]
    assert call.usage is not None
    assert call.usage.cache_read == 8


def test_there_is_no_other(audit: CacheAudit) -> None:
    with pytest.raises(UsageError, match="no target 'nobody'"):
        audit.client("nobody")


def test_the_bundled_engine(make: Callable[..., CacheAudit]) -> None:
    audit = make(backend="local")
    client = audit.client()
    with audit.session("s"):
        reply = client.messages.create(**ASK)
    assert reply.usage.output_tokens >= 1
    assert audit.sessions(["s"])[0].calls[0].usage is not None
    engine = audit._engine
    assert engine is not None
    assert audit.client("local").base_url == client.base_url
    assert audit.close()
    assert engine._process.poll() is not None
    client.close()
    assert not [t for t in threading.enumerate() if "engine" in t.name]


def test_an_engine_that_does_not_start() -> None:
    with pytest.raises(CacheAuditError, match="did not start"):
        LocalEngine(["--no-such-option"])
