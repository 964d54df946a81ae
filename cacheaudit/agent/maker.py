"""Makes calls of attempts: prompt, usage, times, error, and where the call belongs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from cacheaudit.agent.answer import Heard, hear
from cacheaudit.agent.attempt import Attempt
from cacheaudit.agent.batches import Batches
from cacheaudit.agent.body import Body, read_body
from cacheaudit.agent.sizes import Made, Weights, spread
from cacheaudit.agent.unfold import Unfolded, Unfolder
from cacheaudit.ingest.answers import Answer
from cacheaudit.ingest.bodies import session_in
from cacheaudit.ingest.endpoints import Endpoint, endpoint_of, provider_of_model, served_model
from cacheaudit.ingest.lifetimes import with_assumed_ttl
from cacheaudit.ingest.problems import Problems
from cacheaudit.model.call import Call, CallError
from cacheaudit.model.prompt import Prompt

_SESSION_HEADERS: Final = (
    "x-claude-code-session-id",
    "session-id",
    "session_id",
    "x-session-id",
    "conversation_id",
    "x-session-affinity",
)
_REQUEST_IDS: Final = ("request-id", "x-request-id", "x-amzn-requestid")
_NEVER_LOCAL: Final = frozenset({"anthropic", "openai", "gemini"})
_OPEN_WEIGHTS: Final = ("gpt-oss", "gemma")
_LANES_KEPT: Final = 256
_IDS_KEPT: Final = 16_384


class _Known(msgspec.Struct, frozen=True):
    """What the request alone tells; worked out once for an attempt."""

    body: Body | None
    endpoint: Endpoint
    session: str
    lane: str
    provider: str | None
    prompt: Prompt | None
    weights: Weights


class _Before(msgspec.Struct, frozen=True):
    """How the call before ended in a lane."""

    ended_at: float | None
    stop_reason: str | None


class CallMaker:
    """Makes calls of attempts, in the order in which they are handed over.

    Args:
        run: Session of calls that name none.
        problems: Counts what cannot be read.
    """

    def __init__(self, run: str, problems: Problems) -> None:
        self._run = run
        self._problems = problems
        self._unfolder = Unfolder(problems)
        self._batches = Batches(problems)
        self._before: OrderedDict[tuple[str, str], _Before] = OrderedDict()
        self._ids: OrderedDict[tuple[str, str], str] = OrderedDict()

    def calls(self, attempt: Attempt) -> list[Made]:
        """Return the calls that an attempt stands for; see :class:`~writer.Maker`."""
        if attempt.kind == "call":
            return [self._call(attempt)]
        if attempt.ending is None:
            return []
        if attempt.kind == "batch":
            session = attempt.scope.session or self._run
            self._batches.handed_in(attempt, session)
            return []
        return [Made(call) for call in self._batches.results(attempt, self._run)]

    def _call(self, attempt: Attempt) -> Made:
        known = self._known(attempt)
        fields: Mapping[str, Any] = known.body.fields if known.body is not None else {}
        heard = hear(attempt, fields, self._problems)
        answer = heard.answer
        if known.body is not None and attempt.ending is not None:
            self._unfolder.remember(known.body, answer)
        model = _model(fields, answer, known.endpoint)
        provider = known.provider or _provider(known.endpoint, model, fields)
        usage = with_assumed_ttl(answer.usage, known.prompt, provider, model)
        for flag in usage.flags if usage is not None else ():
            self._problems(flag, attempt.key)
        surface = known.endpoint.surface
        call = Call(
            id=self._id(attempt, known.session, answer),
            session=known.session,
            lane=known.lane,
            task=attempt.scope.task,
            purpose=_purpose(attempt, fields),
            provider=provider,
            surface="other" if surface == "local" and provider != "local" else surface,
            model=model,
            started_at=attempt.started_at,
            first_token_at=heard.first_token_at,
            ended_at=attempt.ended_at,
            attempt=attempt.number,
            usage=usage,
            prompt=known.prompt,
            diagnostics=answer.diagnostics,
            stop_reason=answer.stop_reason,
            error=_error(attempt, answer),
            tool_seconds=self._tools(attempt, known, answer),
            reported_cost=answer.cost,
            client=attempt.sent.get("user-agent"),
            dedupe_key=f"recorder:{attempt.key}",
            extra=_extra(attempt, heard),
        )
        if known.prompt is None or usage is None:
            return Made(call)
        return Made(call, spread(known.weights, usage.prompt_size))

    def _known(self, attempt: Attempt) -> _Known:
        if isinstance(attempt.prepared, _Known):
            return attempt.prepared
        body = None
        if attempt.packed is not None:
            body = read_body(attempt.packed, self._unfolder.histories())
        if body is None and attempt.packed is not None:
            self._problems("bad_body", attempt.key, "the request is no JSON object")
        endpoint = endpoint_of(str(attempt.url)) if attempt.url is not None else Endpoint()
        fields: Mapping[str, Any] = body.fields if body is not None else {}
        provider = _provider(endpoint, _model(fields, Answer(), endpoint), fields)
        session = _session(attempt, fields, self._run)
        found = Unfolded(None, attempt.scope.lane or "main")
        if body is not None:
            found = self._unfolder.prompt(
                body,
                session=session,
                lane=attempt.scope.lane,
                provider=provider,
                where=attempt.key,
            )
        known = _Known(body, endpoint, session, found.lane, provider, found.prompt, found.weights)
        attempt.prepared = known
        if attempt.ending is None:
            attempt.packed = None  # its prompt is known: nothing needs the bytes any more
        return known

    def _id(self, attempt: Attempt, session: str, answer: Answer) -> str:
        """Return the provider's id, told apart where a server gives one out twice."""
        if answer.id is None:
            return f"{attempt.logical}-{attempt.number}"
        key = (session, answer.id)
        owner = self._ids.setdefault(key, attempt.key)
        if len(self._ids) > _IDS_KEPT:
            self._ids.popitem(last=False)
        return answer.id if owner == attempt.key else f"{answer.id}#{attempt.key[:8]}"

    def _tools(self, attempt: Attempt, known: _Known, answer: Answer) -> float | None:
        """Return the time since the lane's last response, where that one asked for tools."""
        if attempt.scope.purpose in _MEANWHILE:
            return None
        lane = (known.session, known.lane)
        before = self._before.get(lane)
        if attempt.ending is not None:
            self._before[lane] = _Before(attempt.ended_at, answer.stop_reason)
            self._before.move_to_end(lane)
            if len(self._before) > _LANES_KEPT:
                self._before.popitem(last=False)
        if before is None or before.ended_at is None or before.stop_reason not in _TOOL_STOPS:
            return None
        seconds = attempt.started_at - before.ended_at
        return seconds if seconds >= 0 else None


