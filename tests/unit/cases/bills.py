"""The smallest file of each format that a case needs, and what the command line makes of it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from tests.unit.cli.helpers import run

WHEN = "2026-10-05T10:00:00Z"
API = "https://api.anthropic.com/v1/messages"


class Bill(msgspec.Struct, frozen=True):
    """Totals that `usage` and `audit` agree on."""

    fresh: int | None
    read: int | None
    w5: int | None
    w1: int | None
    other: int | None
    out: int | None
    total: int | None
    calls: int
    cost: Decimal | None
    problems: dict[str, int]

    @property
    def written(self) -> int:
        """All writes, whatever their lifetime."""
        return (self.w5 or 0) + (self.w1 or 0) + (self.other or 0)

    @property
    def parts(self) -> tuple[int | None, int | None, int, int | None]:
        """Uncached input, reads, writes, output."""
        return self.fresh, self.read, self.written, self.out


def bill(home: Path, *paths: Path, options: tuple[str, ...] = ()) -> Bill:
    """Run both commands over files; their totals must be the same."""
    found = []
    for command in ("usage", "audit"):
        result = run(home, command, *map(str, paths), "--json", *options)
        assert result.exit_code == 0, result.output
        assert not result.stderr, result.stderr
        found.append(json.loads(result.stdout))
    usage, audit = found
    assert usage["totals"] == audit["totals"]
    totals, writes = usage["totals"], usage["totals"]["cache_write"]
    cost = totals["cost"]["computed"]
    return Bill(
        totals["uncached_input"],
        totals["cache_read"],
        writes["5m"],
        writes["1h"],
        writes["other"],
        totals["output"],
        totals["total_input"],
        totals["calls"],
        None if cost is None else Decimal(cost),
        {row["kind"]: row["count"] for row in usage["data_quality"]},
    )


def lines(path: Path, records: Iterable[Any]) -> Path:
    """Write one JSON object a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def prices(home: Path, provider: str, model: str, **rates: str) -> tuple[str, ...]:
    """Write a price file; return the options that name it."""
    rows = [f'provider = "{provider}"', f'model = "{model}"']
    rows += [f'{unit} = "{rate}"' for unit, rate in rates.items()]
    path = home / "prices.toml"
    path.write_text("checked = 2026-11-30\n[[prices]]\n" + "\n".join(rows) + "\n")
    return "--prices", str(path)


def messages_usage(fresh: int, read: int, write: int, out: int, **more: Any) -> dict[str, Any]:
    """Usage as the Messages API sends it."""
    return {
        "input_tokens": fresh,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": write,
        "output_tokens": out,
        **more,
    }


def capture(
    path: Path,
    *responses: Any,
    url: str = API,
    model: str = "claude-opus-4-8",
    request: dict[str, Any] | None = None,
) -> Path:
    """Write a raw capture: one exchange a line."""
    body = request or {"model": model, "messages": [{"role": "user", "content": "x"}]}
    exchange = {"request_time": WHEN, "duration_ms": 900}
    return lines(
        path,
        [
            {
                **exchange,
                "request": {"method": "POST", "url": url, "body": body},
                "response": {"status": 200, "body": response},
            }
            for response in responses
        ],
    )


def archive(path: Path, *responses: Any, url: str = API, mime: str = "application/json") -> Path:
    """Write an HTTP archive of the same exchanges."""
    body = {"model": "claude-opus-4-8", "messages": [{"role": "user", "content": "x"}]}
    entries = [
        {
            "startedDateTime": WHEN,
            "time": 900,
            "request": {
                "method": "POST",
                "url": url,
                "postData": {"mimeType": "application/json", "text": json.dumps(body)},
            },
            "response": {
                "status": 200,
                "content": {
                    "mimeType": mime,
                    "text": response if isinstance(response, str) else json.dumps(response),
                },
            },
        }
        for response in responses
    ]
    path.write_text(json.dumps({"log": {"version": "1.2", "entries": entries}}))
    return path


def answer(ident: str, usage: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Write a whole response of the Messages API."""
    return {
        "id": ident,
        "type": "message",
        "model": "claude-opus-4-8",
        "content": [{"type": "text", "text": "y"}],
        "stop_reason": "end_turn",
        "usage": usage,
        **more,
    }


def stream(*events: dict[str, Any]) -> str:
    """Write events as a server sends them."""
    return "".join(
        f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
        if "type" in event
        else f"data: {json.dumps(event)}\n\n"
        for event in events
    )


def started(usage: dict[str, Any], ident: str = "msg_1") -> dict[str, Any]:
    """Write the first event of a stream."""
    message = {"id": ident, "model": "claude-opus-4-8", "content": [], "usage": usage}
    return {"type": "message_start", "message": message}


def ended(usage: dict[str, Any]) -> dict[str, Any]:
    """Write the event with the final usage."""
    return {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}


STOP = {"type": "message_stop"}


def transcript_line(ident: str, usage: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Write one line of a Claude Code transcript."""
    message = {
        "id": ident,
        "type": "message",
        "role": "assistant",
        "model": more.pop("model", "claude-opus-4-6"),
        "content": [{"type": "text", "text": "y"}],
        "stop_reason": more.pop("stop_reason", None),
        "usage": usage,
    }
    return {
        "parentUuid": None,
        "isSidechain": False,
        "sessionId": "s1",
        "version": "2.1.200",
        "type": "assistant",
        "message": message,
        "requestId": f"req_{ident}",
        "uuid": f"u-{ident}",
        "timestamp": "2026-10-05T10:00:00.000Z",
        **more,
    }
