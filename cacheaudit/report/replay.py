"""The result of ``cacheaudit replay``: predicted, reported and replayed. A public contract."""

from __future__ import annotations

import msgspec

from cacheaudit.report.simulation import Parts

REPLAY_SCHEMA = "cacheaudit.replay/1"


class Reason(msgspec.Struct, frozen=True):
    """Why two of the three figures of a call differ, or why one is missing.

    Attributes:
        kind: In a word: ``evicted``, ``granularity``, ``below_minimum`` …; docs/guide/replay.md
            lists them.
        text: In a sentence.
    """

    kind: str
    text: str


class ReplayedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call. Tokens are those of the record, whatever the scale, except in ``sent``.

    Attributes:
        id: Call id.
        session: Its session.
        lane: Its lane.
        basis: What was sent: ``request`` with the recorded content blocks, ``usage`` where the
            request was drawn from usage alone, ``none`` where nothing was.
        predicted: What the provider's rules say; ``None``: that cannot be said.
        reported: What was billed; ``None`` for a call that an edit adds, or without usage.
        replayed: What the engine did; ``None`` where nothing was sent or the request failed.
        why: Why they differ; empty where they agree.
        sent: Tokens as the server counted them.
        first_token_s: Seconds from the start to the engine's first token.
        restore_s: Seconds of it spent on pages from slower memory.
    """

    id: str
    session: str
    lane: str
    basis: str
    predicted: Parts | None
    reported: Parts | None
    replayed: Parts | None
    why: list[Reason] = []
    sent: Parts | None = None
    first_token_s: float | None = None
    restore_s: float | None = None


class ReplayTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the calls that were replayed and, for the other figures, have them too.

    Attributes:
        calls: All calls.
        replayed_calls: Calls that the engine answered.
        failed_calls: Calls that were sent and failed.
        compared_calls: Calls that were replayed and predicted.
        equal_calls: Those whose reads and writes are equal.
        reproduced_calls: Calls whose reported reads and writes the engine reproduced.
        reported_calls: Calls that were replayed and report their cache use.
        predicted: Sums of what was predicted.
        reported: Sums of what was billed.
        replayed: Sums of what the engine did.
        sent: The same as the server counted it.
        first_token_s: Seconds that all first tokens took together; ``None`` where none is known.
        unknown_calls: Of which sums calls lack a part, and how many: ``reported`` → part → calls;
            such a sum is a lower bound.
    """

    calls: int
    replayed_calls: int
    failed_calls: int
    compared_calls: int
    equal_calls: int
    reported_calls: int
    reproduced_calls: int
    predicted: Parts
    reported: Parts
    replayed: Parts
    sent: Parts
    first_token_s: float | None
    unknown_calls: dict[str, dict[str, int]] = {}


class BackendRow(msgspec.Struct, frozen=True, kw_only=True):
    """What answered.

    Attributes:
        url: ``local`` for the engine that was started for this replay, else the address.
        model: Its model, where it says so.
        rules: Cache rules in front of it, by the number of calls that went there.
        content: ``filler`` of recorded size, or the recorded ``bodies``.
        sizes: ``exact`` where the server counted every content block as planned, ``floored`` where
            some were larger than their scaled size allows, ``approximate`` else.
    """

    url: str
    model: str | None
    rules: dict[str, int]
    content: str
    sizes: str


class ReplayResult(msgspec.Struct, frozen=True, kw_only=True):
    """The whole result.

    Attributes:
        schema: Name and version of this shape.
        calls: In order of start.
        totals: Sums.
        rules_version: Day of the newest provider rule.
        backend: What answered.
        clock: ``recorded`` or ``fast``.
        scale: Recorded tokens that one token sent stands for.
        switches: Disputed rules that were set to something else than their default.
        edits: What was changed before the replay.
        refused: Changes that the record does not allow, as they were asked for, with the reason.
        problems: What could not be read, by kind.
    """

    schema: str = REPLAY_SCHEMA
    calls: list[ReplayedCall]
    totals: ReplayTotals
    rules_version: str
    backend: BackendRow
    clock: str
    scale: int
    switches: dict[str, str] = {}
    edits: list[str] = []
    refused: dict[str, str] = {}
    problems: dict[str, int] = {}
