"""Content blocks of a request: checked, and split into text and placeholders in render order."""

from __future__ import annotations

import binascii
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from local_backend.server.checks import Fields, join
from local_backend.server.errors import InvalidRequestError

DIGEST = 16
_COMMON = ("type", "cache_control")
# Blocks that only a hosted service makes or runs. They are shown to the model as their JSON.
_AS_JSON = frozenset(
    {
        "redacted_thinking",
        "server_tool_use",
        "web_search_tool_result",
        "web_fetch_tool_result",
        "code_execution_tool_result",
        "bash_code_execution_tool_result",
        "text_editor_code_execution_tool_result",
        "tool_search_tool_result",
        "mcp_tool_use",
        "mcp_tool_result",
        "mcp_tool_listing",
        "advisor_tool_result",
        "container_upload",
        "compaction",
        "tool_addition",
        "tool_removal",
    }
)
_USER_ONLY = frozenset({"image", "document", "search_result", "tool_result", "container_upload"})
_ASSISTANT_ONLY = frozenset(
    {"thinking", "redacted_thinking", "tool_use", "server_tool_use", "mcp_tool_listing", "fallback"}
)
_SYSTEM_ONLY = frozenset({"tool_addition", "tool_removal"})
_UNMARKABLE = frozenset({"thinking", "redacted_thinking", "mcp_tool_listing", "fallback"})
_ALLOWED = ((_USER_ONLY, "user"), (_ASSISTANT_ONLY, "assistant"), (_SYSTEM_ONLY, "system"))
_MEDIA_TYPES = {
    "image": ("image/jpeg", "image/png", "image/gif", "image/webp"),
    "document": ("application/pdf",),
}


@dataclass(frozen=True, slots=True)
class Media:
    """What is known to the engine by its digest only.

    Attributes:
        digest: Of its source.
        kind: ``image`` or ``document``.
    """

    digest: bytes
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One content block.

    Attributes:
        kind: Its type.
        segments: Texts and placeholders that it is rendered from.
        digest: Of its JSON without markers.
        path: Where it stands.
        ttl: Lifetime that its marker asks for; None for no marker.
        markable: Whether it may bear a marker.
        cites: Whether it asks for citations.
        ids: Of a tool call, or of the call that a result answers; of a tool its name.
    """

    kind: str
    segments: tuple[str | Media, ...]
    digest: bytes
    path: str
    ttl: str | None = None
    markable: bool = True
    cites: bool = False
    ids: str | None = None

    @property
    def has_image(self) -> bool:
        """Whether there is an image in it."""
        return any(isinstance(s, Media) and s.kind == "image" for s in self.segments)


def canonical(value: Any) -> str:
    """JSON as short as it gets, keys in the order of the request."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def digest_of(value: Any) -> bytes:
    """Digest of a value; markers in it count for nothing."""
    text = canonical(_unmarked(value)).encode("utf-8", errors="surrogatepass")
    return hashlib.blake2b(text, digest_size=DIGEST).digest()


def parse_marker(fields: Fields) -> str | None:
    """Lifetime that the marker of an object asks for; None where it has none.

    Raises:
        InvalidRequestError: It is no marker.
    """
    marker = fields.child("cache_control")
    if marker is None:
        return None
    marker.only(("type", "ttl", "scope"))
    if marker.get("type") != "ephemeral":
        raise marker.refuse("type", "must be ephemeral")
    return marker.choice("ttl", ("5m", "1h")) or "5m"


