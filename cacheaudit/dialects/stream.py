"""Puts a streamed response together: usage, identity, content, diagnostics and errors.

Usage in a stream is cumulative: the last value of a field that is not null wins, nothing is added.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from cacheaudit.dialects.assembly import Assembly
from cacheaudit.dialects.detect import normalise
from cacheaudit.dialects.diagnostics import miss_reason
from cacheaudit.model.call import CallError, MissReason
from cacheaudit.model.usage import FLAG_OUTPUT_LOWER_BOUND, Usage

_SPLIT: Final = "cache_creation"
_TOTAL: Final = "cache_creation_input_tokens"
_SHORT: Final = "ephemeral_5m_input_tokens"


class StreamResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a stream said, as far as it went.

    Attributes:
        usage: The merged usage record, in the provider's own names; ``None`` where none came.
        id: Message or response id.
        model: Model that answered.
        stop_reason: As the provider states it.
        content: Content blocks in the provider's shape; a tool call cut off keeps its text so far
            under ``partial_json``.
        diagnostics: The provider's word on a cache miss.
        error: The error that ended the stream.
        complete: The usage is final; where false, output is a lower bound.
        events: Events that were fed.
    """

    usage: dict[str, Any] | None = None
    id: str | None = None
    model: str | None = None
    stop_reason: str | None = None
    content: tuple[dict[str, Any], ...] = ()
    diagnostics: MissReason | None = None
    error: CallError | None = None
    complete: bool = False
    events: int = 0

    def normalised(self) -> Usage | None:
        """Normalise the usage; the output of an aborted stream is flagged as a lower bound."""
        if self.usage is None:
            return None
        usage = normalise(self.usage)
        if usage is None or self.complete:
            return usage
        flags = tuple(sorted({*usage.flags, FLAG_OUTPUT_LOWER_BOUND}))
        return msgspec.structs.replace(usage, flags=flags)


