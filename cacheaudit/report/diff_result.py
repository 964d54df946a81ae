"""What ``diff`` says, in the shape of its JSON."""

from __future__ import annotations

import msgspec

DIFF_SCHEMA = "cacheaudit.diff/1"


class DiffSide(msgspec.Struct, frozen=True):
    """One of the two requests that are compared."""

    where: str
    provider: str
    model: str | None
    content_blocks: int
    tokens: int | None
    tokens_origin: str | None


class DiffChange(msgspec.Struct, frozen=True):
    """Where the second request leaves the first.

    ``before`` and ``after`` say what stands there; ``before_text`` and ``after_text`` show it, with
    letters and digits masked unless the text was asked for.
    """

    level: str
    path: str
    byte_offset: int | None
    kind: str
    tokens_after: int | None
    tokens_origin: str | None = None
    prompt_byte_offset: int = 0
    before: str | None = None
    after: str | None = None
    before_text: str | None = None
    after_text: str | None = None
    masked: bool = True


class DiffCommon(msgspec.Struct, frozen=True):
    """Equal leading content blocks of tools and system, whole messages, and blocks in all."""

    tools: int
    system: int
    messages: int
    content_blocks: int


class DiffCost(msgspec.Struct, frozen=True):
    """What the change costs: writing the tokens behind it instead of reading them."""

    amount: str
    currency: str
    input_equivalents: str | None
    write_ttl: str
    price_id: str
    source: str
    checked: str


class DiffResult(msgspec.Struct, frozen=True, kw_only=True):
    """The first change between two requests."""

    equal: bool
    relation: str
    first_change: DiffChange | None
    common: DiffCommon
    cost: DiffCost | None
    cost_reason: str | None
    a: DiffSide
    b: DiffSide
    schema: str = DIFF_SCHEMA
