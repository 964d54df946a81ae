"""What every expander needs: drafts of content blocks, canonical text, media by digest."""

from __future__ import annotations

import binascii
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from cacheaudit.errors import PromptError
from cacheaudit.model.prompt import (
    ContentBlock,
    Level,
    Marker,
    Parameter,
    Prompt,
    chain,
    digest,
)

encode: Final = msgspec.json.Encoder().encode
_sorted: Final = msgspec.json.Encoder(order="sorted").encode


class Draft:
    """A content block before its digest is known."""

    __slots__ = ("canonical", "kind", "level", "marker", "media", "message", "name", "path", "role")

    def __init__(  # one slot a field, built once per content block
        self,
        level: Level,
        path: str,
        kind: str,
        canonical: bytes,
        marker: Marker | None,
        *,
        role: str | None = None,
        name: str | None = None,
        message: int = -1,
        media: int = 0,
    ) -> None:
        self.level: Level = level
        self.path = path
        self.kind = kind
        self.canonical = canonical
        self.marker = marker
        self.role = role
        self.name = name
        self.message = message
        self.media = media

    def finish(self, old: ContentBlock | None) -> ContentBlock:
        """Make the block, taking over ``old`` or its digest where the content is the same."""
        if old is not None and old.canonical == self.canonical:
            if (
                old.path == self.path
                and old.level == self.level
                and old.kind == self.kind
                and old.name == self.name
                and old.marker == self.marker
                and old.message == self.message
                and old.tokens is None
            ):
                return old
            identity, canonical = old.digest, old.canonical
        else:
            identity, canonical = digest(self.canonical), self.canonical
        return ContentBlock(
            level=self.level,
            path=self.path,
            kind=self.kind,
            role=self.role,
            name=self.name,
            message=self.message,
            canonical=canonical,
            digest=identity,
            marker=self.marker,
            media_bytes=self.media,
        )


@contextmanager
def expanding() -> Iterator[None]:
    """Turn failures to write the body as JSON into an error that says so.

    Raises:
        PromptError: The body holds something that JSON in UTF-8 cannot hold.
    """
    try:
        yield
    except (UnicodeEncodeError, RecursionError, TypeError) as problem:
        raise PromptError(
            f"The request cannot be written as JSON: {type(problem).__name__}.",
            "Check it for broken text, too deep nesting or values that JSON does not have.",
        ) from problem


def build(
    provider: str,
    model: Any,
    level_order: tuple[Level, ...],
    parameters: tuple[Parameter, ...],
    drafts: Iterable[Draft],
    previous: Prompt | None,
    automatic_marker: Marker | None = None,
) -> Prompt:
    """Make a prompt of drafts, in the order given; what ``previous`` shares is taken over."""
    reuse = previous.blocks if previous is not None else ()
    blocks = tuple(
        draft.finish(reuse[index] if index < len(reuse) else None)
        for index, draft in enumerate(drafts)
    )
    return Prompt(
        provider=provider,
        model=model if isinstance(model, str) else None,
        level_order=level_order,
        parameters=parameters,
        blocks=blocks,
        prefix_digests=chain(level_order, parameters, blocks, previous),
        automatic_marker=automatic_marker,
    )


def text_draft(
    level: Level, path: str, text: str, role: str | None, marker: Marker | None, message: int
) -> Draft:
    """Draft a block of plain text."""
    body = b'{"text":' + encode(text) + b',"type":"text"'
    canonical = body + b"}" if role is None else body + b',"role":' + encode(role) + b"}"
    return Draft(level, path, "text", canonical, marker, role=role, message=message)


def list_of(body: Mapping[str, Any], field: str) -> list[Any]:
    """Return a field that must be a list; an empty one where it is absent.

    Raises:
        PromptError: It is something else.
    """
    value = body.get(field)
    if value is None:
        return []
    if not isinstance(value, list):
        raise PromptError(f"{field!r} is {type(value).__name__}, not a list.")
    return value


def object_at(value: Any, path: str) -> dict[str, Any]:
    """Return a value that must be an object.

    Raises:
        PromptError: It is something else.
    """
    if not isinstance(value, dict):
        raise PromptError(f"{path} is {type(value).__name__}, not an object.")
    return value


def own_fields(block: Mapping[str, Any], dropped: frozenset[str]) -> dict[str, Any]:
    """Return a block's fields in one fixed order, without markers and nulls."""
    return {
        key: block[key] for key in sorted(block) if key not in dropped and block[key] is not None
    }


def decoded_media(data: str) -> tuple[str, int]:
    """Return the digest of base64 data and its decoded size."""
    import base64

    try:
        raw = base64.b64decode(data)
    except (binascii.Error, ValueError):
        raw = data.encode(errors="surrogatepass")
    return f"blake2b:{digest(raw).hex()}", len(raw)


def data_url(url: str) -> tuple[str, int]:
    """Replace the data of a ``data:`` URL by its digest; other URLs stay as they are."""
    if not url.startswith("data:"):
        return url, 0
    head, _, data = url.partition(",")
    identity, size = decoded_media(data)
    return f"{head},{identity}", size


def value_at(body: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted path, ``None`` where any part of it is absent."""
    value: Any = body
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def parameters_of(
    body: Mapping[str, Any],
    wanted: Iterable[tuple[str, Level]],
    defaults: Mapping[str, Any],
) -> list[Parameter]:
    """Collect settings of the cache key; a setting that says its default is left out."""
    found: list[Parameter] = []
    for path, level in wanted:
        value = value_at(body, path)
        if value is not None and value != defaults.get(path):
            found.append(Parameter(path, level, _sorted(value)))
    return found


def hidden_value(value: Any) -> bytes:
    """Stand for a value that may hold a secret by its digest."""
    return encode(f"blake2b:{digest(_sorted(value)).hex()}")
