"""A request to the Messages API, checked and in parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from local_backend.server.checks import Fields, join
from local_backend.server.content import (
    Part,
    canonical,
    parse_content,
    parse_marker,
    parse_system,
    parse_tool,
)
from local_backend.server.errors import InvalidRequestError

ROLES = ("user", "assistant", "system")
_PROMPT = ("model", "messages", "system", "tools", "tool_choice", "cache_control", "thinking")
_ACCEPTED = frozenset(
    {
        *_PROMPT,
        "max_tokens",
        "stream",
        "stop_sequences",
        "temperature",
        "top_k",
        "top_p",
        "metadata",
        "service_tier",
        "diagnostics",
        "output_config",
        "speed",
        "inference_geo",
        "context_management",
        "betas",
        "seed",
        "billing_policy",
        "fallbacks",
    }
)
_UNSUPPORTED = (
    "container",
    "mcp_servers",
    "output_format",
    "thread",
    "compaction",
    "fallback_credit_token",
)
_TIERS = ("auto", "standard_only")
_EFFORTS = ("low", "medium", "high", "xhigh", "max")
MOST_STOPS = 64
_THINKING = ("enabled", "disabled", "adaptive", "between_tools")
_SHOWN = ("never", "next_user_message")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a request says about the use of tools.

    Attributes:
        kind: ``auto``, ``any``, ``tool`` or ``none``.
        name: Of the tool that must be used.
        parallel: Whether several calls at once are allowed.
        among: Names that it is limited to; empty for all.
    """

    kind: str = "auto"
    name: str | None = None
    parallel: bool = True
    among: tuple[str, ...] = ()

    @property
    def is_forced(self) -> bool:
        """Whether the answer must be a tool call."""
        return self.kind in ("any", "tool")


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesRequest:
    """What a client asks for.

    Attributes:
        model: Name as sent.
        max_tokens: Most tokens of the answer; None where only tokens are to be counted.
        tools: Tool definitions.
        tool_schemas: Input schema of each tool that has one, by its name.
        system: Content blocks of the system prompt.
        messages: Role and content blocks of each message.
        choice: Use of tools.
        stream: Whether the answer comes in pieces.
        stop_sequences: Texts that end it.
        temperature: 0 takes the most likely token.
        top_k: Candidates kept.
        top_p: Probability mass kept.
        seed: Of the random numbers; None for the server's.
        automatic: Lifetime of the marker of the request as a whole.
        thinking: The setting as sent, None where it says what is so anyway.
        context: How the context is to be edited, as sent; it is taken note of, and not done.
        effort: How much effort; None for the ordinary.
        output_format: Schema that the answer must fit; None for free text.
        speed: ``standard`` or ``fast``.
        diagnosed: Whether the client wants to know what changed.
        previous: Id of the response to compare with.
    """

    model: str
    max_tokens: int | None
    tools: tuple[Part, ...] = ()
    tool_schemas: Mapping[str, Mapping[str, Any]]
    system: tuple[Part, ...] = ()
    messages: tuple[tuple[str, tuple[Part, ...]], ...]
    choice: Choice = Choice()
    stream: bool = False
    stop_sequences: tuple[str, ...] = ()
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    seed: int | None = None
    automatic: str | None = None
    thinking: str | None = None
    context: str | None = None
    effort: str | None = None
    output_format: Mapping[str, Any] | None = None
    speed: str = "standard"
    diagnosed: bool = False
    previous: str | None = None

    @property
    def thinks_at_length(self) -> bool:
        """Whether thinking is enabled by a budget."""
        return self.thinking is not None and '"enabled"' in self.thinking

    def parts(self) -> Iterator[Part]:
        """All content blocks in the order tools, system, messages."""
        yield from self.tools
        yield from self.system
        for _, parts in self.messages:
            yield from parts


