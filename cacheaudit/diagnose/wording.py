"""Sentences that several rules need, each with its figures."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.events import Event
from cacheaudit.diagnose.times import Timing, seconds_of
from cacheaudit.model.call import Call
from cacheaudit.model.change import Change
from cacheaudit.model.clock import iso
from cacheaudit.model.finding import Place, Rival

SERVER = Rival(
    "provider-side-suspected",
    "The provider may have dropped or not found the stored prefix, or another account or machine "
    "was asked.",
)
PARAMETER = Rival(
    "parameter-changed",
    "A parameter that only the message part depends on (tool_choice, thinking, effort) "
    "may have differed.",
)
SYSTEM = Rival(
    "system-changed",
    "A change in the last part of the system prompt, where a marker stands in front of it.",
)
IMAGES = Rival(
    "messages-changed", "Images that come or go, or an edited early message, have the same effect."
)
LOOKBACK = Rival(
    "lookback-or-message-change",
    "More than 20 new positions behind the last marker hide the older entry.",
)
ROUTING = Rival(
    "provider-side-suspected",
    "Requests that alternate between accounts, workspaces or machines have separate caches.",
)

TOGETHER = Rival(
    "fan-out-without-warm-up",
    "Requests that run side by side cannot read what the others are still writing.",
)
MIXED = Rival(
    "unrelated-prompts",
    "Calls of two conversations that were recorded as one take turns in the same way.",
)


def count(tokens: int) -> str:
    """Write a count with thousands separated by commas."""
    return f"{tokens:,}"


def first_of(number: int, first: str) -> str:
    """Name the first of some things, or the only one."""
    return f": {first}" if number == 1 else f", the first of them {first}"


def sum_of(counts: Iterable[int | None]) -> str | None:
    """Write a sum; as a lower bound where some counts are unknown, ``None`` where all are."""
    every = list(counts)
    known = [tokens for tokens in every if tokens is not None]
    if not known:
        return None
    least = "at least " if len(known) < len(every) else ""
    return least + count(sum(known))


def written_by(*calls: Call) -> str | None:
    """Write what calls wrote to the cache together, as :func:`sum_of` does."""
    return sum_of(None if call.usage is None else call.usage.cache_write for call in calls)


def shortfall(event: Event) -> str:
    """Say what was read of what could have been."""
    return (
        f"{event.call.id}: {count(event.read)} of {count(event.expected)} tokens were read, "
        f"{count(event.lost)} were sent again."
    )


def gap(timing: Timing) -> str | None:
    """Say how long the prefix had not been touched, from start to start."""
    if timing.low is None or timing.high is None:
        return None
    if timing.high - timing.low < 1:
        return seconds_of(timing.high)
    low, high = seconds_of(max(timing.low, 0.0)), seconds_of(timing.high)
    return low if low == high else f"between {low} and {high}"


def lifetime(timing: Timing) -> str:
    """Name the lifetime in force and where it is known from."""
    if timing.ttl is None:
        return "an unknown lifetime"
    how = "assumed: the record has no lifetime" if timing.ttl_assumed else "as recorded"
    return f"{seconds_of(timing.ttl)} ({how})"


def expiry_line(event: Event) -> str:
    """Say what the times prove about expiry."""
    timing, span = event.timing, gap(event.timing)
    if span is None:
        return "Start times are not known, so that expiry can be neither shown nor excluded."
    if timing.overlaps:
        return (
            f"The previous request began {span} earlier and had not begun to answer: what it wrote "
            "could not be read yet."
        )
    if timing.ttl is None:
        return f"The previous request began {span} earlier; the lifetime is not known."
    if timing.state == "under":
        return (
            f"The previous request began {span} earlier, within the lifetime of "
            f"{lifetime(timing)}: expiry alone does not explain the miss."
        )
    if timing.state == "over":
        return f"The previous request began {span} earlier, beyond {lifetime(timing)}."
    return (
        f"The previous request began {span} earlier, which leaves open whether "
        f"{lifetime(timing)} had passed."
    )


def aftermath(event: Event) -> tuple[str, ...]:
    """Say what the next call read, which tells a lasting change from a passing one."""
    if event.next_read == "full":
        return (
            (
                "The next call read all that this one left in the cache, so the new prefix stayed "
                "in use."
            ),
        )
    if event.next_read == "older":
        return (
            (
                "The next call read exactly what an older call had left in the cache: what "
                "differed here was undone again."
            ),
        )
    return ()


def client_line(event: Event) -> tuple[str, ...]:
    """Say where another client program, or another version of it, made this call."""
    before, after = event.previous.client, event.call.client
    if before is None or after is None or before == after:
        return ()
    call = event.call
    when = "" if call.at is None or call.relative_time else f" ({iso(call.at)})"
    return (
        (
            f"The client program changed with it: {before} up to {event.previous.id}, {after} "
            f"from {call.id} on{when}."
        ),
    )


def client_check(event: Event) -> tuple[str, ...]:
    """What is left to ask about the client program, where the record does not name it."""
    if event.previous.client is not None and event.call.client is not None:
        return ()
    return ("Whether the client program was updated just before.",)


def reason_lines(event: Event) -> tuple[str, ...]:
    """Repeat what the provider said, and what that does and does not mean."""
    reason = event.reason
    if reason is None:
        return ()
    if reason == "none":
        return (
            "The provider compared the request with the one before it and found no divergence.",
        )
    if reason == "previous_message_not_found":
        return (
            (
                "The provider had no fingerprint of the previous message; that says nothing about "
                "this request."
            ),
        )
    if reason == "unavailable":
        return (
            (
                "The provider answered `unavailable`, which includes requests whose tools, system "
                "and model match but whose other parameters differ."
            ),
        )
    said = event.call.diagnostics
    missed = said.missed_tokens if said is not None else None
    size = f", {count(missed)} tokens by its own estimate" if missed is not None else ""
    return (f"The provider says `{reason}`{size}.",)


def describe(change: Change) -> str:
    """Say where two bodies part, without their text."""
    place = f"{change.path} ({change.level})"
    if change.kind == "parameter":
        return f"First difference: parameter {place}."
    words = change.kind.replace("_", " ")
    sizes = " → ".join(part for part in (change.before, change.after) if part)
    detail = f": {sizes}" if sizes else ""
    at = "" if change.byte_offset is None else f" at byte {change.byte_offset}"
    return f"First difference: {place}, {words}{at}{detail}."


def place(change: Change | None) -> Place | None:
    """Return the published form of a change's place."""
    if change is None:
        return None
    return Place(change.level, change.path, change.byte_offset)
