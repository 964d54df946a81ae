"""One stored page: its bytes, what they are for, and proof that they are whole."""

from __future__ import annotations

import hashlib
import struct

from local_backend.errors import RecordError

# Identity of a page in a tier: the group's tag and the chained identity of its prefix.
TAG_BYTES = 4
TIER_KEY_BYTES = TAG_BYTES + 16
LAYOUT_BYTES = 16

_MAGIC = b"KVP1"
_HEADER = struct.Struct(f"<4s{LAYOUT_BYTES}s{TIER_KEY_BYTES}sQ16s")


def tier_key(group: str, key: bytes) -> bytes:
    """Identity of a page of a group; two groups keep different bytes for the same tokens."""
    return hashlib.blake2b(group.encode(), digest_size=TAG_BYTES, person=b"kv-group").digest() + key


def _digest(layout: bytes, key: bytes, payload: bytes) -> bytes:
    return hashlib.blake2b(payload, digest_size=16, key=layout + key, person=b"kv-sum").digest()


def encode(key: bytes, layout: bytes, payload: bytes) -> bytes:
    """A record that says what it is."""
    check = _digest(layout, key, payload)
    return _HEADER.pack(_MAGIC, layout, key, len(payload), check) + payload


def decode(record: bytes, key: bytes, layout: bytes) -> bytes:
    """The payload of a record.

    Raises:
        RecordError: It is torn, damaged, of another page, or of another memory layout; its
            ``reason`` is ``torn``, ``damaged``, ``key`` or ``layout``.
    """
    if len(record) < _HEADER.size:
        raise RecordError("the record ends inside its header", "torn")
    magic, own_layout, own_key, size, check = _HEADER.unpack_from(record)
    if magic != _MAGIC:
        raise RecordError("this is no record of this version", "damaged")
    if own_layout != layout:
        raise RecordError("the page was stored by a model with another memory layout", "layout")
    if own_key != key:
        raise RecordError("the record is of another page", "key")
    payload = record[_HEADER.size :]
    if len(payload) != size:
        raise RecordError(f"the record has {len(payload)} of {size} bytes", "torn")
    if _digest(layout, key, payload) != check:
        raise RecordError("the bytes do not fit their checksum", "damaged")
    return payload
