"""Spend logs of the LiteLLM proxy (table ``LiteLLM_SpendLogs``), as CSV, JSON or JSON lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from cacheaudit.dialects.detect import normalise
from cacheaudit.ingest._fields import Record, mapping, sequence, text
from cacheaudit.ingest.answers import Answer, read_answer, short_message
from cacheaudit.ingest.bodies import Bodies, with_sizes
from cacheaudit.ingest.endpoints import endpoint_of, provider_of_model
from cacheaudit.ingest.lifetimes import with_assumed_ttl
from cacheaudit.ingest.rows import as_counts, first_rows, named_rows
from cacheaudit.ingest.unpack import UnpackError
from cacheaudit.model.call import Call, CallError, Origin
from cacheaudit.model.ports import Capabilities, Head, ProblemSink
from cacheaudit.model.usage import Usage

_SIGNS: Final = frozenset({"request_id", "prompt_tokens", "spend"})
_LISTS: Final = ("data", "response", "logs")
# Kinds of call that have no prompt cache.
_OTHER_CALLS: Final = (
    "embedding", "image", "transcription", "speech", "moderation", "rerank", "search", "ocr",
    "video", "vector", "file", "batch_retrieve", "mcp", "health",
)  # fmt: skip
_PROVIDERS: Final[dict[str, tuple[str | None, str | None]]] = {
    "anthropic": ("anthropic", "claude_api"),
    "openai": ("openai", "openai"),
    "text-completion-openai": ("openai", "openai"),
    "azure": ("openai", "azure"),
    "azure_ai": (None, "foundry"),
    "bedrock": (None, "bedrock"),
    "bedrock_converse": (None, "bedrock"),
    "vertex_ai": (None, "google_cloud"),
    "vertex_ai_beta": (None, "google_cloud"),
    "gemini": ("gemini", "gemini_api"),
    "deepseek": ("deepseek", "deepseek"),
    "openrouter": (None, "openrouter"),
    "dashscope": ("qwen", "other"),
    "moonshot": ("moonshot", "other"),
    "zai": ("zai", "other"),
    "xai": ("xai", "other"),
    "groq": ("groq", "other"),
    "mistral": ("mistral", "other"),
    "fireworks_ai": ("fireworks", "other"),
    "together_ai": ("together", "other"),
    "minimax": ("minimax", "other"),
    "hosted_vllm": ("local", "local"),
    "vllm": ("local", "local"),
    "ollama": ("local", "local"),
    "ollama_chat": ("local", "local"),
    "lm_studio": ("local", "local"),
    "llamafile": ("local", "local"),
}
_CUT: Final = "litellm_truncated"


class LiteLLMSource:
    """Reads spend logs. Their prompt count includes the cache, whatever the provider's does."""

    name = "litellm"
    title = "LiteLLM spend logs"
    capabilities = Capabilities(
        reads=True, writes=True, ttl_split=False, bodies=True, start_times="exact"
    )

    def detect(self, head: Head) -> int:
        """Say how sure we are that the file holds spend logs."""
        for names in first_rows(head, *_LISTS):
            if names >= _SIGNS and {"start_time", "call_type", "custom_llm_provider"} & names:
                return 95
        return 0

    def read(self, path: Path, problems: ProblemSink) -> Iterator[Call]:
        """Yield one call a row that reached a provider."""
        bodies = Bodies(problems)
        for number, row in named_rows(path, problems, *_LISTS):
            record = Record(row, f"{path}:{number}", problems)
            if _is_other(record):
                continue
            if str(row.get("cache_hit")).strip().lower() == "true":
                record.problem("answered_by_gateway", "LiteLLM's own response cache; no call made")
                continue
            yield _call(record, Origin(str(path), number), bodies, problems)

    def usual_places(self, environment: Mapping[str, str], home: Path) -> Iterator[Path]:
        """Yield nothing: exports lie where their owner put them."""
        del environment, home
        yield from ()


def _is_other(record: Record) -> bool:
    kind = record.text("call_type") or ""
    return any(other in kind for other in _OTHER_CALLS)


