"""``cacheaudit compare``: the same result as text, JSON, Markdown and a page that loads nothing."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.unit.cli.helpers import LOG, log, run
from tests.unit.jobs.test_compare import side

FORMS = ("text", "md", "html")


@pytest.fixture
def sides(tmp_path: Path) -> tuple[str, str]:
    before = side(tmp_path, "before", 12, accepted=10)
    return str(before), str(side(tmp_path, "after", 12, read=9_000, accepted=11))


def test_json(tmp_path: Path, sides: tuple[str, str]) -> None:
    result = run(tmp_path, "compare", *sides, "--json", "--seed", "3")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["schema"] == "cacheaudit.compare/1"
    assert [row["outcome"] for row in document["outcomes"]] == [
        "pass_rate",
        "cost",
        "time",
        "cache_use",
    ]
    assert document["bootstrap"]["seed"] == 3
    assert document["pairing"] == {
        "by": "task",
        "pairs": 12,
        "needed": 10,
        "only_before": [],
        "only_after": [],
    }
    cost = document["outcomes"][1]
    assert cost["conclusion"] == "better"
    assert cost["measures"][0]["change"] == "-0.03105"
    assert isinstance(document["tasks"][0]["before"]["cost"], str)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_says_the_same(tmp_path: Path, sides: tuple[str, str], form: str) -> None:
    result = run(tmp_path, "compare", *sides, "--format", form, "-q", env={"COLUMNS": "140"})
    assert result.exit_code == 0, result.stderr
    words = re.sub(r"<[^>]+>", "", result.stdout) if form == "html" else result.stdout
    for expected in (
        "no difference shown",
        "better",
        "higher",
        "−$0.0311",  # noqa: RUF001
        "stored size and peak memory",
        "not measurable here",
        "accepted → accepted",
        "10,000 resamples",
        "12 paired tasks",
    ):
        assert expected in words, expected


class _Checker(HTMLParser):
    """Counts what a page would load and whether its elements close."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = dict(attrs)
        source = names.get("src") or (names.get("href") if tag == "link" else None)
        if tag == "script" or (source and not source.startswith("data:")):
            self.loads.append(tag)
        if tag not in ("meta", "link", "br", "path", "circle"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("path", "circle"):
            return
        assert self.open.pop() == tag


def test_the_page_is_whole_and_loads_nothing(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>"
    before = side(tmp_path, "a", 12, session=hostile, client=hostile)
    target = tmp_path / "page.html"
    result = run(tmp_path, "compare", str(before), str(before), "-o", str(target))
    assert result.exit_code == 0, result.stderr
    page = target.read_text(encoding="utf-8")
    checker = _Checker()
    checker.feed(page)
    assert checker.loads == []
    assert checker.open == []
    assert "http" not in re.sub(r"http-equiv", "", page)
    assert len(page) < 100_000
    assert "&lt;script&gt;" in page


def test_few_pairs_say_so_in_every_form(tmp_path: Path) -> None:
    a, b = str(side(tmp_path, "a", 3)), str(side(tmp_path, "b", 4, read=9_000))
    for form in FORMS:
        shown = run(tmp_path, "compare", a, b, "--format", form, "-q").stdout
        assert "Nothing is concluded over 3 paired tasks: it takes 10." in shown
        assert "only after" in shown
        assert "<svg" not in shown


def test_other_formats_and_bad_use(tmp_path: Path, sides: tuple[str, str]) -> None:
    """A usage log has no ends of calls and no outcomes: these are not known, not zero."""
    file = log(tmp_path, LOG.replace(",s1,", ",s1,"))
    result = run(tmp_path, "compare", str(file), str(file), "--json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    values = {m["name"]: m["before"] for row in document["outcomes"] for m in row["measures"]}
    assert values["task_time_mean"] is None
    assert values["pass_rate"] is None
    assert values["hit_ratio"] == pytest.approx(8_500 / 43_000)
    assert run(tmp_path, "compare", sides[0]).exit_code == 2
    missing = run(tmp_path, "compare", sides[0], str(tmp_path / "none"))
    assert missing.exit_code == 2
    assert "none" in missing.stderr