def parse_request(body: Any, *, counting: bool = False) -> MessagesRequest:
    """Check the body of a request.

    Args:
        body: Parsed JSON.
        counting: Whether only tokens are to be counted, so that no ``max_tokens`` is needed.

    Raises:
        InvalidRequestError: Something is wrong; the message says where.
    """
    fields = Fields(body, "")
    for key in _UNSUPPORTED:
        # Counting takes the request of a compaction, and counts the conversation as sent.
        if fields.get(key) and not (counting and key == "compaction"):
            raise fields.refuse(key, "is not supported by this server")
    fields.only({*_ACCEPTED, *_UNSUPPORTED})
    _check_ignored(fields)
    max_tokens = fields.integer("max_tokens", 0)
    if max_tokens is None and not counting:
        raise fields.refuse("max_tokens", "is required")
    schemas, tools = _tools(fields)
    diagnostics, config = fields.child("diagnostics"), _output_config(fields)
    request = MessagesRequest(
        model=fields.text("model"),
        max_tokens=max_tokens,
        tools=tools,
        tool_schemas=schemas,
        system=_system(fields),
        messages=_messages(fields),
        choice=_choice(fields, {tool.ids or "" for tool in tools}),
        stream=fields.flag("stream"),
        stop_sequences=_stops(fields),
        temperature=_or(fields.number("temperature", 0.0, 1.0), 1.0),
        top_k=fields.integer("top_k", 0) or None,
        top_p=_or(fields.number("top_p", 0.0, 1.0), 1.0) or 1e-9,
        seed=fields.integer("seed", 0, 2**63 - 1),
        automatic=parse_marker(fields),
        thinking=_thinking(fields, max_tokens),
        context=_context(fields),
        effort=config[0],
        output_format=config[1],
        speed=fields.choice("speed", ("standard", "fast")) or "standard",
        diagnosed=diagnostics is not None,
        previous=diagnostics.optional_text("previous_message_id") if diagnostics else None,
    )
    check_conversation(request.messages)
    if request.choice.is_forced and request.thinks_at_length:
        raise fields.refuse("thinking", "may not be enabled where tool_choice forces a call")
    if max_tokens == 0:
        _check_prewarm(request, fields)
    return request


def check_conversation(messages: Sequence[tuple[str, tuple[Part, ...]]]) -> None:
    """Refuse results without a call, and calls without a result.

    Raises:
        InvalidRequestError: There is one.
    """
    turns: list[tuple[str, list[Part]]] = []
    for role, parts in messages:
        if role == "system":
            continue
        if turns and turns[-1][0] == role:
            turns[-1][1].extend(parts)
        else:
            turns.append((role, list(parts)))
    called: dict[str, Part] = {}
    for role, turn in turns:
        if role == "user":
            answered = {part.ids for part in turn if part.kind == "tool_result"}
            for part in turn:
                if part.kind == "tool_result" and part.ids not in called:
                    raise InvalidRequestError(
                        join(part.path, "tool_use_id"), "no tool_use of the turn before has this id"
                    )
            for name, part in called.items():
                if name not in answered:
                    raise InvalidRequestError(part.path, "this tool_use has no tool_result next")
        called = {part.ids or "": part for part in turn if part.kind == "tool_use"}


def _tools(fields: Fields) -> tuple[dict[str, Mapping[str, Any]], tuple[Part, ...]]:
    schemas: dict[str, Mapping[str, Any]] = {}
    parts, names = [], set()
    for path, item in fields.items("tools"):
        part = parse_tool(item, path)
        name = part.ids or ""
        if name in names:
            raise InvalidRequestError(join(path, "name"), "tool names must be unique")
        names.add(name)
        if isinstance(item.get("input_schema"), dict):
            schemas[name] = item["input_schema"]
        parts.append(part)
    return schemas, tuple(parts)


def _system(fields: Fields) -> tuple[Part, ...]:
    value = fields.get("system")
    if value is None or value == "":
        return ()
    if isinstance(value, str):
        return parse_content(value, "system", "system")
    return tuple(parse_system(item, path) for path, item in fields.items("system"))


def _messages(fields: Fields) -> tuple[tuple[str, tuple[Part, ...]], ...]:
    found = []
    for path, item in fields.items("messages"):
        message = Fields(item, path)
        message.only(("role", "content", "output_config", "clear_at"))
        role = message.choice("role", ROLES)
        if role is None:
            raise message.refuse("role", "is required")
        if "content" not in message.raw:
            raise message.refuse("content", "is required")
        shown = message.choice("clear_at", _SHOWN)
        if shown is not None and role != "system":
            raise message.refuse("clear_at", "is allowed on messages of the system only")
        parts = parse_content(message.get("content"), message.at("content"), role)
        found.append((role, parts, shown == "next_user_message"))
    if not found:
        raise fields.refuse("messages", "at least one message is required")
    for index, (role, parts, _) in enumerate(found):
        is_last = index == len(found) - 1
        if not parts and not (is_last and role == "assistant"):
            raise InvalidRequestError(f"messages.{index}.content", "must not be empty")
    last = max((i for i, (role, _, _) in enumerate(found) if role == "user"), default=-1)
    kept = [m[:2] for i, m in enumerate(found) if not m[2] or i > last]
    _check_continued(*kept[-1])
    return tuple(kept)


