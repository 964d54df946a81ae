"""What makes two prefixes the same: tokens, everything before them, and what else shapes their KV.

Identities are BLAKE2b digests of tagged, length-prefixed fields. Nothing in them is drawn at
random, so every process arrives at the same ones, and no field can stand in for another.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

TOKEN_BYTES = 4
KEY_BYTES = 16
MAX_TOKEN = 2**31 - 1

# Bytes that distinguish a page beyond its tokens, and the offset in the page where they begin.
PageExtra = tuple[bytes, int]


def tagged(tag: str, value: bytes) -> bytes:
    """One field of an identity, so framed that no two lists of fields give the same bytes."""
    name = tag.encode()
    return bytes([len(name)]) + name + len(value).to_bytes(4, "little") + value


@dataclass(frozen=True, slots=True)
class Namespace:
    """Conditions that all tokens of a prompt share. Prompts of two namespaces share nothing.

    Attributes:
        weights: Identity of the weights, for example a digest of the file or seed and shape.
        salt: Isolates users or workspaces from one another.
        adapter: Name and revision of an adapter (LoRA).
        numerics: What changes KV at equal weights: data type, RoPE scaling, quantisation.
    """

    weights: str
    salt: str = ""
    adapter: str = ""
    numerics: str = ""

    def root(self) -> bytes:
        """The identity from which chains of this namespace start."""
        fields = (
            ("weights", self.weights),
            ("salt", self.salt),
            ("adapter", self.adapter),
            ("numerics", self.numerics),
        )
        framed = b"".join(tagged(name, value.encode()) for name, value in fields)
        return hashlib.blake2b(framed, digest_size=KEY_BYTES, person=b"kv-root").digest()


@dataclass(frozen=True, slots=True)
class Span:
    """Positions whose token ids are mere placeholders for something else, such as an image.

    Attributes:
        start: First position.
        length: Number of positions.
        digest: Of the content that the placeholders stand for.
        kind: What it is; spans of two kinds never match.
    """

    start: int
    length: int
    digest: bytes
    kind: str = "media"

    def page_extra(self, page_start: int) -> PageExtra:
        """What it adds to the page that starts at a position."""
        offset = self.start - page_start
        place = offset.to_bytes(8, "little", signed=True) + self.length.to_bytes(8, "little")
        return tagged(self.kind, self.digest + place), max(offset, 0)


class TokenKey:
    """The tokens of one prompt, with all that their KV depends on.

    Tokens are kept as little-endian 32-bit integers in one ``bytes``: comparing and cutting
    prefixes then costs a memory comparison instead of a loop.

    Args:
        namespace: The conditions, or their ``root()``.
        tokens: Ids in order, or their bytes.
        spans: Placeholders, in order and apart.
    """

    __slots__ = ("_chains", "_extras", "data", "root", "spans")

    def __init__(
        self,
        namespace: Namespace | bytes,
        tokens: Iterable[int] | bytes = b"",
        spans: tuple[Span, ...] = (),
    ) -> None:
        self.root = namespace if isinstance(namespace, bytes) else namespace.root()
        self.data = tokens if isinstance(tokens, bytes) else pack_tokens(tokens)
        self.spans = spans
        # By page size; most keys are never asked for either.
        self._chains: dict[int, list[bytes]] | None = None
        self._extras: dict[int, Mapping[int, PageExtra]] | None = None

    def __len__(self) -> int:
        return len(self.data) // TOKEN_BYTES

    def copy(self) -> TokenKey:
        """An independent key with the same content."""
        other = TokenKey.__new__(type(self))
        other.root = self.root
        other.data = self.data
        other.spans = self.spans
        chains = self._chains
        other._chains = {size: list(chain) for size, chain in chains.items()} if chains else None
        other._extras = self._extras
        return other

    def append(self, tokens: bytes, spans: tuple[Span, ...] = ()) -> None:
        """Add tokens, and the placeholders among them, at the end."""
        self.data += tokens
        if spans:
            self.spans += spans
            self._extras = None

    def cut(self, length: int) -> None:
        """Drop every token from a position on."""
        self.data = self.data[: length * TOKEN_BYTES]
        if self.spans:
            self.spans = tuple(span for span in self.spans if span.start < length)
            self._extras = None
        for size, chain in (self._chains or {}).items():
            del chain[length // size :]

    def tokens(self) -> list[int]:
        """The ids."""
        return unpack_tokens(self.data)

    def extras(self, page_size: int) -> Mapping[int, PageExtra]:
        """By page, what distinguishes it beyond its tokens; most prompts have none."""
        if not self.spans:
            return {}
        known = self._extras or {}
        found = known.get(page_size)
        if found is None:
            found = _page_extras(self.spans, page_size)
            self._extras = {**known, page_size: found}
        return found

    def chain(self, page_size: int, count: int) -> list[bytes]:
        """At least the first ``count`` chained identities of whole pages; fewer if there are none.

        The list belongs to the key: read it, and do not keep it across an append or a cut.
        """
        if self._chains is None:
            self._chains = {}
        chain = self._chains.setdefault(page_size, [])
        known = len(chain)
        stop = min(count, len(self) // page_size)
        if known < stop:
            parent = chain[-1] if chain else self.root
            chain += self._digests(page_size, known, stop, parent)
        return chain

    def identity(self, page_size: int, index: int, parent: bytes) -> bytes:
        """Identity of one whole page.

        Args:
            page_size: Tokens in a page.
            index: Which page.
            parent: Identity of the page before it, or of the namespace.
        """
        known = self._chains.get(page_size) if self._chains else None
        if known is not None and index < len(known):
            return known[index]
        step = page_size * TOKEN_BYTES
        extra = self.extras(page_size).get(index) if self.spans else None
        return page_key(parent, self.data[index * step : (index + 1) * step], extra)

    def identities(self, page_size: int, first: int, last: int, parent: bytes) -> list[bytes]:
        """Identities of whole pages from one on, without those before them.

        Args:
            page_size: Tokens in a page.
            first: The first page.
            last: The page behind the last.
            parent: Identity of the page before the first, or of the namespace.
        """
        known = self._chains.get(page_size) if self._chains else None
        if known is not None and last <= len(known):
            return known[first:last]
        return self._digests(page_size, first, last, parent)

    def _digests(self, page_size: int, first: int, last: int, parent: bytes) -> list[bytes]:
        step = page_size * TOKEN_BYTES
        data = self.data
        found: list[bytes] = []
        if self.spans:
            extras = self.extras(page_size)
            for index in range(first, last):
                page = data[index * step : (index + 1) * step]
                parent = page_key(parent, page, extras.get(index))
                found.append(parent)
            return found
        begin = _PAGE.copy
        for at in range(first * step, last * step, step):
            state = begin()
            state.update(parent + data[at : at + step])
            parent = state.digest()
            found.append(parent)
        return found


# Copied, never updated: a copy costs less than a digest that begins anew.
_PAGE: Final = hashlib.blake2b(digest_size=KEY_BYTES, person=b"kv-page")
_PAGE_EXTRA: Final = hashlib.blake2b(digest_size=KEY_BYTES, person=b"kv-page-extra")


def page_key(parent: bytes, page: bytes, extra: PageExtra | None = None) -> bytes:
    """Identity of one page: that of everything before it, its tokens, and what else shapes it."""
    if extra is None:
        state = _PAGE.copy()
        state.update(parent + page)
    else:
        state = _PAGE_EXTRA.copy()
        state.update(parent + page + extra[0])
    return state.digest()


def pack_tokens(tokens: Iterable[int]) -> bytes:
    """Token ids as little-endian 32-bit integers.

    Raises:
        ValueError: An id is negative or does not fit.
    """
    try:
        packed = array("I", tokens)
    except OverflowError as error:
        raise ValueError(f"a token id is negative or above {MAX_TOKEN}") from error
    return _little_endian(packed).tobytes()


def unpack_tokens(data: bytes) -> list[int]:
    """The ids behind ``pack_tokens``."""
    packed = array("I")
    packed.frombytes(data)
    return _little_endian(packed).tolist()


def _little_endian(packed: array[int]) -> array[int]:
    if packed.itemsize != TOKEN_BYTES:  # pragma: no cover - no supported platform
        raise ValueError("array('I') does not have 32 bits here")
    if int.from_bytes(array("H", [1]).tobytes(), "little") != 1:  # pragma: no cover - big endian
        packed.byteswap()
    return packed


def _page_extras(spans: tuple[Span, ...], page_size: int) -> dict[int, PageExtra]:
    found: dict[int, PageExtra] = {}
    for span in spans:
        first = span.start // page_size
        for page in range(first, (span.start + span.length - 1) // page_size + 1):
            extra, offset = span.page_extra(page * page_size)
            if page in found:
                extra, offset = found[page][0] + extra, found[page][1]
            found[page] = (extra, offset)
    return found
