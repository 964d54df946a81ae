"""Batches: requests handed in together, whose results are fetched later."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from cacheaudit.agent.answer import pieces_of
from cacheaudit.agent.attempt import Attempt
from cacheaudit.errors import PromptError
from cacheaudit.ingest.answers import Answer, read_answer
from cacheaudit.ingest.endpoints import endpoint_of, served_model
from cacheaudit.ingest.lifetimes import with_assumed_ttl
from cacheaudit.ingest.problems import Problems
from cacheaudit.ingest.unpack import UnpackError
from cacheaudit.model.call import Call, CallError, Span
from cacheaudit.model.prompt import Prompt
from cacheaudit.model.tokens import calibrated
from cacheaudit.model.usage import Usage
from cacheaudit.providers.registry import expand

_BATCHES_KEPT: Final = 64
_REQUESTS_KEPT: Final = 10_000


class _Asked(msgspec.Struct, frozen=True):
    """A request of a batch."""

    model: str | None
    prompt: Prompt | None


class _Batch(msgspec.Struct, frozen=True):
    """A batch that was handed in."""

    session: str
    task: str | None
    lane: str | None
    at: float
    requests: dict[str, _Asked]


class Batches:
    """Remembers what was handed in, and makes calls of results.

    Args:
        problems: Counts what cannot be read.
    """

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._known: OrderedDict[str, _Batch] = OrderedDict()

    def handed_in(self, attempt: Attempt, session: str) -> None:
        """Remember the requests of a batch under the id that the server gave it."""
        made = _object(pieces_of(attempt))
        sent = _object(attempt.body)
        name, requests = made.get("id"), sent.get("requests")
        if not isinstance(name, str) or not isinstance(requests, list):
            return
        provider = endpoint_of(str(attempt.url)).provider
        asked: dict[str, _Asked] = {}
        previous: Prompt | None = None
        for request in requests[:_REQUESTS_KEPT]:
            key, body = _request(request)
            if key is None:
                continue
            prompt = self._prompt(body, provider, previous, attempt.key)
            previous = prompt or previous
            model = body.get("model")
            asked[key] = _Asked(model if isinstance(model, str) else None, prompt)
        scope = attempt.scope
        self._known[name] = _Batch(session, scope.task, scope.lane, attempt.started_at, asked)
        while len(self._known) > _BATCHES_KEPT:
            self._known.popitem(last=False)

    def _prompt(
        self, body: Mapping[str, Any], provider: str | None, previous: Prompt | None, where: str
    ) -> Prompt | None:
        try:
            return expand(body, provider=provider, previous=previous)
        except (PromptError, RecursionError) as error:
            self._problems("bad_body", where, type(error).__name__)
            return None

    def results(self, attempt: Attempt, run: str) -> list[Call]:
        """Make a call of every result that came."""
        name = str(attempt.url).partition("?")[0].rstrip("/").split("/")[-2]
        batch = self._known.get(name)
        try:
            lines = pieces_of(attempt).splitlines()
        except UnpackError as error:
            self._problems("unreadable_body", attempt.key, str(error))
            return []
        return [
            call
            for line in lines
            if (call := self._result(_object(line), name, batch, attempt, run)) is not None
        ]

    def _result(
        self,
        line: Mapping[str, Any],
        name: str,
        batch: _Batch | None,
        attempt: Attempt,
        run: str,
    ) -> Call | None:
        key, result = line.get("custom_id"), line.get("result")
        if not isinstance(key, str) or not isinstance(result, dict):
            return None
        answer = _answer(result)
        asked = batch.requests.get(key) if batch is not None else None
        provider = endpoint_of(str(attempt.url)).provider or "anthropic"
        return Call(
            id=answer.id or f"{name}/{key}",
            session=batch.session if batch is not None else attempt.scope.session or run,
            lane=f"{(batch.lane if batch is not None else None) or 'batch'}/{key}",
            task=batch.task if batch is not None else attempt.scope.task,
            purpose="main",
            provider=provider,
            surface=endpoint_of(str(attempt.url)).surface,
            model=served_model(asked.model if asked is not None else None, answer.model),
            start_span=None if batch is None else Span(batch.at, attempt.started_at),
            usage=_usage(answer, asked, provider),
            prompt=_sized(asked, answer),
            diagnostics=answer.diagnostics,
            stop_reason=answer.stop_reason,
            error=answer.error,
            dedupe_key=f"batch:{name}/{key}",
            extra={"batch": name},
        )


def _answer(result: Mapping[str, Any]) -> Answer:
    """Read a result: a message, an error, or the word that there is neither."""
    message, error = result.get("message"), result.get("error")
    if isinstance(message, dict):
        return read_answer(message)
    if isinstance(error, dict):
        return read_answer(error if isinstance(error.get("error"), dict) else {"error": error})
    kind = result.get("type")
    return Answer(error=CallError(kind if isinstance(kind, str) else None))


def _sized(asked: _Asked | None, answer: Answer) -> Prompt | None:
    if asked is None or asked.prompt is None:
        return None
    size = answer.usage.prompt_size if answer.usage is not None else None
    return asked.prompt if size is None else calibrated(asked.prompt, size)


def _usage(answer: Answer, asked: _Asked | None, provider: str) -> Usage | None:
    """Return the usage at the price of a batch, whether or not the server says that it is one."""
    prompt = asked.prompt if asked is not None else None
    usage = with_assumed_ttl(answer.usage, prompt, provider, answer.model)
    if usage is None or usage.service_tier is not None:
        return usage
    return msgspec.structs.replace(usage, service_tier="batch")


def _request(value: Any) -> tuple[str | None, Mapping[str, Any]]:
    if not isinstance(value, dict):
        return None, {}
    key, body = value.get("custom_id"), value.get("params")
    if not isinstance(key, str) or not isinstance(body, dict):
        return None, {}
    return key, body


def _object(data: bytes | None) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(data or b"null")
    except (msgspec.DecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