def _check_continued(role: str, parts: Sequence[Part]) -> None:
    if role == "assistant" and parts and parts[-1].kind == "text":
        text = parts[-1].segments[-1]
        if isinstance(text, str) and text != text.rstrip():
            raise InvalidRequestError(
                parts[-1].path, "the text that the answer continues must not end in whitespace"
            )


def _choice(fields: Fields, names: set[str]) -> Choice:
    choice = fields.child("tool_choice")
    if choice is None:
        return Choice()
    choice.only(("type", "name", "disable_parallel_tool_use"))
    kind = choice.choice("type", ("auto", "any", "tool", "none"))
    if kind is None:
        raise choice.refuse("type", "is required")
    name = None
    if kind == "tool":
        name = choice.text("name")
        if name not in names:
            raise choice.refuse("name", "there is no tool of this name")
    if kind == "any" and not names:
        raise fields.refuse("tool_choice", "needs tools")
    return Choice(kind=kind, name=name, parallel=not choice.flag("disable_parallel_tool_use"))


def _stops(fields: Fields) -> tuple[str, ...]:
    stops = fields.texts("stop_sequences")
    if len(stops) > MOST_STOPS:
        raise fields.refuse("stop_sequences", f"at most {MOST_STOPS} are allowed")
    for index, stop in enumerate(stops):
        if not stop.strip():
            raise InvalidRequestError(
                f"stop_sequences.{index}", "must contain more than whitespace"
            )
    return stops


def _thinking(fields: Fields, max_tokens: int | None) -> str | None:
    """The setting as JSON; accepted, though the models here think aloud or not at all."""
    thinking = fields.child("thinking")
    if thinking is None:
        return None
    kind = thinking.choice("type", _THINKING)
    if kind is None:
        raise thinking.refuse("type", "is required")
    if kind == "enabled":
        budget = thinking.integer("budget_tokens", 1024)
        if budget is None:
            raise thinking.refuse("budget_tokens", "is required")
        if max_tokens is not None and budget >= max_tokens:
            raise thinking.refuse("budget_tokens", "must be less than max_tokens")
    return None if kind == "disabled" else canonical(thinking.raw)


def _check_ignored(fields: Fields) -> None:
    """What changes nothing here must still be what the API takes."""
    metadata = fields.child("metadata")
    if metadata is not None:
        metadata.optional_text("user_id")
    fields.choice("service_tier", _TIERS)
    fields.optional_text("inference_geo")
    fields.texts("betas")
    for path, item in fields.items("fallbacks") if fields.get("fallbacks") != "default" else ():
        Fields(item, path).text("model")
    billing = fields.child("billing_policy")
    if billing is not None and billing.choice("bill_to", ("self", "user_profile")) not in (
        None,
        "self",
    ):
        raise billing.refuse("bill_to", "only self is known to this server")


def _context(fields: Fields) -> str | None:
    context = fields.child("context_management")
    return None if context is None else canonical(context.raw)


def _output_config(fields: Fields) -> tuple[str | None, Mapping[str, Any] | None]:
    config = fields.child("output_config")
    if config is None:
        return None, None
    config.only(("effort", "format", "task_budget"))
    effort = config.choice("effort", _EFFORTS)
    wanted = config.child("format")
    if wanted is None:
        return (None if effort == "high" else effort), None
    if wanted.get("type") != "json_schema":
        raise wanted.refuse("type", "must be json_schema")
    schema = wanted.child("schema")
    if schema is None:
        raise wanted.refuse("schema", "is required")
    return (None if effort == "high" else effort), schema.raw


def _check_prewarm(request: MessagesRequest, fields: Fields) -> None:
    """Nothing to generate: what only makes sense for an answer is refused."""
    conflicts = {
        "stream": request.stream,
        "thinking": request.thinks_at_length,
        "output_config.format": request.output_format is not None,
        "tool_choice": request.choice.is_forced,
    }
    for key, conflict in conflicts.items():
        if conflict:
            raise fields.refuse(key, "cannot be combined with max_tokens 0")


def _or(value: float | None, default: float) -> float:
    return default if value is None else value
