"""One thing is written in the singular, wherever its number is told."""

from __future__ import annotations

import re

import msgspec
import pytest

from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.runner import diagnose
from cacheaudit.diagnose.wording import first_of
from cacheaudit.model.call import Session
from cacheaudit.model.plural import plural
from cacheaudit.report.result import Quality
from cacheaudit.report.settings import accuracy_words
from cacheaudit.report.words import _QUALITY, quality_words
from tests.unit.report import samples
from tests.unit.report.test_renderers import audit

_WRONG = re.compile(
    r"(?<![\d,.-])1 (more |predicted |paired )?"
    r"(files|calls|pairs|tokens|sessions|lines|records|days|tasks|findings|texts|writes|loops)\b"
)


@pytest.mark.parametrize("kind", sorted(_QUALITY))
def test_kinds_of_data_quality(kind: str) -> None:
    one, many = quality_words(kind, 1), quality_words(kind, 2)

    assert one != many or kind == "unknown"
    assert not re.match(r"(files|calls|lines|texts|writes|loops|results|copies|counts)\b", one)
    assert not re.search(r"\b(was|that|which) (were|are|their)\b|\bthat are\b", one)


@pytest.mark.parametrize("form", ["text", "md"])
def test_a_report_on_one_of_everything(form: str) -> None:
    made = samples.audit()
    made.scope = msgspec.structs.replace(made.scope, calls=1, sessions=1)
    made.data_quality = [Quality(kind, 1, []) for kind in _QUALITY]
    made.simulation = msgspec.structs.replace(
        made.simulation, calls=1, exact_calls=1, unexplained_tokens=1, refused={}
    )
    shown = audit(form, made, width=200).decode()

    assert _WRONG.findall(shown) == []
    assert "for 1 of 1 call " in accuracy_words(made)


def _lacks(**fields: object) -> Session:
    session = Script().call(0, 0, 20_000).call(30, 20_000, 500).session()
    calls = list(session.calls)
    calls[1] = msgspec.structs.replace(calls[1], **fields)
    return msgspec.structs.replace(session, calls=tuple(calls))


@pytest.mark.parametrize(
    "session",
    [_lacks(usage=None), _lacks(model=None), _lacks(started_at=1.0), _lacks(id="1")],
    ids=["usage", "model", "time", "id"],
)
def test_findings_on_one_call(session: Session) -> None:
    lines = [line for found in diagnose(session).findings for line in found.established]

    assert [line for line in lines if _WRONG.search(line)] == []


def test_the_words_of_rules() -> None:
    assert plural(1, "call has", "calls have") == "1 call has"
    assert plural(1_200, "call") == "1,200 calls"
    assert first_of(1, "x") == ": x"
    assert first_of(2, "x") == ", the first of them x"