class StreamMerger:
    """Merges the decoded events of one response of any supported API.

    Args:
        request: The request, where it is known: it tells what null diagnostics mean.
    """

    def __init__(self, request: Mapping[str, Any] | None = None) -> None:
        self._request = request
        self._usage: dict[str, Any] | None = None
        self._id: str | None = None
        self._model: str | None = None
        self._stop: str | None = None
        self._diagnostics: MissReason | None = None
        self._error: CallError | None = None
        self._complete = False
        self._events = 0
        self._assembly = Assembly()

    def feed(self, event: Mapping[str, Any], name: str | None = None) -> None:
        """Take one decoded event; unknown events are passed over.

        Args:
            event: The event's data.
            name: The event's name, where the transport carries it apart from the data.
        """
        self._events += 1
        kind = event.get("type")
        kind = kind if isinstance(kind, str) else name
        inner = event.get("error")
        if isinstance(inner, dict):
            self._failed(inner)
        elif kind == "error":
            self._failed(event)
        if isinstance(kind, str) and kind.startswith("response."):
            self._responses(kind, event)
        elif kind in _MESSAGES:
            self._messages(str(kind), event)
        elif "choices" in event:
            self._chat(event)
        elif "candidates" in event or "usageMetadata" in event:
            self._gemini(event)
        else:
            self._converse(event)

    def result(self) -> StreamResult:
        """Return what is known so far; feeding may go on."""
        return StreamResult(
            usage=None if self._usage is None else dict(self._usage),
            id=self._id,
            model=self._model,
            stop_reason=self._stop,
            content=self._assembly.blocks(),
            diagnostics=self._diagnostics,
            error=self._error,
            complete=self._complete and self._error is None,
            events=self._events,
        )

    def _named(self, record: Mapping[str, Any], *, model: str = "model", key: str = "id") -> None:
        for attribute, name in (("_id", key), ("_model", model)):
            value = record.get(name)
            if isinstance(value, str) and value:
                setattr(self, attribute, value)

    def _stopped(self, reason: Any) -> None:
        if isinstance(reason, str) and reason:
            self._stop = reason

    def _failed(self, error: Mapping[str, Any]) -> None:
        kind = error.get("type") or error.get("code") or error.get("status")
        code = error.get("status_code") or error.get("code")
        message = error.get("message")
        self._error = CallError(
            type=kind if isinstance(kind, str) else None,
            status=code if isinstance(code, int) and not isinstance(code, bool) else None,
            message=message if isinstance(message, str) else None,
        )

    def _diagnosed(self, response: Mapping[str, Any]) -> None:
        found = miss_reason(response, self._request)
        if found is not None:
            self._diagnostics = found

    def _merge(self, record: Any) -> None:
        if not isinstance(record, dict):
            return
        if self._usage is None:
            self._usage = {}
        grown = _growth(self._usage, record)
        merge_usage(self._usage, record)
        if grown:
            split = self._usage[_SPLIT]
            self._usage[_SPLIT] = {**split, _SHORT: (split.get(_SHORT) or 0) + grown}

    def _messages(self, kind: str, event: Mapping[str, Any]) -> None:
        if kind == "message_start":
            message = event.get("message")
            if isinstance(message, dict):
                self._named(message)
                self._stopped(message.get("stop_reason"))
                self._merge(message.get("usage"))
                self._diagnosed(message)
        elif kind == "message_delta":
            delta = event.get("delta")
            if isinstance(delta, dict):
                self._stopped(delta.get("stop_reason"))
                self._diagnosed(delta)
            self._merge(event.get("usage"))
            self._diagnosed(event)
            self._complete = self._complete or self._stop is not None
        elif kind == "message_stop":
            self._complete = True
        else:
            self._assembly.messages(kind, event)

    def _chat(self, event: Mapping[str, Any]) -> None:
        self._named(event)
        choices = event["choices"]
        first = choices[0] if isinstance(choices, list) and choices else None
        if isinstance(first, dict):
            self._stopped(first.get("finish_reason"))
            self._assembly.chat(first.get("delta") or first.get("message"))
            # Kimi puts usage into the last choice.
            self._chat_usage(first.get("usage"))
        self._chat_usage(event.get("usage"))

    def _chat_usage(self, record: Any) -> None:
        if isinstance(record, dict):
            self._merge(record)
            self._complete = self._stop is not None

    def _responses(self, kind: str, event: Mapping[str, Any]) -> None:
        response = event.get("response")
        if isinstance(response, dict):
            self._named(response)
            self._merge(response.get("usage"))
            self._diagnosed(response)
            if isinstance(response.get("error"), dict):
                self._failed(response["error"])
            if kind in _ENDED:
                self._stopped(response.get("status"))
                self._complete = response.get("usage") is not None
                self._assembly.output(response.get("output"))
        elif kind == "response.output_item.done":
            self._assembly.item(event.get("item"))

    def _gemini(self, event: Mapping[str, Any]) -> None:
        self._named(event, model="modelVersion", key="responseId")
        candidates = event.get("candidates")
        first = candidates[0] if isinstance(candidates, list) and candidates else None
        if isinstance(first, dict):
            self._stopped(first.get("finishReason"))
            self._assembly.gemini(first.get("content"))
        self._merge(event.get("usageMetadata"))
        self._complete = self._stop is not None and self._usage is not None

    def _converse(self, event: Mapping[str, Any]) -> None:
        stop = event.get("messageStop")
        if isinstance(stop, dict):
            self._stopped(stop.get("stopReason"))
        metadata = event.get("metadata")
        if isinstance(metadata, dict) and isinstance(metadata.get("usage"), dict):
            self._merge(metadata["usage"])
            self._complete = True
        for key, value in event.items():
            if key.endswith("Exception") and isinstance(value, dict):
                self._failed({"type": key, **value})
        self._assembly.converse(event)


_MESSAGES: Final = frozenset(
    {
        "message_start",
        "message_delta",
        "message_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
    }
)
_ENDED: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})


def merge_usage(into: dict[str, Any], record: Mapping[str, Any]) -> None:
    """Merge a usage record into an earlier one: per field, the last value that is not null wins."""
    for name, value in record.items():
        if value is None:
            into.setdefault(name, None)
            continue
        old = into.get(name)
        if isinstance(value, dict) and isinstance(old, dict):
            nested = dict(old)
            merge_usage(nested, value)
            into[name] = nested
        else:
            into[name] = value


def _growth(old: Mapping[str, Any], record: Mapping[str, Any]) -> int:
    """Count writes that a later event adds without saying their lifetime.

    Only server tools write in mid-stream, and always for five minutes.
    """
    split = old.get(_SPLIT)
    if not isinstance(split, dict) or isinstance(record.get(_SPLIT), dict):
        return 0
    before, now = old.get(_TOTAL), record.get(_TOTAL)
    if type(before) is not int or type(now) is not int:
        return 0
    return max(0, now - before)