_TOOL_STOPS: Final = frozenset({"tool_use", "tool_calls"})
# Sent while tools run: no part of the conversation.
_MEANWHILE: Final = frozenset({"keep_alive", "warm_up", "probe"})


def _session(attempt: Attempt, fields: Mapping[str, Any], run: str) -> str:
    if attempt.scope.session is not None:
        return attempt.scope.session
    for name in _SESSION_HEADERS:
        if found := attempt.sent.get(name):
            return found
    return session_in(fields) or run


def _model(fields: Mapping[str, Any], answer: Answer, endpoint: Endpoint) -> str | None:
    sent = fields.get("model") or fields.get("modelId")
    named = sent if isinstance(sent, str) else endpoint.model
    model = served_model(named, answer.model)
    return model.removeprefix("models/") if model else None


def _provider(endpoint: Endpoint, model: str | None, fields: Mapping[str, Any]) -> str | None:
    if endpoint.provider == "local":
        # A proxy on this machine: models that nobody can run at home come from their maker.
        maker = provider_of_model(model)
        is_open = (model or "").lower().startswith(_OPEN_WEIGHTS)
        return maker if maker in _NEVER_LOCAL and not is_open else "local"
    if endpoint.provider not in (None, "openrouter"):
        return endpoint.provider
    if fields.get("anthropic_version"):
        return "anthropic"
    return provider_of_model(model) or endpoint.provider


def _purpose(attempt: Attempt, fields: Mapping[str, Any]) -> str:
    if attempt.scope.purpose not in (None, "main", "subagent"):
        return str(attempt.scope.purpose)
    if fields.get("max_tokens") == 0:
        return "warm_up"
    if isinstance(fields.get("compaction"), dict):
        return "compaction"
    if attempt.number:
        return "retry"
    return attempt.scope.purpose or "main"


def _error(attempt: Attempt, answer: Answer) -> CallError | None:
    status = attempt.status if (attempt.status or 0) >= 400 else None
    if answer.error is not None:
        kind, message = answer.error.type, answer.error.message
        return CallError(kind, status or answer.error.status, message)
    if status is None and attempt.failure is None:
        return None
    return CallError(attempt.failure, status)


def _extra(attempt: Attempt, heard: Heard) -> dict[str, Any]:
    extra: dict[str, Any] = {}
    if beta := attempt.sent.get("anthropic-beta"):
        extra["anthropic-beta"] = beta
    for name in _REQUEST_IDS:
        if found := attempt.received.get(name):
            extra["request_id"] = found
            break
    if attempt.number:
        extra["logical_call"] = attempt.logical
    if attempt.marked:
        extra["markers"] = "planner"
    if attempt.ending is None:
        extra["unfinished"] = True
    elif attempt.ending == "closed" and heard.answer.stop_reason is None:
        extra["abandoned"] = True
    return extra
