"""A request as the provider sees it: ordered content blocks with cumulative identity.

Invariants: two prompts share their first ``n`` content blocks exactly when
``a.prefix_digests[n - 1] == b.prefix_digests[n - 1]``; a cache marker, wherever it moves, changes
no digest; the digests are the same in every process.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    import hashlib

Level = Literal["tools", "system", "messages"]
TokenOrigin = Literal["recorded", "counted", "estimated"]
DIGEST_BYTES = 16


class Marker(msgspec.Struct, frozen=True, gc=False):
    """A cache marker. ``ttl`` is ``None`` where the provider's default applies."""

    ttl: str | None = None


class Parameter(msgspec.Struct, frozen=True, gc=False):
    """A setting outside the content that takes part in the cache key.

    Attributes:
        name: Field of the body, such as ``tool_choice`` or ``output_config.effort``.
        level: First level that a change of it invalidates, as documented.
        value: Canonical JSON of its value.
    """

    name: str
    level: Level
    value: bytes


class ContentBlock(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One content block of a prompt.

    Attributes:
        level: Part of the prompt that it belongs to.
        path: Where it stands in the body: ``tools[3]``, ``system[0]``, ``messages[4].content[1]``.
        kind: ``tool``, ``text``, ``image``, ``tool_use``, ``tool_result``, ``thinking`` …
        role: Role of its message; ``None`` outside messages.
        name: Name of a tool, id of a tool call.
        message: Index of its message in the body, -1 outside messages.
        canonical: UTF-8 JSON of what the provider hashes: without markers and without the choice
            between text and a list of one text block; media replaced by their digest. Key order
            inside tool schemas and tool inputs is kept, since it is part of the prompt.
        digest: 16 bytes of BLAKE2b over ``canonical``.
        tokens: Size in tokens.
        tokens_origin: Where ``tokens`` comes from.
        marker: The cache marker that stands on it.
        media_bytes: Decoded size of an image or document, 0 for others.
        canonical_bytes: Length of ``canonical`` where only its digest was kept and ``canonical`` is
            therefore empty; 0 where ``canonical`` is there.
    """

    level: Level
    path: str
    kind: str
    role: str | None = None
    name: str | None = None
    message: int = -1
    canonical: bytes
    digest: bytes
    tokens: int | None = None
    tokens_origin: TokenOrigin | None = None
    marker: Marker | None = None
    media_bytes: int = 0
    canonical_bytes: int = 0

    @property
    def size(self) -> int:
        """Length of the canonical bytes, whether or not they were kept."""
        return self.canonical_bytes or len(self.canonical)


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """A whole request.

    Attributes:
        provider: Whose rules it was expanded by.
        model: Model as sent.
        level_order: Levels in the provider's render order.
        parameters: Settings that take part in the cache key.
        blocks: Content blocks in render order.
        prefix_digests: ``prefix_digests[i]`` identifies everything up to and including block ``i``,
            parameters of the levels reached so far included.
        automatic_marker: The marker that the request asks the provider to place by itself.
        only_explicit: The request asks that nothing but marked prefixes be kept.
        marked: Positions of the content blocks that bear a marker; always worked out anew from
            ``blocks``, whatever is given.
    """

    provider: str
    model: str | None
    level_order: tuple[Level, ...]
    parameters: tuple[Parameter, ...]
    blocks: tuple[ContentBlock, ...]
    prefix_digests: tuple[bytes, ...]
    automatic_marker: Marker | None = None
    only_explicit: bool = False
    marked: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """List the markers once, so that nobody has to look for them again."""
        marked = tuple([i for i, block in enumerate(self.blocks) if block.marker is not None])
        msgspec.structs.force_setattr(self, "marked", marked)

    def at_level(self, level: Level) -> tuple[ContentBlock, ...]:
        """Return the content blocks of one level, in order."""
        return tuple(block for block in self.blocks if block.level == level)

    @property
    def tokens(self) -> int | None:
        """Size in tokens, or ``None`` where the size of any content block is not known."""
        total = 0
        for block in self.blocks:
            if block.tokens is None:
                return None
            total += block.tokens
        return total

    @property
    def size_bytes(self) -> int:
        """Canonical bytes of all content blocks, media not counted."""
        return sum(block.size for block in self.blocks)


@cache
def _hasher() -> type[hashlib.blake2b]:
    """BLAKE2b, loaded with the first digest: most recorded sessions carry no bodies."""
    import hashlib

    return hashlib.blake2b


def digest(data: bytes) -> bytes:
    """Identify canonical bytes: 16 bytes of BLAKE2b."""
    return _hasher()(data, digest_size=DIGEST_BYTES).digest()


def chain(
    level_order: tuple[Level, ...],
    parameters: tuple[Parameter, ...],
    blocks: tuple[ContentBlock, ...],
    previous: Prompt | None = None,
) -> tuple[bytes, ...]:
    """Compute the cumulative identity after each content block.

    Args:
        level_order: Render order; the parameters of a level are mixed in where the level begins,
            so that a ``messages`` setting leaves the identity of tools and system alone.
        parameters: Settings in the cache key.
        blocks: Content blocks in render order.
        previous: A prompt whose digests are taken over for the leading blocks that both share.

    Returns:
        One 16-byte digest a block.
    """
    shared = _shared_blocks(level_order, parameters, blocks, previous)
    digests: list[bytes] = []
    if previous is not None and shared:
        digests.extend(previous.prefix_digests[:shared])
    state = digests[-1] if digests else b"\0" * DIGEST_BYTES
    level = blocks[shared - 1].level if shared else None
    seeds = _level_seeds(level_order, parameters)
    blake2b = _hasher()
    for block in blocks[shared:]:
        if block.level != level:
            state = _enter(state, level_order, level, block.level, seeds)
            level = block.level
        state = blake2b(state + block.digest, digest_size=DIGEST_BYTES).digest()
        digests.append(state)
    return tuple(digests)


def _level_seeds(
    level_order: tuple[Level, ...], parameters: tuple[Parameter, ...]
) -> dict[Level, bytes]:
    seeds: dict[Level, bytes] = {}
    for level in level_order:
        mine = sorted((p.name.encode(), p.value) for p in parameters if p.level == level)
        seeds[level] = digest(b"\0".join(name + b"\1" + value for name, value in mine))
    return seeds


def _enter(
    state: bytes,
    level_order: tuple[Level, ...],
    old: Level | None,
    new: Level,
    seeds: dict[Level, bytes],
) -> bytes:
    """Mix in the seeds of every level passed on the way from ``old`` to ``new``, empty ones too."""
    start = 0 if old is None else level_order.index(old) + 1
    for level in level_order[start : level_order.index(new) + 1]:
        state = digest(state + level.encode() + seeds[level])
    return state


def _shared_blocks(
    level_order: tuple[Level, ...],
    parameters: tuple[Parameter, ...],
    blocks: tuple[ContentBlock, ...],
    previous: Prompt | None,
) -> int:
    """Count leading blocks whose chain can be taken over from ``previous`` unchanged."""
    if previous is None or previous.level_order != level_order:
        return 0
    reach = _levels_with_equal_parameters(level_order, parameters, previous.parameters)
    count = 0
    for mine, theirs in zip(blocks, previous.blocks, strict=False):
        if mine.level not in reach or mine.level != theirs.level:
            break
        if mine.digest is not theirs.digest and mine.digest != theirs.digest:
            break
        count += 1
    return count


def _levels_with_equal_parameters(
    level_order: tuple[Level, ...], mine: tuple[Parameter, ...], theirs: tuple[Parameter, ...]
) -> set[Level]:
    equal: set[Level] = set()
    for level in level_order:
        if {p for p in mine if p.level == level} != {p for p in theirs if p.level == level}:
            break
        equal.add(level)
    return equal
