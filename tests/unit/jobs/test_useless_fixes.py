"""A fix that would have saved nothing is not advised; the finding says why nothing helps."""

from __future__ import annotations

import io
from decimal import Decimal
from pathlib import Path

import pytest

from cacheaudit.diagnose.examples import Script
from cacheaudit.diagnose.runner import diagnose
from cacheaudit.jobs.audit import audit
from cacheaudit.jobs.inputs import Inputs, silent
from cacheaudit.jobs.predict import predict, with_savings
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding
from cacheaudit.pricing.book import PriceBook
from cacheaudit.report.renderer import View, renderer
from cacheaudit.report.result import AuditResult, FindingRow

HEAD = (
    "timestamp,model,session,input_tokens,cache_read_input_tokens,"
    "cache_creation_input_tokens,output_tokens\n"
)


def audited(folder: Path, pause: str) -> AuditResult:
    """Audit two calls with a pause between them, and a third soon after."""
    log = folder / "pause.csv"
    log.write_text(
        f"{HEAD}2026-11-03T08:00:00Z,claude-sonnet-4-6,s1,10,0,50000,20\n"
        f"2026-11-03T{pause}:00Z,claude-sonnet-4-6,s1,10,0,51000,20\n"
        f"2026-11-03T{pause}:30Z,claude-sonnet-4-6,s1,10,51000,1000,20\n",
        encoding="utf-8",
    )
    return audit(Inputs(paths=(log,), environment={}, home=folder), silent)


def expired(result: AuditResult) -> FindingRow:
    return next(found for found in result.findings if found.rule == "TTL101")


def test_nothing_is_advised_against_half_a_day(tmp_path: Path) -> None:
    result = audited(tmp_path, "20:00")
    found = expired(result)

    assert found.fix is None
    assert found.no_fix is not None
    assert found.no_fix.startswith("No refresh and no other lifetime would have saved anything")
    assert result.what_if.waterfall == []
    assert result.what_if.all_fixes.cost == result.what_if.reported.cost  # type: ignore[union-attr]


@pytest.mark.parametrize("form", ["text", "md", "html", "sarif", "json"])
def test_every_form_says_why(tmp_path: Path, form: str) -> None:
    out = io.BytesIO()
    renderer(form).audit(audited(tmp_path, "20:00"), out, View(width=200))
    shown = out.getvalue().decode()

    assert "No refresh and no other lifetime would have saved anything" in shown
    assert "Refresh the prefix before it expires, or ask" not in shown.partition("<script")[0] or (
        form == "sarif"  # which holds the page of each rule
    )


def test_a_short_pause_is_worth_a_refresh(tmp_path: Path) -> None:
    found = expired(audited(tmp_path, "08:06"))

    assert found.no_fix is None
    assert found.fix is not None
    assert found.fix.saves_alone is not None
    assert Decimal(found.fix.saves_alone.input_equivalents) > 0


def _advised(session: Session) -> list[Finding]:
    book = PriceBook()
    diagnosis = diagnose(session, book)
    return list(with_savings(diagnosis.findings, predict(session, diagnosis, book)))


@pytest.mark.parametrize("seconds", [400.0, 4_000.0, 43_200.0, 400_000.0])
def test_no_advice_saves_nothing_by_its_own_figures(seconds: float) -> None:
    script = Script().call(0, 0, 36_150, duration=20)
    findings = _advised(script.call(seconds, 0, 37_650).call(seconds + 30, 37_650, 1_500).session())

    assert any(found.rule == "TTL101" for found in findings)
    for found in findings:
        if found.fix is not None and found.fix.saves_alone is not None:
            assert found.fix.saves_alone.input_equivalents > 0
        assert found.fix is None or found.no_fix is None


def test_recorded_requests_show_it_too() -> None:
    def body(*texts: str) -> dict[str, object]:
        marked = {"cache_control": {"type": "ephemeral"}}
        roles = ("user", "assistant", "user")
        return {
            "model": "claude-opus-4-6",
            "max_tokens": 10,
            "system": [{"type": "text", "text": "rules " * 20_000, **marked}],
            "messages": [
                {"role": role, "content": [{"type": "text", "text": text, **marked}]}
                for role, text in zip(roles, texts, strict=False)
            ],
        }

    script = Script().call(0, 0, 20_000, duration=20, body=body("go"))
    script.call(43_200, 0, 21_000, body=body("go", "done", "go on"))
    findings = _advised(script.session())

    found = next(found for found in findings if found.rule == "TTL101")
    assert found.fix is None
    assert found.no_fix is not None
