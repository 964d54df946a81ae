"""A server that counts what it bills: every answer has another usage, and the sums are kept."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from tests.unit.agent.servers import MODEL, Reply, Script, events, message

BATCH = "msgbatch_7"
_KIND = {"content-type": "application/x-jsonl"}


class Teller(Script):
    """Answers by the address; ``told`` is what it has billed so far, in disjoint parts.

    Args:
        tools: So many of its first messages ask for a tool.
    """

    def __init__(self, tools: int = 0) -> None:
        super().__init__()
        self.told: Counter[str] = Counter()
        self._tools = tools
        self._number = 0
        self._batch: list[str] = []

    def answer(self, path: str, head: dict[str, str], body: bytes) -> Reply:
        with self._lock:
            self.sent.append(body)
            self.paths.append(path)
            return self._answer(path.partition("?")[0], json.loads(body) if body else {})

    def _answer(self, path: str, body: dict[str, Any]) -> Reply:
        if path.endswith("/count_tokens"):
            return Reply({"input_tokens": 4_711})
        if path.endswith("/batches"):
            self._batch = [entry["custom_id"] for entry in body["requests"]]
            return Reply(_batch(self.base(path)))
        if path.endswith("/results"):
            return Reply(frames=[self._result(key) for key in self._batch], headers=_KIND)
        if path.endswith(f"/{BATCH}"):
            return Reply(_batch(self.base(path)))
        if path.endswith("/messages"):
            return self._message(body)
        if path.endswith("/chat/completions"):
            return self._chat(body)
        assert path.endswith("/responses"), path
        return self._response(body)

    @staticmethod
    def base(path: str) -> str:
        """Return the path of all batches."""
        return re.sub(r"/batches.*", "/batches", path)

    def _bill(self) -> tuple[int, int, int, int, int]:
        """Make one answer's parts: fresh, read, written for 5 minutes and an hour, output."""
        self._number += 1
        n = self._number
        parts = (10 + n, 2_000 + 31 * n, 300 + 7 * n, 40 + 3 * n, 20 + n)
        self.told.update(dict(zip(("fresh", "read", "5m", "1h", "output"), parts, strict=True)))
        self.told["calls"] += 1
        return parts

    def _usage(self) -> dict[str, Any]:
        fresh, read, short, long, output = self._bill()
        return {
            "input_tokens": fresh,
            "output_tokens": output,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": short + long,
            "cache_creation": {
                "ephemeral_5m_input_tokens": short,
                "ephemeral_1h_input_tokens": long,
            },
        }

    def _message(self, body: dict[str, Any]) -> Reply:
        made: dict[str, Any] = {"usage": self._usage(), "model": body.get("model", MODEL)}
        if self._number <= self._tools:
            use = {"type": "tool_use", "id": f"toolu_{self._number}", "name": "weather"}
            made |= {"content": [{**use, "input": {"city": "Bern"}}], "stop_reason": "tool_use"}
        if body.get("stream"):
            return Reply(frames=events(self._number, **made))
        return Reply(message(self._number, **made))

    def _result(self, key: str) -> bytes:
        found = message(self._number + 1, usage=self._usage())
        result = {"type": "succeeded", "message": found}
        return json.dumps({"custom_id": key, "result": result}).encode() + b"\n"

    def _inclusive(self, details: str, names: tuple[str, str]) -> dict[str, Any]:
        """Make usage whose input holds reads and writes; no lifetime is told there."""
        fresh, read, short, long, output = self._bill()
        self.told.update({"1h": -long, "fresh": long, "5m": -short, "other": short})
        return {
            names[0]: fresh + long + read + short,
            names[1]: output,
            "total_tokens": fresh + long + read + short + output,
            details: {"cached_tokens": read, "cache_write_tokens": short},
        }

    def _chat(self, body: dict[str, Any]) -> Reply:
        model = body["model"]
        if model.startswith("deepseek"):
            fresh, read, short, long, output = self._bill()
            self.told.update({"1h": -long, "5m": -short, "fresh": short + long})
            usage: dict[str, Any] = {
                "prompt_tokens": fresh + read + short + long,
                "completion_tokens": output,
                "total_tokens": fresh + read + short + long + output,
                "prompt_cache_hit_tokens": read,
                "prompt_cache_miss_tokens": fresh + short + long,
            }
        else:
            usage = self._inclusive("prompt_tokens_details", ("prompt_tokens", "completion_tokens"))
        head = {"id": f"chatcmpl-{self._number}", "model": model, "created": 1}
        if not body.get("stream"):
            said = {"role": "assistant", "content": "hello there"}
            choice = {"index": 0, "message": said, "finish_reason": "stop"}
            whole = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
            return Reply(whole)
        head["object"] = "chat.completion.chunk"
        deltas: list[dict[str, Any]] = [
            {"index": 0, "delta": {"role": "assistant", "content": "hello "}},
            {"index": 0, "delta": {"content": "there"}},
            {"index": 0, "delta": {}, "finish_reason": "stop"},
        ]
        chunks = [{**head, "choices": [delta]} for delta in deltas]
        chunks.append({**head, "choices": [], "usage": usage})
        frames = [b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks]
        return Reply(frames=[*frames, b"data: [DONE]\n\n"])

    def _response(self, body: dict[str, Any]) -> Reply:
        usage = self._inclusive("input_tokens_details", ("input_tokens", "output_tokens"))
        usage["output_tokens_details"] = {"reasoning_tokens": 0}
        text = {"type": "output_text", "text": "hello there", "annotations": []}
        said = {"type": "message", "id": "m", "role": "assistant", "content": [text]}
        whole = {
            "id": f"resp_{self._number}",
            "object": "response",
            "created_at": 1,
            "model": body["model"],
            "status": "completed",
            "output": [{**said, "status": "completed"}],
            "usage": usage,
            "tools": [],
            "tool_choice": "auto",
            "parallel_tool_calls": True,
        }
        if not body.get("stream"):
            return Reply(whole)
        begun = {**whole, "status": "in_progress", "output": [], "usage": None}
        told = [
            {"type": "response.created", "response": begun, "sequence_number": 0},
            {
                "type": "response.output_text.delta",
                "item_id": "m",
                "output_index": 0,
                "content_index": 0,
                "delta": "hello there",
                "logprobs": [],
                "sequence_number": 1,
            },
            {"type": "response.completed", "response": whole, "sequence_number": 2},
        ]
        return Reply(
            frames=[f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in told]
        )


def _batch(base: str) -> dict[str, Any]:
    return {
        "id": BATCH,
        "type": "message_batch",
        "processing_status": "ended",
        "request_counts": dict.fromkeys(
            ("processing", "succeeded", "errored", "canceled", "expired"), 0
        ),
        "created_at": "2026-11-30T00:00:00Z",
        "expires_at": "2026-12-01T00:00:00Z",
        "results_url": f"{base}/{BATCH}/results",
    }
