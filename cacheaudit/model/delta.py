"""A prompt taken apart: a list of entries that grows from call to call, and what is its own.

Two prompts of a session share the beginning of their lists, so only the rest need be written.
Markers move and sizes are estimated anew at every call; they are therefore no part of the list.
Exact: ``build(settings(p), entries(p), texts)`` is ``p`` again, but for canonical bytes that are
not among the texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

import msgspec

from cacheaudit.model.prompt import (
    ContentBlock,
    Level,
    Marker,
    Parameter,
    Prompt,
    TokenOrigin,
    digest,
)
from cacheaudit.model.redact import without_text

LONGEST_SETTING = 64


class Settings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What belongs to one prompt alone.

    Attributes:
        provider: As in :class:`cacheaudit.model.prompt.Prompt`.
        model: As there.
        level_order: As there.
        parameters: As there; a value longer than ``LONGEST_SETTING`` bytes (a schema, say), and one
            that holds more than names and numbers, may have been replaced by its digest.
        automatic_marker: As there.
        only_explicit: As there.
        markers: (index of the content block, lifetime) of every marker.
        tokens: Size of every content block; empty where none is known.
        origins: (number of content blocks, origin of their sizes), in order.
    """

    provider: str
    model: str | None = None
    level_order: tuple[Level, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    automatic_marker: Marker | None = None
    only_explicit: bool = False
    markers: tuple[tuple[int, str | None], ...] = ()
    tokens: tuple[int | None, ...] = ()
    origins: tuple[tuple[int, TokenOrigin | None], ...] = ()


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One content block of a list with its cumulative identity, without its marker and size."""

    level: Level
    path: str
    kind: str
    role: str | None
    name: str | None
    message: int
    digest: bytes
    prefix: bytes
    media_bytes: int
    size: int


def entries(prompt: Prompt, start: int = 0) -> tuple[Entry, ...]:
    """List the content blocks from ``start`` on."""
    return tuple(
        Entry(
            block.level,
            block.path,
            block.kind,
            block.role,
            block.name,
            block.message,
            block.digest,
            prefix,
            block.media_bytes,
            block.size,
        )
        for block, prefix in zip(prompt.blocks[start:], prompt.prefix_digests[start:], strict=True)
    )


def shared(prompt: Prompt, base: Sequence[Entry]) -> int:
    """Count the leading content blocks that stand in ``base`` as they are."""
    count = 0
    for block, prefix, old in zip(prompt.blocks, prompt.prefix_digests, base, strict=False):
        if (
            prefix != old.prefix
            or block.digest != old.digest
            or block.path != old.path
            or block.kind != old.kind
            or block.level != old.level
            or block.message != old.message
            or block.name != old.name
            or block.role != old.role
            or block.media_bytes != old.media_bytes
            or block.size != old.size
        ):
            break
        count += 1
    return count


def settings(prompt: Prompt, *, with_text: bool) -> Settings:
    """Return what belongs to the prompt beside its list of content blocks."""
    is_sized = any(b.tokens is not None or b.tokens_origin is not None for b in prompt.blocks)
    return Settings(
        provider=prompt.provider,
        model=prompt.model,
        level_order=prompt.level_order,
        parameters=prompt.parameters if with_text else tuple(map(_short, prompt.parameters)),
        automatic_marker=prompt.automatic_marker,
        only_explicit=prompt.only_explicit,
        markers=tuple(
            (index, block.marker.ttl)
            for index, block in enumerate(prompt.blocks)
            if block.marker is not None
        ),
        tokens=tuple(block.tokens for block in prompt.blocks) if is_sized else (),
        origins=_origins(prompt) if is_sized else (),
    )


def build(own: Settings, listed: Sequence[Entry], texts: Mapping[bytes, bytes]) -> Prompt:
    """Put a prompt together again.

    Args:
        own: What belongs to this prompt alone.
        listed: Its content blocks.
        texts: Canonical bytes by digest; those that are not there stay empty.
    """
    markers = {index: Marker(ttl) for index, ttl in own.markers}
    tokens = own.tokens or (None,) * len(listed)
    origins = tuple(origin for count, origin in own.origins for _ in range(count))
    origins = origins or (None,) * len(listed)
    blocks: list[ContentBlock] = []
    for index, (entry, count, origin) in enumerate(zip(listed, tokens, origins, strict=True)):
        text = texts.get(entry.digest)
        blocks.append(
            ContentBlock(
                level=entry.level,
                path=entry.path,
                kind=entry.kind,
                role=entry.role,
                name=entry.name,
                message=entry.message,
                canonical=b"" if text is None else text,
                digest=entry.digest,
                tokens=count,
                tokens_origin=origin,
                marker=markers.get(index),
                media_bytes=entry.media_bytes,
                canonical_bytes=entry.size if text is None else 0,
            )
        )
    return Prompt(
        provider=own.provider,
        model=own.model,
        level_order=own.level_order,
        parameters=own.parameters,
        blocks=tuple(blocks),
        prefix_digests=tuple(entry.prefix for entry in listed),
        automatic_marker=own.automatic_marker,
        only_explicit=own.only_explicit,
    )


def _origins(prompt: Prompt) -> tuple[tuple[int, TokenOrigin | None], ...]:
    runs = groupby(block.tokens_origin for block in prompt.blocks)
    return tuple((len(list(run)), origin) for origin, run in runs)


def _short(parameter: Parameter) -> Parameter:
    """Replace a value that may hold text of the user's by its digest."""
    if len(parameter.value) <= LONGEST_SETTING:
        value = msgspec.json.decode(parameter.value)
        if without_text(value) == value:
            return parameter
    hidden = msgspec.json.encode(f"blake2b:{digest(parameter.value).hex()}")
    return msgspec.structs.replace(parameter, value=hidden)
