"""Runs all rules over a session and settles who explains which lost tokens.

Every lost token gets one cause: claims are served in order of rank, the most specific first, and
what nobody explains ends up in ``unexplained-loss``. Rules that could have explained a token that
another one took are listed as rivals of that one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from functools import lru_cache

import msgspec

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.events import Opening
from cacheaudit.diagnose.money import Premium, Prices, premium, total
from cacheaudit.diagnose.rule import Draft, Rule, all_rules
from cacheaudit.diagnose.survey import lifetimes
from cacheaudit.diagnose.wording import count, place, sum_of, written_by
from cacheaudit.diagnose.worth import affordable_pings, saving, stage_line
from cacheaudit.model.call import Session
from cacheaudit.model.change import Change
from cacheaudit.model.finding import CallLoss, Finding, Fix, Rival
from cacheaudit.model.plural import plural

UNEXPLAINED = "unexplained-loss"
# Statements of single calls in one finding; more are counted.
_STATEMENTS = 12
_LISTED = 8
# Drafts of a note whose stages are told.
_STAGED = 4
# Claims up to this rank rest on more than sizes.
_STRONG_RANK = 13


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of one session.

    Attributes:
        findings: Losses by size, then notes, then rules that failed.
        changes: First change of a prompt against the one before it in its lane, by id of the call.
        earlier: Position of the call that a change is against, by id of the call that changed.
        tokens_lost: All lost tokens.
        tokens_unexplained: Those of them that no rule explains.
        openings: First calls of lanes, for comparison with other sessions.
        lifetimes: Tokens written for five minutes and for one hour.
    """

    findings: tuple[Finding, ...]
    changes: dict[str, Change]
    earlier: dict[str, int] = {}
    tokens_lost: int = 0
    tokens_unexplained: int = 0
    openings: tuple[Opening, ...] = ()
    lifetimes: tuple[int, int] = (0, 0)


class _Share:
    """Part of a call's lost tokens that one draft explains."""

    __slots__ = ("draft", "offset", "rivals", "rule", "tokens")

    def __init__(self, rule: Rule, draft: Draft, tokens: int, offset: int) -> None:
        self.rule = rule
        self.draft = draft
        self.tokens = tokens
        self.offset = offset
        self.rivals: list[Rival] = list(draft.rivals)


def diagnose(
    session: Session, book: Prices | None = None, rules: Sequence[Rule] | None = None
) -> Diagnosis:
    """Find what took the lost tokens of a session.

    Args:
        session: The session.
        book: Prices; without them losses are given in input equivalents only.
        rules: Rules to run instead of all.
    """
    ctx = Context(session)
    if not (ctx.events or ctx.openings or ctx.changes or ctx.unanswered):
        return Diagnosis(findings=(), changes={})
    drafts, errors = _drafts(ctx, all_rules() if rules is None else rules)
    drafts = _without_void(ctx, drafts)
    notes = [pair for pair in drafts if pair[0].kind == "note"]
    shares = _settled(ctx, [pair for pair in drafts if pair[0].kind == "loss"])
    losses = [_loss(session, group, book, n) for n, group in enumerate(_grouped(shares))]
    losses.sort(key=_weight, reverse=True)
    calls = session.calls
    return Diagnosis(
        findings=(*losses, *_notes(session, notes, book), *errors),
        changes={calls[index].id: change for index, change in ctx.changes.items()},
        earlier={calls[index].id: before for index, before in ctx.earlier.items()},
        tokens_lost=sum(share.tokens for share in shares),
        tokens_unexplained=sum(s.tokens for s in shares if s.rule.name == UNEXPLAINED),
        openings=tuple(ctx.openings),
        lifetimes=lifetimes(ctx),
    )


def _drafts(ctx: Context, rules: Iterable[Rule]) -> tuple[list[tuple[Rule, Draft]], list[Finding]]:
    """Run the rules; one that fails becomes a finding and its drafts are dropped."""
    found: list[tuple[Rule, Draft]] = []
    errors: list[Finding] = []
    for rule in _asked(tuple(rules), ctx.shows):
        if rule.name == UNEXPLAINED:
            ctx.left = _left(ctx, found)
        drafts: list[tuple[Rule, Draft]] = []
        try:
            for draft in rule.check(ctx):  # no comprehension: most rules have nothing to say
                drafts.append((rule, draft))  # noqa: PERF401
        except Exception as error:
            errors.append(_failure(ctx.session, rule, error))
        else:
            found += drafts
    return found, errors


@lru_cache(maxsize=64)
def _asked(rules: tuple[Rule, ...], shows: frozenset[str]) -> tuple[Rule, ...]:
    """Leave out rules that have nothing to look at, and put the remainder last.

    The remainder looks at calls alone of which something may be left.
    """
    asked = [rule for rule in rules if not rule.looks_at or not shows.isdisjoint(rule.looks_at)]
    return tuple(sorted(asked, key=lambda rule: rule.name == UNEXPLAINED))