def parse_tool(value: Any, path: str) -> Part:
    """A tool definition.

    Raises:
        InvalidRequestError: It is none.
    """
    fields = Fields(value, path)
    kind = fields.optional_text("type") or "custom"
    # A set of tools has a type, or a server, instead of a name.
    name = _set_of_tools(fields, kind) or fields.text("name")
    if kind == "custom":
        if len(name) > 128 or not all(c.isascii() and (c.isalnum() or c in "_-") for c in name):
            raise fields.refuse("name", "must be 1 to 128 letters, digits, '_' or '-'")
        schema = fields.child("input_schema")
        if schema is None:
            raise fields.refuse("input_schema", "is required")
        if schema.get("type") != "object":
            raise schema.refuse("type", "must be object")
        fields.optional_text("description")
    deferred = fields.flag("defer_loading")
    ttl = parse_marker(fields)
    if deferred and ttl is not None:
        raise fields.refuse("cache_control", "cannot be set where defer_loading is true")
    return Part(
        kind="tool",
        segments=(canonical(_unmarked(value)),),
        digest=digest_of(value),
        path=path,
        ttl=ttl,
        markable=not deferred,
        ids=name,
    )


def _set_of_tools(fields: Fields, kind: str) -> str:
    if kind == "mcp_toolset":
        return fields.text("mcp_server_name")
    return kind if "_toolset_" in kind and fields.get("name") is None else ""


def parse_system(value: Any, path: str) -> Part:
    """A content block of the system prompt: text.

    Raises:
        InvalidRequestError: It is no text.
    """
    if Fields(value, path).get("type") != "text":
        raise InvalidRequestError(join(path, "type"), "must be text")
    return parse_block(value, path, "system")


def parse_content(value: Any, path: str, role: str) -> tuple[Part, ...]:
    """The content of a message: a text, or content blocks.

    Raises:
        InvalidRequestError: It is neither, or a content block is wrong.
    """
    if isinstance(value, str):
        block = {"type": "text", "text": value}
        return (parse_block(block, path, role, text_path=path),)
    if not isinstance(value, list):
        raise InvalidRequestError(path, "must be a string or a list of content blocks")
    return tuple(parse_block(item, join(path, i), role) for i, item in enumerate(value))


def parse_block(value: Any, path: str, role: str, *, text_path: str | None = None) -> Part:
    """One content block.

    Args:
        value: Its JSON.
        path: Where it stands.
        role: Of the message.
        text_path: Where its text stands, if not in a field of its own.

    Raises:
        InvalidRequestError: It is wrong.
    """
    fields = Fields(value, path)
    kind = fields.text("type")
    if any(kind in kinds and role != only for kinds, only in _ALLOWED):
        raise fields.refuse("type", f"{kind} is not allowed in a message of the {role}")
    ttl = parse_marker(fields)
    lifted, segments, ids, cites = None, _segments(fields, kind, text_path), None, False
    if kind == "tool_result":
        lifted = _lifted_marker(fields)
        ids = fields.text("tool_use_id")
    elif kind in ("tool_use", "server_tool_use"):
        ids = fields.text("id")
    elif kind == "document":
        asked = fields.child("citations")
        cites = asked is not None and asked.flag("enabled")
    is_blank = kind == "text" and not value["text"].strip()
    return Part(
        kind=kind,
        segments=segments,
        digest=digest_of(value),
        path=path,
        ttl=ttl or lifted,
        markable=kind not in _UNMARKABLE and not is_blank,
        cites=cites,
        ids=ids,
    )


def _segments(fields: Fields, kind: str, text_path: str | None) -> tuple[str | Media, ...]:
    if kind == "text":
        text = fields.text("text", empty=True)
        if not text:
            where = text_path or fields.at("text")
            raise InvalidRequestError(where, "text content blocks must not be empty")
        return (text,)
    if (reader := _READERS.get(kind)) is not None:
        return reader(fields)
    if kind in _AS_JSON:
        return (canonical(_unmarked(fields.raw)),)
    raise fields.refuse("type", f"{kind!r} is not a known type of content block")


