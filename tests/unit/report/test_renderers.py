"""Each format against the published contract, golden files, and hostile input."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from cacheaudit.errors import UsageError
from cacheaudit.report.renderer import View, names, renderer
from cacheaudit.report.result import AuditResult, CallRow, Quality
from cacheaudit.report.spool import CallSpool
from tests.unit.report import golden, samples

HOSTILE = "<script>alert(1)</script>|`*_[x](javascript:1)\x1b[31m\r\n=cmd()"


def audit(form: str, result: AuditResult | None = None, **view: Any) -> bytes:
    out = io.BytesIO()
    renderer(form).audit(result or samples.audit(), out, View(**view))
    return out.getvalue()


def usage(form: str, **view: Any) -> bytes:
    out = io.BytesIO()
    renderer(form).usage(samples.usage(), out, View(**view))
    return out.getvalue()


def hostile() -> AuditResult:
    result = samples.audit()
    result.calls = [
        msgspec.structs.replace(c, id=HOSTILE + c.id, session=HOSTILE, lane=HOSTILE, model=HOSTILE)
        for c in samples.calls()
    ]
    result.findings = [
        msgspec.structs.replace(
            f,
            title=HOSTILE,
            calls=[HOSTILE + c for c in f.calls],
            established=[HOSTILE],
            to_check=[HOSTILE],
        )
        for f in result.findings
    ]
    result.by_session = [samples.Group(HOSTILE, result.totals)]
    result.by_model = [samples.Group(HOSTILE, result.totals)]
    result.data_quality = [Quality(HOSTILE, 1, [HOSTILE])]
    return result


def test_every_format_is_found() -> None:
    assert names() == ("csv", "html", "json", "md", "sarif", "text")
    for name in names():
        assert renderer(name).name == name


def test_an_unknown_format_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no format 'pdf'"):
        renderer("pdf")


# The contract: path → type of the value. "number" is a decimal string or null.
CONTRACT: dict[str, Any] = {
    "schema": str,
    "tool": {"version": str, "rules_version": str, "prices_as_of": str},
    "scope": {"sources": dict, "sessions": int, "calls": int, "first": str, "last": str},
    "totals": {
        "uncached_input": int,
        "cache_read": int,
        "cache_write": {"5m": int, "1h": int, "30m": int, "other": int},
        "output": int,
        "output_is_lower_bound": bool,
        "total_input": int,
        "hit_ratio": float,
        "input_equivalents": str,
        "cost": {
            "computed": str,
            "reported": (str, type(None)),
            "currency": str,
            "unpriced_calls": int,
        },
    },
    "calls": [
        {
            "id": str,
            "session": str,
            "lane": str,
            "purpose": str,
            "model": str,
            "started_at": str,
            "total_input": int,
            "cache_read": int,
            "cache_write": int,
            "uncached_input": int,
            "output": int,
            "predicted": {"cache_read": int, "cache_write": int, "uncached_input": int},
            "cost": str,
            "first_change": (dict, type(None)),
        }
    ],
    "findings": [
        {
            "id": str,
            "rule": str,
            "name": str,
            "title": str,
            "verdict": str,
            "evidence": str,
            "calls": list,
            "established": list,
            "to_check": list,
            "rivals": list,
            "first_change": (dict, type(None)),
            "tokens_lost": int,
            "lost": (dict, type(None)),
            "fix": (dict, type(None)),
        }
    ],
    "what_if": {"all_fixes": (dict, type(None)), "scenarios": list},
    "simulation": {
        "exact_calls": int,
        "calls": int,
        "mean_abs_error_tokens": float,
        "unexplained_tokens": int,
    },
    "data_quality": [{"kind": str, "count": int, "examples": list}],
}


def assert_shape(value: Any, shape: Any, where: str = "$") -> None:
    if isinstance(shape, dict):
        assert isinstance(value, dict), where
        for key, inner in shape.items():
            assert key in value, f"{where}.{key} is missing"
            assert_shape(value[key], inner, f"{where}.{key}")
    elif isinstance(shape, list):
        assert isinstance(value, list), where
        assert value, f"{where} is empty: nothing was checked"
        for index, item in enumerate(value):
            assert_shape(item, shape[0], f"{where}[{index}]")
    else:
        assert isinstance(value, shape), f"{where} is {value!r}"


def test_json_has_every_field_of_the_contract() -> None:
    document = json.loads(audit("json"))
    assert_shape(document, CONTRACT)
    assert document["schema"] == "cacheaudit.audit/1"
    assert document["totals"]["cost"]["computed"] == "1.208103"
    assert document["calls"][4]["first_change"]["path"] == "tools[3]"
    fix = next(f["fix"] for f in document["findings"] if f["id"] == "F1")
    assert fix["saves_alone"] == {"input_equivalents": "37956.9", "cost": "0.1138707"}


def test_json_of_totals() -> None:
    document = json.loads(usage("json"))
    assert document["schema"] == "cacheaudit.usage/1"
    assert [group["key"] for group in document["groups"]] == ["2026-11-02", "2026-11-03"]
    assert document["groups"][0]["totals"]["cache_read"] is None
    for group in document["groups"]:
        assert {name: group[name] for name in group["totals"]} == group["totals"]
    assert_shape(document["totals"], CONTRACT["totals"])


def test_json_of_rows_kept_on_disk_is_the_same() -> None:
    spool = CallSpool()
    for row in samples.calls():
        spool.append(row)
    assert audit("json", samples.audit(spool)) == audit("json")


def test_json_without_calls_is_json() -> None:
    assert json.loads(audit("json", samples.audit([])))["calls"] == []


@pytest.mark.parametrize("form", ["json", "csv"])
def test_long_results_are_written_piece_by_piece(form: str) -> None:
    """The first rows have been written before the last ones are asked for."""
    row = samples.calls()[0]
    asked = 0

    class Rows:
        def __iter__(self) -> Iterator[CallRow]:
            nonlocal asked
            for number in range(5_000):
                asked = number
                yield row

    first_write_at: list[int] = []

    class Out(io.BytesIO):
        def write(self, data: Any) -> int:
            first_write_at.append(asked)
            assert len(data) < 300_000
            return super().write(data)

    out = Out()
    renderer(form).audit(samples.audit(Rows()), out, View())
    assert first_write_at[0] < 2_500
    assert out.getvalue().count(b"2026-11-03T10:00:00.000Z") >= 5_000


def test_csv_has_one_row_a_call_and_leaves_the_unknown_empty() -> None:
    rows = samples.calls()
    rows[0] = msgspec.structs.replace(rows[0], cache_read=None, cost=None)
    table = list(csv.DictReader(io.StringIO(audit("csv", samples.audit(rows)).decode())))
    assert len(table) == 14
    assert table[0]["cache_read"] == ""
    assert table[0]["cost"] == ""
    assert table[1]["uncached_input"] == "0"
    assert table[6]["cache_write"] == "37650"
    assert table[4]["first_change_path"] == "tools[3]"


def test_csv_cells_never_start_a_formula() -> None:
    result = samples.audit()
    result.calls = [msgspec.structs.replace(samples.calls()[0], id="=1+1", session="@x")]
    row = next(csv.DictReader(io.StringIO(audit("csv", result).decode())))
    assert row["id"] == "'=1+1"
    assert row["session"] == "'@x"


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("verbose", [False, True])
def test_text_audit_looks_as_agreed(width: int, verbose: bool) -> None:
    made = audit("text", width=width, verbose=verbose)
    golden.check(f"audit-{width}{'-verbose' if verbose else ''}.txt", made)
    assert max(len(line) for line in made.decode().splitlines()) <= width


@pytest.mark.parametrize("width", [80, 120])
def test_text_usage_looks_as_agreed(width: int) -> None:
    made = usage("text", width=width)
    golden.check(f"usage-{width}.txt", made)
    assert max(len(line) for line in made.decode().splitlines()) <= width


@pytest.mark.parametrize("form", ["md", "csv"])
def test_other_forms_look_as_agreed(form: str) -> None:
    golden.check(f"audit.{form}", audit(form))
    golden.check(f"usage.{form}", usage(form))


def test_text_shows_five_findings_and_says_that_there_are_more() -> None:
    text = audit("text").decode()
    assert "… 1 more finding: --verbose" in text
    assert "Call r1 opened the session" not in text
    assert "Call r1 opened the session" in audit("text", verbose=True).decode()


def test_text_of_totals_hides_nothing_since_no_option_could_show_it() -> None:
    result = samples.usage()
    result.data_quality = [Quality(f"kind_{number}", 1, []) for number in range(20)]
    out = io.BytesIO()
    renderer("text").usage(result, out, View())
    text = out.getvalue().decode()
    assert "--verbose" not in text
    assert all(f"kind {number}\n" in text for number in range(20))


@pytest.mark.parametrize("form", ["text", "md"])
def test_a_finding_without_calls_names_none(form: str) -> None:
    result = samples.audit()
    result.findings = [
        msgspec.structs.replace(f, title="Of no call", calls=[]) for f in result.findings[:1]
    ]
    lines = audit(form, result).decode().splitlines()
    at = next(number for number, line in enumerate(lines) if "Of no call" in line)
    facts = " ".join(lines[at + 1 : at + 4])
    assert result.findings[0].name in facts
    assert "calls" not in facts
    assert not facts.strip().endswith("·")


def test_a_weight_that_lacks_calls_is_a_lower_bound() -> None:
    result = samples.audit()
    assert "≥ 381,701" not in audit("text", result).decode()
    result.totals = msgspec.structs.replace(result.totals, unweighted_calls=3)
    text = audit("text", result, width=120).decode()
    assert re.search(r"Input, weighted +≥ 381,701 .*3 calls without a known weight", text)
    assert "Input in ordinary input tokens (a lower bound)" in audit("md", result).decode()


def test_text_never_cuts_a_figure() -> None:
    result = samples.audit()
    long = samples.Group("a-very-long-model-name-" * 4, result.totals)
    result.by_model = [long, long]
    lines = audit("text", result, width=80).decode().splitlines()
    row = next(line for line in lines if line.startswith("a-very"))
    assert "$1.21" in row
    assert "52.6 %" in row


def test_text_has_no_colours_unless_asked() -> None:
    assert b"\x1b[" not in audit("text")
    assert b"\x1b[" in audit("text", color=True)


def test_text_lets_no_control_character_through() -> None:
    text = audit("text", hostile(), verbose=True).decode()
    assert "\x1b" not in text
    assert "\r" not in text


def test_text_for_a_terminal_that_lacks_the_signs() -> None:
    made = audit("text", encoding="ascii")
    assert b"Paid $1.21" in made
    made.decode("ascii")


def test_markdown_escapes_what_it_did_not_write() -> None:
    text = audit("md", hostile()).decode()
    assert "\x1b" not in text
    prose = re.sub(r"(?<!\\)(`+)(?!`).*?(?<!`)\1(?!`)", "", text)
    assert "alert" in prose
    assert not re.search(r"(?<!\\)[<\[]", prose)


def test_sarif_has_rules_results_and_lines() -> None:
    document = json.loads(audit("sarif"))
    assert document["version"] == "2.1.0"
    run = document["runs"][0]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    for found in run["results"]:
        assert rules[found["ruleIndex"]] == found["ruleId"]
        assert found["message"]["text"]
    expired = next(r for r in run["results"] if r["ruleId"] == "TTL101")
    assert expired["level"] == "warning"
    place = expired["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "log.csv"}, "region": {"startLine": 8}}
    assert next(r for r in run["results"] if r["ruleId"] == "CLD101")["level"] == "note"


@pytest.mark.parametrize("form", ["html", "sarif"])
def test_forms_without_totals_say_so(form: str) -> None:
    with pytest.raises(UsageError, match="no form for totals"):
        usage(form)


def test_sarif_holds_the_page_of_each_rule_and_the_balance() -> None:
    run = json.loads(audit("sarif"))["runs"][0]
    rules = {rule["id"]: rule for rule in run["tool"]["driver"]["rules"]}
    assert rules["TTL101"]["help"]["markdown"].startswith("# TTL101 ttl-expired")
    assert rules["TTL101"]["properties"]["tags"] == ["prompt-cache", "timing"]
    # 1.208103 - (69,690 + 37,956.9 - 700) x 0.000003
    assert run["properties"] == {
        "paid": "1.208103",
        "avoidable": "0.3208407",
        "bestCase": "0.8872623",
        "unit": "money",
        "score": 48,
    }
    expired = next(r for r in run["results"] if r["ruleId"] == "TTL101")
    assert expired["properties"]["costSaved"] == "0.1138707"


def test_csv_says_how_far_the_prediction_was_off() -> None:
    rows = {row["id"]: row for row in csv.DictReader(io.StringIO(audit("csv").decode()))}
    assert rows["r11"]["predicted_cache_read"] == "42150"
    assert rows["r11"]["read_off_by"] == "34800"
    assert rows["r10"]["read_off_by"] == "0"
    assert rows["r7"]["findings"] == "TTL101"
    assert rows["r7"]["first_token_seconds"] == "4.0"


def test_markdown_has_the_steps_and_the_remainder() -> None:
    text = audit("md").decode()
    assert "| Best case |  | $0.89 |  |" in text
    assert "| Unexplained remainder | 0 | 0 | 0 | 0 | $0.0000 | 0.0 % |" in text
    assert "| mark previous | " in text
    assert "Reads predicted exactly for 13 of 14 calls (92.9 %)" in text
