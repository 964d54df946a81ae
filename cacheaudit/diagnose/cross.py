"""Joins what is known of single sessions: shared beginnings, changed lifetimes, repeated notes.

An audit hands over one session after the other and keeps none of them. Of each session a few
numbers a lane stay behind, so that memory is bounded by the number of lanes, and that by a limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from cacheaudit.diagnose.context import LOSS_TOKENS
from cacheaudit.diagnose.days import Days
from cacheaudit.diagnose.events import Opening
from cacheaudit.diagnose.fanout import fan_outs, repeats
from cacheaudit.diagnose.fronts import Fronts
from cacheaudit.diagnose.money import Prices, premium, total
from cacheaudit.diagnose.notes import Notes
from cacheaudit.diagnose.rule import find_rule
from cacheaudit.diagnose.runner import Diagnosis
from cacheaudit.diagnose.wording import count
from cacheaudit.model.call import Call, Session
from cacheaudit.model.finding import CallLoss, Evidence, Finding, Verdict

_MOST_BEGINNINGS = 50_000
_MOST_OF_ONE = 64
_BLOCKS = 64
_FAN_OUT = "fan-out-without-warm-up"
_TWINS = "concurrent-identical-writes"
_REPEATED = "repeated-cold-starts"
_UNPRICED = "price-unknown"
_LISTED = 50


class Beginning(msgspec.Struct, frozen=True):
    """First call of a lane, without its prompt.

    Attributes:
        call: The call, stripped of its prompt.
        session: Its session.
        project: Its project; beginnings of different ones are compared only where bodies exist.
        total: Size of its prompt.
        read: Tokens read.
        written: Tokens written.
        digests: Digests of its first content blocks, where the body was recorded.
        sizes: Their sizes in tokens, where they are known.
        is_claimed: A rule explains its writes within its session.
    """

    call: Call
    session: str
    project: str | None
    total: int
    read: int
    written: int
    digests: tuple[bytes, ...] = ()
    sizes: tuple[int | None, ...] = ()
    is_claimed: bool = False


class CrossState:
    """What an audit keeps of the sessions that it has seen.

    Args:
        most: Beginnings to keep; later ones are counted in ``left_out`` and not compared.
    """

    def __init__(self, most: int = _MOST_BEGINNINGS) -> None:
        self._most = most
        self._beginnings: list[Beginning] = []
        self._days = Days()
        self._notes = Notes()
        self._fronts = Fronts()
        self._models: dict[tuple[str | None, str], tuple[Call, int]] = {}
        self.left_out = 0

    def add(self, session: Session, diagnosis: Diagnosis) -> tuple[Finding, ...]:
        """Take in a session.

        Returns:
            The findings to report for it: losses and failed rules. Its notes are kept and come
            out of :meth:`findings`, joined with those of other sessions.
        """
        self._add_beginnings(session, diagnosis)
        self._fronts.add(diagnosis.openings[:_MOST_OF_ONE])
        self._days.add(session, *diagnosis.lifetimes)
        for model in {call.model for call in session.calls}:
            if model is not None:
                self._add_model(session, model)
        notes = [finding for finding in diagnosis.findings if finding.kind == "note"]
        self._notes.add(notes)
        return tuple(finding for finding in diagnosis.findings if finding.kind != "note")

    def findings(self, book: Prices | None = None) -> tuple[Finding, ...]:
        """Return what only shows across sessions, then the joined notes."""
        found = [*self._together(book), *self._repeated(), *self._fronts.findings()]
        changed = self._days.finding()
        if changed is not None:
            found.append(changed)
        unpriced = None if book is None else self._unpriced(book)
        if unpriced is not None:
            found.append(unpriced)
        return (*found, *self._notes.findings())

    def _add_beginnings(self, session: Session, diagnosis: Diagnosis) -> None:
        openings = diagnosis.openings[:_MOST_OF_ONE]
        room = self._most - len(self._beginnings)
        self.left_out += len(diagnosis.openings) - min(len(openings), max(room, 0))
        claimed = {
            call
            for finding in diagnosis.findings
            if finding.name in (_FAN_OUT, _TWINS) and finding.kind == "loss"
            for call in finding.calls
        }
        for opening in openings[: max(room, 0)]:
            if opening.written > LOSS_TOKENS:
                self._beginnings.append(_beginning(session, opening, opening.call.id in claimed))

    def _add_model(self, session: Session, model: str) -> None:
        call = next(call for call in session.calls if call.model == model)
        key = (call.provider, model)
        known, number = self._models.get(key, (_slim(call), 0))
        self._models[key] = (known, number + 1)

    def _by_project(self) -> Iterator[list[Beginning]]:
        groups: dict[str, list[Beginning]] = {}
        for one in self._beginnings:
            if one.project is not None:
                groups.setdefault(one.project, []).append(one)
        yield from groups.values()

    def _together(self, book: Prices | None) -> Iterator[Finding]:
        """Beginnings of several sessions that started together and wrote about the same."""
        number = 0
        for members in self._by_project():
            for group in fan_outs(members):
                leader = group[0]
                lost = [
                    (one, _shared(leader, one, group))
                    for one in group[1:]
                    if one.session != leader.session and not one.is_claimed
                ]
                lost = [(one, tokens) for one, tokens in lost if tokens > LOSS_TOKENS]
                if lost:
                    yield _fan_out(leader, lost, book, number)
                    number += 1

    def _repeated(self) -> Iterator[Finding]:
        """Beginnings of several sessions that wrote the same although the first one still lived."""
        number = 0
        for members in self._by_project():
            for group in repeats(members):
                if len({one.session for one in group}) > 1:
                    yield _repeat(group, number)
                    number += 1

    def _unpriced(self, book: Prices) -> Finding | None:
        missing = [
            (model, number)
            for (_, model), (call, number) in sorted(
                self._models.items(), key=lambda item: item[0][1]
            )
            if _card(book, call) is None
        ]
        if not missing:
            return None
        return _finding(
            _UNPRICED,
            0,
            calls=(),
            established=tuple(
                f"No price is known for {model} ({number} session{'s' if number > 1 else ''})."
                for model, number in missing[:_LISTED]
            ),
        )


def _card(book: Prices, call: Call) -> object | None:
    usage = call.usage
    return book.card(
        call.provider,
        call.model,
        None if call.relative_time else call.at,
        surface=call.surface,
        total_input=None if usage is None else usage.total_input,
    )


def _beginning(session: Session, opening: Opening, is_claimed: bool) -> Beginning:
    prompt = opening.call.prompt
    blocks = () if prompt is None else prompt.blocks[:_BLOCKS]
    return Beginning(
        call=_slim(opening.call),
        session=session.id,
        project=session.project,
        total=opening.total,
        read=opening.read,
        written=opening.written,
        digests=tuple(block.digest for block in blocks),
        sizes=tuple(block.tokens for block in blocks),
        is_claimed=is_claimed,
    )


def _slim(call: Call) -> Call:
    return msgspec.structs.replace(
        call, prompt=None, boundaries=(), origin=None, extra={}, diagnostics=None, error=None
    )


def _shared(leader: Beginning, one: Beginning, group: Sequence[Beginning]) -> int:
    """Tokens that one beginning wrote and the leader too; without bodies the most they can be."""
    known = _common(leader, one)
    if known is None:
        return min(member.written for member in group)
    return min(max(0, known - one.read), one.written)


def _common(leader: Beginning, one: Beginning) -> int | None:
    """Tokens of the common blocks from the front; ``None`` where bodies or sizes are missing."""
    if not leader.digests or not one.digests:
        return None
    tokens = 0
    for a, b, size in zip(leader.digests, one.digests, one.sizes, strict=False):
        if a != b:
            break
        if size is None:
            return None
        tokens += size
    return tokens


def _fan_out(
    leader: Beginning, lost: list[tuple[Beginning, int]], book: Prices | None, number: int
) -> Finding:
    are_equal = all(one.written == leader.written for one, _ in lost)
    have_bodies = all(_common(leader, one) is not None for one, _ in lost)
    verdict: Verdict = "proved" if have_bodies else "consistent"
    evidence: Evidence = "body_diff" if have_bodies else "usage"
    tokens = sum(part for _, part in lost)
    premiums = [premium(one.call, book, part) for one, part in lost]
    sessions = len({one.session for one, _ in lost} | {leader.session})
    # Nearly equal sizes in two sessions may be chance: worth a look, and no loss on the bill.
    is_loss = are_equal or have_bodies
    bound = "" if have_bodies else "at most "
    return _finding(
        _TWINS if are_equal else _FAN_OUT,
        number,
        kind="loss" if is_loss else "note",
        verdict=verdict,
        evidence=evidence,
        calls=(leader.call.id, *(one.call.id for one, _ in lost)),
        established=(
            (
                f"{len(lost) + 1} conversations in {sessions} sessions began within seconds of "
                f"{leader.call.id}; each read {count(leader.read)} tokens and wrote about "
                f"{count(leader.written)}, {bound}{count(tokens)} of them more than once."
            ),
        ),
        to_check=(
            "How much of what they wrote is the same: tools and system.",
            "Whether a marker stands at the end of what they share.",
        ),
        tokens_lost=tokens if is_loss else 0,
        lost=total(premiums) if is_loss else None,
        places=tuple(
            CallLoss(one.call.id, part, total([paid]))
            for (one, part), paid in zip(lost, premiums, strict=True)
        )
        if is_loss
        else (),
    )


def _repeat(group: Sequence[Beginning], number: int) -> Finding:
    first = group[0]
    common = [_common(first, one) for one in group[1:]]
    known = [tokens for tokens in common if tokens is not None]
    sessions = len({one.session for one in group})
    lines = [
        (
            f"{len(group)} conversations in {sessions} sessions each began with "
            f"{count(first.read)} tokens read and {count(first.written)} written, each within the "
            "lifetime of what the one before had written."
        )
    ]
    is_proved = len(known) == len(common) and min(known) > first.read + LOSS_TOKENS
    if is_proved:
        lines.append(f"Their bodies share at least {count(min(known))} tokens from the front.")
    return _finding(
        _REPEATED,
        number,
        verdict="proved" if is_proved else "consistent",
        evidence="body_diff" if is_proved else "usage",
        calls=tuple(one.call.id for one in group[:_LISTED]),
        established=tuple(lines),
        to_check=(
            "Whether their prompts are the same, and up to where.",
            "Whether they use the same account and workspace.",
        ),
    )


def _finding(
    name: str,
    number: int,
    *,
    calls: tuple[str, ...],
    established: tuple[str, ...],
    kind: str = "note",
    verdict: Verdict = "proved",
    evidence: Evidence = "usage",
    **fields: object,
) -> Finding:
    rule = find_rule(name)
    assert rule is not None  # noqa: S101 - names of rules of this package
    return msgspec.structs.replace(
        Finding(
            id=f"{rule.id}:across:{number}",
            rule=rule.id,
            name=rule.name,
            title=rule.title,
            verdict=verdict,
            evidence=evidence,
            calls=calls,
            established=established,
            fix=rule.fix,
            kind="loss" if kind == "loss" else "note",
        ),
        **fields,
    )
