"""One request and its response, as any recorder of HTTP traffic keeps them, made into a call."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from cacheaudit.dialects.detect import normalise
from cacheaudit.ingest._fields import read_count, text
from cacheaudit.ingest.answers import Answer, raw_usage, read_answer, short_message
from cacheaudit.ingest.bodies import Bodies, session_in, with_sizes
from cacheaudit.ingest.endpoints import (
    Endpoint,
    endpoint_of,
    provider_of_model,
    served_model,
)
from cacheaudit.ingest.lifetimes import with_assumed_ttl
from cacheaudit.ingest.unpack import UnpackError, header
from cacheaudit.model.call import Call, CallError, Origin, Span
from cacheaudit.model.ports import ProblemSink

_SESSION_HEADERS: Final = (
    "x-claude-code-session-id",
    "session-id",
    "session_id",
    "x-session-id",
    "conversation_id",
    "x-session-affinity",
)
_NEVER_LOCAL: Final = frozenset({"anthropic", "openai", "gemini"})
# Counts in the headers of Bedrock's answers, by their name in the Converse API.
_BEDROCK_COUNTS: Final = {
    "x-amzn-bedrock-input-token-count": "inputTokens",
    "x-amzn-bedrock-output-token-count": "outputTokens",
    "x-amzn-bedrock-cache-read-input-token-count": "cacheReadInputTokens",
    "x-amzn-bedrock-cache-write-input-token-count": "cacheWriteInputTokens",
}


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """What was recorded of one request.

    Attributes:
        request: Body as sent.
        response: Body as received: an object, a list of events, text or bytes.
        url: Where it went.
        request_headers: Headers sent; only those that name the session and the client are read.
        response_headers: Headers received.
        status: HTTP status.
        session: Session, where the recorder knows it.
        lane: Lane, where the recorder knows it.
        started_at: Request start.
        start_span: Interval that holds it.
        first_token_at: First token of the response.
        ended_at: End of the response.
        error: How the exchange failed outside HTTP.
        number: Position in the file, from 1.
    """

    request: Mapping[str, Any] | None = None
    response: object = None
    url: str | None = None
    request_headers: Any = None
    response_headers: Any = None
    status: int | None = None
    session: str | None = None
    lane: str | None = None
    started_at: float | None = None
    start_span: Span | None = None
    first_token_at: float | None = None
    ended_at: float | None = None
    error: str | None = None
    number: int = 0


class Exchanges:
    """Makes calls of the exchanges of one file.

    Args:
        file: The file, for origins and for the session of exchanges that name none.
        session: Session of exchanges that name none.
        problems: Counts what cannot be read.
    """

    def __init__(self, file: str, session: str, problems: ProblemSink) -> None:
        self._file = file
        self._session = session
        self._problems = problems
        self._bodies = Bodies(problems)

    def call(self, exchange: Exchange, *, unique_ids: bool = True) -> Call | None:
        """Make a call, or ``None`` where the exchange is no call to a model.

        Args:
            exchange: Request and response.
            unique_ids: Whether the response's id identifies the call wherever it is recorded;
                recordings for tests often have their ids blotted out.
        """
        endpoint = endpoint_of(exchange.url)
        if endpoint.is_model_call is False or not _is_model_call(exchange, endpoint):
            return None
        where = f"{self._file}:{exchange.number}"
        answer = self._answer(exchange, where)
        session = self._session_of(exchange)
        model = _model(exchange.request, answer, endpoint)
        provider = _provider(endpoint, model, exchange.request)
        prompt, lane = self._bodies.prompt(
            exchange.request,
            session=session,
            where=where,
            lane=exchange.lane,
            provider=provider,
            answer=answer,
        )
        usage = with_assumed_ttl(answer.usage, prompt, provider, model)
        for flag in usage.flags if usage is not None else ():
            self._problems(flag, where)
        attempt = _attempt(exchange)
        return Call(
            id=answer.id or f"{Path(self._file).stem}#{exchange.number}",
            session=session,
            lane=lane,
            purpose=_purpose(exchange.request, attempt),
            provider=provider,
            surface="other"
            if endpoint.surface == "local" and provider != "local"
            else endpoint.surface,
            model=model,
            started_at=exchange.started_at,
            start_span=exchange.start_span if exchange.started_at is None else None,
            first_token_at=exchange.first_token_at,
            ended_at=exchange.ended_at,
            attempt=attempt,
            usage=usage,
            prompt=with_sizes(prompt, usage, None, where, self._problems),
            diagnostics=answer.diagnostics,
            stop_reason=answer.stop_reason,
            error=_error(exchange, answer),
            reported_cost=answer.cost,
            client=header(exchange.request_headers, "user-agent"),
            origin=Origin(self._file, exchange.number),
            dedupe_key=f"response:{answer.id}" if answer.id and unique_ids else None,
            extra=_extra(exchange),
        )

    def _answer(self, exchange: Exchange, where: str) -> Answer:
        try:
            answer = read_answer(exchange.response, exchange.request)
        except UnpackError as error:
            self._problems("unreadable_body", where, str(error))
            answer = Answer()
        if answer.usage is not None:
            return answer
        in_headers = _usage_in_headers(exchange.response_headers)
        if in_headers:
            return msgspec.structs.replace(answer, usage=normalise(in_headers))
        failed = (exchange.status or 200) >= 400 or exchange.error is not None
        if not failed and answer.error is None and exchange.response is not None:
            self._problems("missing_usage", where, "the response carries no usage record")
        return answer

    def _session_of(self, exchange: Exchange) -> str:
        if exchange.session:
            return exchange.session
        for name in _SESSION_HEADERS:
            if found := header(exchange.request_headers, name):
                return found
        return session_in(exchange.request) or self._session


def _is_model_call(exchange: Exchange, endpoint: Endpoint) -> bool:
    if endpoint.is_model_call:
        return True
    request = exchange.request or {}
    has_prompt = any(isinstance(request.get(k), list) for k in ("messages", "contents")) or (
        "input" in request and "model" in request
    )
    if has_prompt or request:
        return has_prompt
    response = exchange.response
    return isinstance(response, str | bytes | list) or (
        isinstance(response, Mapping) and raw_usage(response) is not None
    )


def _model(request: Mapping[str, Any] | None, answer: Answer, endpoint: Endpoint) -> str | None:
    sent = request or {}
    named = text(sent.get("model")) or text(sent.get("modelId")) or endpoint.model
    model = served_model(named, answer.model)
    return model.removeprefix("models/") if model else None


def _provider(
    endpoint: Endpoint, model: str | None, request: Mapping[str, Any] | None
) -> str | None:
    if endpoint.provider == "local":
        # A proxy on this machine: models that nobody can run at home come from their maker.
        maker = provider_of_model(model)
        is_open = (model or "").lower().startswith(("gpt-oss", "gemma"))
        return maker if maker in _NEVER_LOCAL and not is_open else "local"
    if endpoint.provider not in (None, "openrouter"):
        return endpoint.provider
    if (request or {}).get("anthropic_version"):
        return "anthropic"
    return provider_of_model(model) or endpoint.provider


def _attempt(exchange: Exchange) -> int:
    for name in ("x-stainless-retry-count", "x-retry-count"):
        try:
            count = read_count(header(exchange.request_headers, name))
        except ValueError:
            continue
        if count is not None and 0 <= count < 1000:
            return count
    return 0


def _purpose(request: Mapping[str, Any] | None, attempt: int) -> str:
    if request is not None and request.get("max_tokens") == 0:
        return "warm_up"
    return "retry" if attempt else "main"


def _error(exchange: Exchange, answer: Answer) -> CallError | None:
    status = exchange.status if (exchange.status or 0) >= 400 else None
    if answer.error is not None:
        kind, message = answer.error.type, answer.error.message
        return CallError(kind, status or answer.error.status, message)
    if status is None and exchange.error is None:
        return None
    return CallError(None, status, short_message(exchange.error))


def _usage_in_headers(headers: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, field in _BEDROCK_COUNTS.items():
        try:
            count = read_count(header(headers, name))
        except ValueError:
            continue
        if count is not None:
            found[field] = count
    return found if "inputTokens" in found else {}


def _extra(exchange: Exchange) -> dict[str, Any]:
    """Keep the header that takes part in the cache key; no other header leaves this module."""
    beta = header(exchange.request_headers, "anthropic-beta")
    return {"anthropic-beta": beta} if beta else {}


def span_before(moment: float | None, longest: float) -> Span | None:
    """Return the interval in which a request began that was over at a moment."""
    return None if moment is None else Span(moment - longest, moment)
