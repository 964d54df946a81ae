"""What rules say that they look at."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.rule import Rule, all_rules
from cacheaudit.model.call import MissReason, Session

MODEST = [rule for rule in all_rules() if rule.looks_at]


def examples() -> Iterator[Session]:
    """Every example of the catalogue, whole, without bodies, without reasons, without both."""
    for rule in all_rules():
        for session in (type(rule).bad(), type(rule).good()):
            for fields in ({}, {"prompt": None}, {"diagnostics": None}):
                yield changed(session, **fields)
            yield changed(session, prompt=None, diagnostics=None)


def changed(session: Session, **fields: None) -> Session:
    calls = tuple(msgspec.structs.replace(call, **fields) for call in session.calls)
    return msgspec.structs.replace(session, calls=calls)


@pytest.fixture(scope="module")
def contexts() -> list[Context]:
    return [Context(session) for session in examples()]


@pytest.mark.parametrize("rule", MODEST, ids=lambda rule: rule.name)
def test_a_rule_says_nothing_of_a_session_that_it_is_not_asked_of(
    rule: Rule, contexts: list[Context]
) -> None:
    unasked = [ctx for ctx in contexts if ctx.shows.isdisjoint(rule.looks_at)]
    assert len(unasked) > len(all_rules())
    for ctx in unasked:
        assert not list(rule.check(ctx)), ctx.session.id


@pytest.mark.parametrize("rule", MODEST, ids=lambda rule: rule.name)
def test_a_rule_speaks_of_what_it_looks_at(rule: Rule) -> None:
    ctx = Context(type(rule).bad())
    assert not ctx.shows.isdisjoint(rule.looks_at)
    assert list(rule.check(ctx))


def test_what_a_session_shows() -> None:
    bad = type(found("tool-schema-edited")).bad()
    told = msgspec.structs.replace(bad.calls[-1], diagnostics=MissReason("tools_changed"))
    both = msgspec.structs.replace(bad, calls=(*bad.calls[:-1], told))
    assert Context(bad).shows == {"bodies"}
    assert Context(both).shows == {"bodies", "reasons"}
    assert Context(changed(both, prompt=None)).shows == {"reasons"}
    assert Context(changed(bad, prompt=None)).shows == frozenset()
    assert Context(type(found("tool-schema-edited")).good()).shows == frozenset()


def found(name: str) -> Rule:
    return next(rule for rule in all_rules() if rule.name == name)