def _without_void(ctx: Context, drafts: list[tuple[Rule, Draft]]) -> list[tuple[Rule, Draft]]:
    """Take back what was said of calls that could not have read more than they did."""
    void = {draft.index for _, draft in drafts if draft.void}
    if not void:
        return drafts
    ctx.events = [event for event in ctx.events if event.index not in void]
    return [
        (rule, draft)
        for rule, draft in drafts
        if draft.void or rule.kind == "note" or draft.index not in void
    ]


def _left(ctx: Context, found: list[tuple[Rule, Draft]]) -> set[int]:
    """Positions of events of which the first claim is not for all."""
    first: dict[int, tuple[int, str, int]] = {}
    for rule, draft in found:
        if draft.claims and rule.kind == "loss":
            mine = (draft.rank, rule.id, draft.claims)
            first[draft.index] = min(mine, first.get(draft.index, mine))
    nothing = (0, "", 0)
    return {event.index for event in ctx.events if first.get(event.index, nothing)[2] < event.lost}


def _failure(session: Session, rule: Rule, error: Exception) -> Finding:
    return Finding(
        id=f"{rule.id}:{session.id}:error",
        rule=rule.id,
        name=rule.name,
        title=f"The rule {rule.name} failed and says nothing of this session",
        verdict="unknown",
        evidence="usage",
        calls=(),
        established=(f"{type(error).__name__} in {type(rule).__module__}.",),
        to_check=("Report it; the other rules are not affected.",),
        kind="error",
        session=session.id,
    )


def _settled(ctx: Context, drafts: list[tuple[Rule, Draft]]) -> list[_Share]:
    """Give every lost token to the most specific claim on it."""
    by_call: dict[int, list[tuple[Rule, Draft]]] = {}
    for pair in drafts:
        by_call.setdefault(pair[1].index, []).append(pair)
    lost = {event.index: event.lost for event in ctx.events}
    shares: list[_Share] = []
    for index in sorted(by_call):
        pairs = sorted(by_call[index], key=lambda pair: (pair[1].rank, pair[0].id))
        # Calls that began a lane lost nothing of their own lane; there the claim is the loss.
        rest = lost.get(index, max(draft.claims for _, draft in pairs))
        shares.extend(_split(pairs, rest))
    return shares


def _split(pairs: list[tuple[Rule, Draft]], rest: int) -> list[_Share]:
    winners: list[_Share] = []
    others: list[tuple[int, Rival]] = []
    offset = 0
    # What a named rule left is not what the general rules that it stands for may take.
    spoken_for: set[str] = set()
    for rule, draft in pairs:
        if rule.name in spoken_for:
            continue
        taken = min(draft.claims, rest)
        if taken > 0:
            winners.append(_Share(rule, draft, taken, offset))
            offset += taken
            rest -= taken
            spoken_for.update(rule.supersedes)
        elif rule.name != UNEXPLAINED and draft.why:
            others.append((draft.rank, Rival(rule.name, draft.why)))
    others = [(rank, rival) for rank, rival in others if rival.rule not in spoken_for]
    for winner in winners:
        # What is proved has no weaker rivals: they are its symptoms.
        is_proved = winner.draft.verdict == "proved"
        winner.rivals.extend(
            rival for rank, rival in others if not is_proved or rank <= _STRONG_RANK
        )
    return winners


def _grouped(shares: list[_Share]) -> list[list[_Share]]:
    """Put shares together that say the same with the same certainty."""
    groups: dict[tuple[str, str, str], list[_Share]] = {}
    for share in shares:
        key = (share.rule.id, share.draft.verdict, share.draft.evidence)
        groups.setdefault(key, []).append(share)
    return list(groups.values())


def _loss(session: Session, group: list[_Share], book: Prices | None, number: int) -> Finding:
    rule, first = group[0].rule, group[0].draft
    calls = session.calls
    tokens = sum(share.tokens for share in group)
    premiums = [premium(calls[s.draft.index], book, s.tokens, s.offset) for s in group]
    change = next((s.draft.change for s in group if s.draft.change is not None), None)
    return Finding(
        id=f"{rule.id}:{session.id}:{number}",
        rule=rule.id,
        name=rule.name,
        title=_title(rule, [share.draft for share in group]),
        verdict=first.verdict,
        evidence=first.evidence,
        calls=_call_ids(session, [share.draft for share in group]),
        established=_summary(session, group, tokens)
        + _statements([share.draft for share in group]),
        to_check=_union([share.draft.to_check for share in group]),
        rivals=_rivals(rule, group),
        first_change=place(change),
        tokens_lost=tokens,
        lost=total(premiums),
        fix=_priced_fix(session, rule, [share.draft for share in group], book),
        session=session.id,
        places=_places(session, group, premiums),
    )


def _places(session: Session, group: list[_Share], premiums: list[Premium]) -> tuple[CallLoss, ...]:
    """Say what each call lost; a call of which several drafts speak stands there once."""
    if len(group) == 1:
        share = group[0]
        return (CallLoss(session.calls[share.draft.index].id, share.tokens, total(premiums)),)
    by_call: dict[str, tuple[int, list[Premium]]] = {}
    for share, paid in zip(group, premiums, strict=True):
        call = session.calls[share.draft.index].id
        tokens, parts = by_call.get(call, (0, []))
        by_call[call] = (tokens + share.tokens, [*parts, paid])
    return tuple(CallLoss(call, n, total(parts)) for call, (n, parts) in by_call.items())


