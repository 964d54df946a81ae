"""The catalogue of rules, and one rule in full with its own bad and good example."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Final

import msgspec

from cacheaudit._version import __version__
from cacheaudit.diagnose.pages import page
from cacheaudit.diagnose.rule import FAMILIES, Rule, all_rules, find_rule
from cacheaudit.diagnose.runner import diagnose
from cacheaudit.errors import UsageError
from cacheaudit.jobs.linting.catalogue import CHECKS
from cacheaudit.jobs.needs import needs as needs
from cacheaudit.model.call import Call, Session
from cacheaudit.model.finding import Finding
from cacheaudit.model.money import ZERO, plain

RULES_SCHEMA: Final = "cacheaudit.rules/1"
RULE_SCHEMA: Final = "cacheaudit.rule/1"
# Rules that say nothing of their age have been there from the beginning.
_FIRST: Final = "0.1.0"


class RuleRow(msgspec.Struct, frozen=True, kw_only=True):
    """One rule.

    Attributes:
        id: Family and number.
        name: What it is called in findings.
        family: First three letters of the id.
        family_title: What the family is about.
        title: One line for people.
        kind: ``loss`` where it explains lost tokens, ``note`` where it never does.
        since: First version that has it.
        needs: What a record must hold for the rule to speak: ``usage``, ``requests``,
            ``start_times``, ``provider_reasons``, ``boundaries``.
        provider_reasons: The provider's own words for it.
        fix: What to do.
    """

    id: str
    name: str
    family: str
    family_title: str
    title: str
    kind: str
    since: str
    needs: list[str]
    provider_reasons: list[str]
    fix: str | None


class LintRow(msgspec.Struct, frozen=True, kw_only=True):
    """One check of ``lint``."""

    name: str
    level: str
    title: str


class RulesResult(msgspec.Struct, frozen=True, kw_only=True):
    """The catalogue: rules of ``audit``, and the checks of ``lint``."""

    version: str
    rules: list[RuleRow]
    lint: list[LintRow]
    schema: str = RULES_SCHEMA


class ExampleCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of an example; times in seconds after its first call."""

    id: str
    lane: str
    start: float | None
    duration: float | None
    total_input: int | None
    cache_read: int | None
    cache_write: int | None
    uncached_input: int | None
    purpose: str
    model: str | None
    says: list[str]


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """A session that shows a pattern, or lacks it, and what is found in it.

    Attributes:
        text: What happens in it.
        calls: Its calls in order of time.
        tokens_lost: Lost tokens, by rule name.
        input_equivalents: What they cost in ordinary input tokens.
    """

    text: str
    calls: list[ExampleCall]
    tokens_lost: dict[str, int]
    input_equivalents: str


class RulePage(msgspec.Struct, frozen=True, kw_only=True):
    """One rule in full. ``explanation`` and ``markdown`` (the whole page) are Markdown."""

    rule: RuleRow
    explanation: str
    markdown: str
    bad: Example
    good: Example
    schema: str = RULE_SCHEMA


def rules(family: str | None = None) -> RulesResult:
    """List the catalogue.

    Args:
        family: Only rules whose id begins with these letters.

    Raises:
        UsageError: There is no such family.
    """
    wanted = None if family is None else family.strip().upper()
    if wanted is not None and wanted not in FAMILIES:
        raise UsageError(
            f"There is no family {family!r}.", f"Families: {', '.join(sorted(FAMILIES))}."
        )
    rows = [_row(rule) for rule in all_rules() if wanted in (None, rule.family)]
    checks = CHECKS.items() if wanted is None else ()
    lint = [LintRow(name=name, level=check.level, title=check.title) for name, check in checks]
    return RulesResult(version=__version__, rules=rows, lint=lint)


def explain(key: str) -> RulePage:
    """Show one rule with its examples.

    Args:
        key: Id or name of the rule.

    Raises:
        UsageError: There is no such rule.
    """
    rule = find_rule(key)
    if rule is None:
        raise _unknown(key)
    return RulePage(
        rule=_row(rule),
        explanation=rule.explanation,
        markdown=page(rule),
        # By itself: a more specific rule may take the same tokens first.
        bad=_example(type(rule).bad, (rule,)),
        good=_example(type(rule).good, None),
    )


def _unknown(key: str) -> UsageError:
    check = CHECKS.get(key.strip().lower())
    if check is not None:
        return UsageError(
            f"{key} is a check of `cacheaudit lint` ({check.level}): {check.title}.",
            "docs/guide/lint.md says more.",
        )
    known = [word for rule in all_rules() for word in (rule.id, rule.name)]
    near = difflib.get_close_matches(key.strip(), known, n=2, cutoff=0.5)
    hint = f"Did you mean {' or '.join(near)}?" if near else "`cacheaudit rules` lists them."
    return UsageError(f"There is no rule {key!r}.", hint)


def _row(rule: Rule) -> RuleRow:
    return RuleRow(
        id=rule.id,
        name=rule.name,
        family=rule.family,
        family_title=FAMILIES[rule.family],
        title=rule.title,
        kind=rule.kind,
        since=getattr(rule, "since", _FIRST),
        needs=list(needs(rule)),
        provider_reasons=list(rule.provider_reasons),
        fix=None if rule.fix is None else rule.fix.title,
    )


def _example(make: Callable[[], Session], rules: Sequence[Rule] | None) -> Example:
    session = make()
    diagnosis = diagnose(session, rules=rules)
    says: dict[str, list[str]] = {}
    lost: dict[str, int] = {}
    equivalents: Decimal = ZERO
    for finding in diagnosis.findings:
        for call in finding.calls:
            says.setdefault(call, []).append(finding.name)
        if finding.kind == "loss":
            lost[finding.name] = lost.get(finding.name, 0) + finding.tokens_lost
            equivalents += _equivalents(finding)
    start = min((c.started_at for c in session.calls if c.started_at is not None), default=0.0)
    return Example(
        text=(make.__doc__ or "").strip(),
        calls=[_call(call, start, says.get(call.id, [])) for call in session.calls],
        tokens_lost=lost,
        input_equivalents=plain(equivalents),
    )


def _equivalents(finding: Finding) -> Decimal:
    return finding.lost.input_equivalents if finding.lost is not None else ZERO


def _call(call: Call, start: float, says: list[str]) -> ExampleCall:
    usage, began, ended = call.usage, call.started_at, call.ended_at
    return ExampleCall(
        id=call.id,
        lane=call.lane,
        start=None if began is None else began - start,
        duration=None if began is None or ended is None else ended - began,
        total_input=usage.total_input if usage else None,
        cache_read=usage.cache_read if usage else None,
        cache_write=usage.cache_write if usage else None,
        uncached_input=usage.uncached_input if usage else None,
        purpose=call.purpose,
        model=call.model,
        says=says,
    )