def _read_media(fields: Fields) -> tuple[str | Media, ...]:
    kind = str(fields.get("type"))
    source = fields.child("source")
    if source is None:
        raise fields.refuse("source", "is required")
    needed = {"base64": "data", "url": "url", "file": "file_id", "text": "data"}
    form = source.text("type")
    if form == "content" and kind == "document":
        inner = source.get("content")
        return tuple(
            s for p in parse_content(inner, source.at("content"), "user") for s in p.segments
        )
    if form not in needed or (form == "text" and kind == "image"):
        raise source.refuse("type", f"{form!r} is not a known source of an {kind}")
    data = source.text(needed[form])
    if form == "text":
        return (data,)
    if form == "base64":
        _check_base64(source, kind)
    return (Media(digest_of(source.raw), kind),)


def _check_base64(source: Fields, kind: str) -> None:
    source.text("media_type")
    source.choice("media_type", _MEDIA_TYPES[kind])
    try:
        binascii.a2b_base64(source.text("data"), strict_mode=True)
    except ValueError:
        raise source.refuse("data", "is not valid base64") from None


def _read_fallback(fields: Fields) -> tuple[str | Media, ...]:
    """Where another model took over: it is sent back, and shown to no model."""
    for key in ("from", "to"):
        if fields.child(key) is None:
            raise fields.refuse(key, "is required")
    return ()


def _read_document(fields: Fields) -> tuple[str | Media, ...]:
    heads = (fields.optional_text(key) for key in ("title", "context"))
    return (*(f"{head}\n" for head in heads if head), *_read_media(fields))


def _read_search_result(fields: Fields) -> tuple[str | Media, ...]:
    head = f"{fields.text('title')}\n{fields.text('source')}\n"
    return (head, *(s for p in _inner(fields) for s in p.segments))


def _read_tool_use(fields: Fields) -> tuple[str | Media, ...]:
    fields.only((*_COMMON, "id", "name", "input", "caller"))
    call = {"id": fields.text("id"), "name": fields.text("name")}
    if fields.child("input") is None:
        raise fields.refuse("input", "is required")
    return (canonical({**call, "input": fields.get("input")}),)


def _read_tool_result(fields: Fields) -> tuple[str | Media, ...]:
    fields.only((*_COMMON, "tool_use_id", "content", "is_error"))
    flag = " error" if fields.flag("is_error") else ""
    head = f"{fields.text('tool_use_id')}{flag}\n"
    return (head, *(s for p in _inner(fields) for s in p.segments))


def _read_thinking(fields: Fields) -> tuple[str | Media, ...]:
    fields.text("signature", empty=True)
    return (fields.text("thinking", empty=True),)


def _read_tool_reference(fields: Fields) -> tuple[str | Media, ...]:
    return (fields.text("tool_name"),)


def _inner(fields: Fields) -> tuple[Part, ...]:
    """Content blocks inside one."""
    value = fields.get("content")
    if value is None or value == "":
        return ()
    return parse_content(value, fields.at("content"), "user")


def _lifted_marker(fields: Fields) -> str | None:
    """The marker on the last content block inside a result; it counts for the result."""
    parts = _inner(fields)
    for part in parts[:-1]:
        if part.ttl is not None:
            raise InvalidRequestError(
                join(part.path, "cache_control"),
                "is allowed on the last content block of a tool result only",
            )
    return parts[-1].ttl if parts else None


def _unmarked(value: Any) -> Any:
    """A copy without markers, those of content blocks inside a content block included."""
    if not isinstance(value, Mapping):
        return value
    copy = {key: item for key, item in value.items() if key != "cache_control"}
    if isinstance(copy.get("content"), list):
        copy["content"] = [_unmarked(item) for item in copy["content"]]
    return copy


_Reader = Callable[[Fields], tuple[str | Media, ...]]
_READERS: Mapping[str, _Reader] = {
    "image": _read_media,
    "document": _read_document,
    "search_result": _read_search_result,
    "tool_use": _read_tool_use,
    "tool_result": _read_tool_result,
    "thinking": _read_thinking,
    "tool_reference": _read_tool_reference,
    "fallback": _read_fallback,
}