def _call(record: Record, origin: Origin, bodies: Bodies, problems: ProblemSink) -> Call:
    metadata = mapping(record.fields.get("metadata"))
    model = record.text("model", "model_group")
    provider, surface = _maker(record, model)
    session = _session(record, metadata, Path(origin.file).stem)
    request = _request(record, model)
    answer = _answer(record, request)
    prompt, lane = bodies.prompt(
        request, session=session, where=record.where, provider=provider, answer=answer
    )
    error = _error(record, metadata)
    usage = with_assumed_ttl(_usage(record, metadata, answer, error), prompt, provider, model)
    for flag in usage.flags if usage is not None else ():
        record.problem(flag, "")
    started, ended = record.time("start_time"), record.time("end_time")
    first = record.time("completion_start_time")
    ident = record.text("request_id")
    return Call(
        id=ident or f"{Path(origin.file).stem}#{origin.line}",
        session=session,
        lane=lane,
        provider=provider,
        surface=surface,
        model=model,
        started_at=started,
        # Without streaming LiteLLM writes the end here; that is no first token.
        first_token_at=first if first != ended else None,
        ended_at=ended,
        attempt=_attempt(metadata, record),
        usage=usage,
        prompt=with_sizes(prompt, usage, None, record.where, problems),
        stop_reason=answer.stop_reason,
        error=error,
        reported_cost=record.money("spend"),
        client=text(metadata.get("user_agent")),
        origin=origin,
        dedupe_key=f"litellm:{ident}" if ident else None,
    )


def _usage(
    record: Record, metadata: Mapping[str, Any], answer: Answer, error: CallError | None
) -> Usage | None:
    """Read the usage object, with the row's own columns for what it leaves out."""
    stated = as_counts(mapping(metadata.get("usage_object")))
    if "input_tokens" in stated and "prompt_tokens" not in stated:
        return normalise(stated)
    columns = {
        name: record.count(name)
        for name in ("prompt_tokens", "completion_tokens", "total_tokens")
        if record.fields.get(name) not in (None, "")
    }
    extra = as_counts(mapping(metadata.get("additional_usage_values")))
    merged = {**columns, **extra, **{k: v for k, v in stated.items() if v is not None}}
    if not merged.get("prompt_tokens") and not merged.get("completion_tokens"):
        if answer.usage is None and error is None:
            record.problem("missing_usage", "no token count in this row")
        return answer.usage
    return normalise(merged)


def _maker(record: Record, model: str | None) -> tuple[str | None, str | None]:
    named = (record.text("custom_llm_provider") or "").lower()
    if not named and model and "/" in model:
        named = model.split("/", 1)[0].lower()
    provider, surface = _PROVIDERS.get(named, (None, None))
    endpoint = endpoint_of(record.text("api_base"))
    found = provider or provider_of_model(model) or endpoint.provider
    return found, surface or endpoint.surface


def _session(record: Record, metadata: Mapping[str, Any], fallback: str) -> str:
    for value in (
        record.text("session_id", "trace_id", "litellm_session_id"),
        text(metadata.get("session_id")),
        text(metadata.get("litellm_session_id")),
        text(metadata.get("trace_id")),
        text(metadata.get("litellm_trace_id")),
    ):
        if value is not None:
            return value
    return fallback


def _request(record: Record, model: str | None) -> dict[str, Any] | None:
    """Return the request where the proxy was told to store it, and stored it whole."""
    sent = mapping(record.fields.get("proxy_server_request"))
    sent = mapping(sent.get("body")) or sent
    if not any(isinstance(sent.get(k), list) for k in ("messages", "input", "contents")):
        messages = sequence(record.fields.get("messages"))
        sent = {"messages": messages} if messages else {}
    if not sent:
        return None
    if _CUT in str(record.fields.get("proxy_server_request") or record.fields.get("messages")):
        record.problem("truncated_body", "LiteLLM stored only a part of this request")
        return None
    return {"model": model, **sent}


def _answer(record: Record, request: Mapping[str, Any] | None) -> Answer:
    response = mapping(record.fields.get("response"))
    if not response:
        return Answer()
    try:
        return read_answer(response, request)
    except UnpackError as error:
        record.problem("unreadable_body", str(error))
        return Answer()


def _error(record: Record, metadata: Mapping[str, Any]) -> CallError | None:
    details = mapping(metadata.get("error_information"))
    status = (record.text("status") or text(metadata.get("status")) or "").lower()
    if status not in ("failure", "failed", "error") and not details:
        return None
    code = text(details.get("error_code"))
    return CallError(
        text(details.get("error_class")),
        int(code) if code is not None and code.isdigit() else None,
        short_message(text(details.get("error_message"))),
    )


def _attempt(metadata: Mapping[str, Any], record: Record) -> int:
    return Record(metadata, record.where, record.problem_sink).count("attempted_retries") or 0


SOURCE = LiteLLMSource()