def _summary(session: Session, group: list[_Share], tokens: int) -> tuple[str, ...]:
    if len(group) == 1:
        return ()
    calls = [session.calls[share.draft.index] for share in group]
    read = sum_of(None if c.usage is None else c.usage.cache_read for c in calls)
    known = [
        f"{verb} {tokens_}"
        for verb, tokens_ in (("wrote", written_by(*calls)), ("read", read))
        if tokens_ is not None
    ]
    said = f"; together they {' and '.join(known)}" if known else ""
    return (f"{len(group)} calls sent {count(tokens)} tokens again{said}.",)


def _title(rule: Rule, drafts: list[Draft]) -> str:
    titles = {draft.title for draft in drafts}
    only = titles.pop() if len(titles) == 1 else None
    return only or rule.title


def _call_ids(session: Session, drafts: list[Draft]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for draft in drafts:
        found.update(dict.fromkeys(draft.also))
        found[session.calls[draft.index].id] = None
    return tuple(found)


def _statements(drafts: list[Draft]) -> tuple[str, ...]:
    """One statement a call, or all of them where there is one call; what repeats is said once."""
    if len(drafts) == 1:
        return drafts[0].established
    seen: set[str] = set()
    found: list[str] = []
    for draft in drafts[:_STATEMENTS]:
        lines = [line for line in draft.established if line not in seen]
        seen.update(lines)
        if lines:
            found.append(" ".join(lines))
    if len(drafts) > _STATEMENTS:
        found.append(f"The same holds for {plural(len(drafts) - _STATEMENTS, 'more call')}.")
    return tuple(found)


def _union(lists: list[tuple[str, ...]]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for lines in lists:
        found.update(dict.fromkeys(lines))
    return tuple(found)[:_LISTED]


def _rivals(rule: Rule, group: list[_Share]) -> tuple[Rival, ...]:
    found: dict[str, Rival] = {}
    for share in group:
        for rival in share.rivals:
            if rival.rule != rule.name:
                found.setdefault(rival.rule, rival)
    return tuple(found.values())[:_LISTED]


def _notes(session: Session, pairs: list[tuple[Rule, Draft]], book: Prices | None) -> list[Finding]:
    groups: dict[tuple[str, str], list[Draft]] = {}
    rules: dict[str, Rule] = {}
    for rule, draft in pairs:
        if draft.must_pay and not _pays(session, draft, book):
            continue
        rules[rule.id] = rule
        groups.setdefault((rule.id, draft.verdict), []).append(draft)
    return [
        _note(session, rules[key[0]], drafts, book, number)
        for number, (key, drafts) in enumerate(groups.items())
    ]


def _note(
    session: Session, rule: Rule, drafts: list[Draft], book: Prices | None, number: int
) -> Finding:
    more = [stage_line(session, s, book) for draft in drafts[:_STAGED] for s in draft.stages]
    pings = next((draft.pings for draft in drafts if draft.pings is not None), None)
    if pings is not None:
        number_of = affordable_pings(session, *pings, book)
        more.append(
            f"At its prices {number_of} such reads cost less than one write for {pings[1]}, "
            "if the conversation does go on."
        )
    return Finding(
        id=f"{rule.id}:{session.id}:n{number}",
        rule=rule.id,
        name=rule.name,
        title=_title(rule, drafts),
        verdict=drafts[0].verdict,
        evidence=drafts[0].evidence,
        calls=_call_ids(session, drafts),
        established=_statements(drafts) + tuple(more),
        to_check=_union([draft.to_check for draft in drafts]),
        rivals=_union_rivals(drafts),
        first_change=place(next((d.change for d in drafts if d.change is not None), None)),
        fix=_priced_fix(session, rule, drafts, book),
        kind="note",
        session=session.id,
    )


def _pays(session: Session, draft: Draft, book: Prices | None) -> bool:
    saved = saving(session, draft.worth, book)
    return saved is not None and saved.input_equivalents > 0


def _priced_fix(
    session: Session, rule: Rule, drafts: list[Draft], book: Prices | None
) -> Fix | None:
    """Put what the fix would have saved beside it, where the rule says which tokens it moves."""
    swaps = [swap for draft in drafts for swap in draft.worth]
    if rule.fix is None or not swaps:
        return rule.fix
    return msgspec.structs.replace(rule.fix, saves_alone=saving(session, swaps, book))


def _union_rivals(drafts: list[Draft]) -> tuple[Rival, ...]:
    found: dict[str, Rival] = {}
    for draft in drafts:
        for rival in draft.rivals:
            found.setdefault(rival.rule, rival)
    return tuple(found.values())[:_LISTED]


def _weight(finding: Finding) -> tuple[Decimal, Decimal, int]:
    lost = finding.lost
    if lost is None:
        return (Decimal(0), Decimal(0), finding.tokens_lost)
    return (lost.cost or Decimal(0), lost.input_equivalents, finding.tokens_lost)


__all__ = ["Diagnosis", "Premium", "diagnose"]
