from __future__ import annotations

import io
import json
import re
from html.parser import HTMLParser

import msgspec

from cacheaudit.report.page import CALLS_IN_FULL, CALLS_SHORTENED
from cacheaudit.report.renderer import View, renderer
from cacheaudit.report.result import AuditResult, FindingRow, Group, WhatIf
from tests.unit.report import samples
from tests.unit.report.test_renderers import HOSTILE, hostile

VOID = {"meta", "link", "br", "input", "img", "hr"}
# The end tag of these may be left out.
OPTIONAL = {"p", "li", "tr", "td", "th", "thead", "tbody", "dt", "dd"}


class Reader(HTMLParser):
    """Checks nesting and collects what a test asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loads: list[str] = []
        self.text: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        fields = dict(attrs)
        if fields.get("id"):
            self.ids.append(fields["id"] or "")
        if tag == "a":
            self.links.append(fields.get("href") or "")
        for name in ("src", "srcset", "data", "action", "poster", "background"):
            if fields.get(name) is not None:
                self.loads.append(f"{tag} {name}={fields[name]}")
        if tag == "link":
            self.loads.append(f"link {fields.get('href')}")
        assert not any(name.startswith("on") for name in fields), fields
        self.scripts += tag == "script" and fields.get("type") != "application/json"
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.stack.pop()

    def handle_endtag(self, tag: str) -> None:
        while self.stack and self.stack[-1] != tag and self.stack[-1] in OPTIONAL:
            self.stack.pop()
        assert self.stack, f"</{tag}> closes nothing"
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.stack and self.stack[-1] not in ("script", "style"):
            self.text.append(data)


def page(result: AuditResult | None = None) -> str:
    out = io.BytesIO()
    renderer("html").audit(result or samples.audit(), out, View())
    return out.getvalue().decode()


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert not reader.stack
    return reader


def many(number: int) -> AuditResult:
    rows = [
        msgspec.structs.replace(
            samples.calls()[index % 14], id=f"msg_{index:024}", session=f"session-{index % 6}"
        )
        for index in range(number)
    ]
    result = samples.audit(rows)
    result.scope = msgspec.structs.replace(result.scope, calls=number, sessions=6)
    result.by_session = [
        Group(f"session-{n}", samples.totals([r for r in rows if r.session == f"session-{n}"]))
        for n in range(6)
    ]
    return result


def test_the_page_is_well_formed_and_every_link_has_an_end() -> None:
    reader = read(page())
    assert len(reader.ids) == len(set(reader.ids))
    for link in reader.links:
        assert link.startswith("#"), link
        assert link[1:] in reader.ids


def test_the_page_loads_nothing() -> None:
    html = page()
    assert read(html).loads == ["link data:,"]
    assert not re.search(r"url\((?!#)", html)
    assert "@import" not in html
    assert not re.search(r"\b(fetch|XMLHttpRequest|WebSocket|sendBeacon)\b", html)
    assert "default-src 'none'" in html


def test_the_figures_of_the_verdict() -> None:
    text = " ".join(" ".join(read(page()).text).split())
    assert "56 % of the bill went into cache misses." in text
    assert "31 % of that has one cause: three calls wrote the same" in text
    # 1.208103 - (69,690 + 37,956.9 - 700) x 0.000003 = 0.8872623
    assert "Paid $1.21 computed from prices" in text
    assert "Avoidable $0.32 27 % of it" in text
    assert "Best case $0.89 after 3 fixes, from sizes alone" in text
    assert "Read ratio 52.6 %" in text
    assert "Unexplained remainder" in text
    assert "the simulation expected 34,800 tokens" in text
    assert "https://docs.example/pricing" in text
    assert "2026-11-20" in text


def test_an_amount_carries_its_exact_value() -> None:
    assert '<data value="1.208103 USD" title="exactly 1.208103 USD">$1.21</data>' in page()


def test_nothing_from_the_record_becomes_markup() -> None:
    html = page(hostile())
    reader = read(html)
    assert reader.scripts == 1
    assert "<script>alert" not in html
    assert HOSTILE.replace("\r\n", "\n") in "".join(reader.text).replace("\r\n", "\n")


def test_the_page_of_a_thousand_calls_is_whole_and_under_a_megabyte() -> None:
    html = page(many(CALLS_IN_FULL))
    assert len(html.encode()) < 1_000_000
    reader = read(html)
    assert sum(i.startswith("c") and i[1:].isdigit() for i in reader.ids) == CALLS_IN_FULL
    assert "each bar is the mean" not in html


def test_long_ids_and_findings_of_many_calls_stay_under_a_megabyte() -> None:
    result = many(CALLS_IN_FULL)
    ids = [f"resp_{index:048}" for index in range(200)]
    lines = [f"{name}: 10,600 of 14,150 tokens were read, 3,550 were sent again." for name in ids]
    result.findings = [
        msgspec.structs.replace(f, calls=ids, established=lines) for f in result.findings
    ]
    assert len(page(result).encode()) < 1_000_000
    [text] = re.findall(
        r'<script type="application/json"[^>]*>(.*?)</script>', page(result), re.DOTALL
    )
    copied = msgspec.json.decode(text)["json"]
    assert copied["left_out"]["ids"] == 140 * len(copied["findings"])
    assert copied["left_out"]["lines"] == 188 * len(copied["findings"])


def test_beyond_a_thousand_calls_the_page_shortens_and_says_so() -> None:
    html = page(many(CALLS_IN_FULL * 12))
    assert len(html.encode()) < 1_000_000
    text = " ".join(" ".join(read(html).text).split())
    assert f"The {CALLS_SHORTENED} dearest of 12,000 calls" in text
    assert re.search(r"each bar is the mean of \d+ neighbouring calls", text)
    assert "The 4 dearest of 6 sessions." in text
    assert "the first 160 of" in text


def test_an_empty_result_is_a_page_too() -> None:
    result = samples.audit([])
    result.scope = msgspec.structs.replace(result.scope, calls=0, sessions=0)
    result.findings = []
    text = "".join(read(page(result)).text)
    assert "No calls were found in what was read." in text


def test_unknown_figures_are_said_to_be_unknown() -> None:
    result = samples.audit()
    result.totals = samples.usage().groups[0].totals
    result.findings = []
    result.what_if = WhatIf()
    text = " ".join(" ".join(read(page(result)).text).split())
    assert "Paid not known no price for 'new-model'" in text
    assert "Read ratio not known" in text


def test_losses_without_a_price_are_told_in_tokens() -> None:
    result = samples.audit()
    result.findings = [
        msgspec.structs.replace(f, lost=samples.LossRow(f.lost.input_equivalents, None))
        for f in result.findings
        if f.lost
    ]
    text = " ".join(" ".join(read(page(result)).text).split())
    assert "56 % of the weighted" not in text
    assert "59 % of the weighted input went into cache misses." in text
    assert "69,690 weighted tokens lost" in text


def test_findings_of_a_rule_are_one_opportunity() -> None:
    result = samples.audit()
    first: FindingRow = result.findings[0]
    result.findings = [
        msgspec.structs.replace(first, id=f"F{n}", session=f"session-{n}") for n in range(900)
    ]
    html = page(result)
    assert len(html.encode()) < 1_000_000
    text = " ".join(" ".join(read(html).text).split())
    assert "899 findings more of this rule, the dearest 6 here" in text
    assert "1 call in 900 sessions" in text


def test_many_rules_are_shortened() -> None:
    result = samples.audit()
    first: FindingRow = result.findings[0]
    calls = [f"r{n}" for n in range(1, 15)]
    result.findings = [
        msgspec.structs.replace(first, id=f"F{n}", rule=f"TTL{n}", calls=calls) for n in range(200)
    ]
    html = page(result)
    assert len(html.encode()) < 1_000_000
    assert "The first 40 of 200" in html


def text_of(result: AuditResult) -> str:
    return " ".join(" ".join(read(page(result)).text).split())


def test_without_a_simulation_the_page_says_so() -> None:
    result = samples.audit()
    result.what_if = WhatIf(reason="the model is not known to the simulator")
    text = text_of(result)
    assert "Lost to misses $0.68 56 % of it; 225,573 ordinary input tokens" in text
    assert "not known: the model is not known to the simulator" in text
    assert "No score without a simulation" in text
    assert "No other setting was simulated: the model is not known to the simulator." in text


def test_without_prices_times_requests_and_findings_the_page_is_whole() -> None:
    text = text_of(samples.bare())
    assert "Nothing that was read here was lost to a cache miss." in text
    assert "Paid not known" in text
    assert "times are not known, so calls stand side by side" in text
    assert "The record holds no requests" in text
    assert "No price is known for these models" in text
    assert "None: nothing in this record was lost" in text


def test_one_call_is_a_page() -> None:
    result = samples.bare()
    rows = list(result.calls)[:1]
    result.calls = rows
    result.scope = msgspec.structs.replace(result.scope, calls=1)
    result.totals = samples.totals(rows)
    assert "Nothing that was read here was lost" in text_of(result)


def test_steps_are_named_and_may_cost() -> None:
    html = page()
    assert 'class="costs"' in html
    text = text_of(samples.audit())
    assert "Score of 100 Without any cache these calls would have cost $1.84" in text


def test_every_call_is_traced_to_a_price_row() -> None:
    text = text_of(samples.audit())
    assert "How $1.21 is made" in text
    # 280,420 x 3.75 / 1,000,000; 311,760 x 0.3 / 1,000,000; 4,200 x 15 / 1,000,000
    for amount in ("1.051575", "0.093528", "0.063", "1.208103 USD"):
        assert amount in text
    assert "added up by other groups" not in text


def test_the_copies_can_be_read_back_and_end_no_script() -> None:
    html = page(hostile())
    start = html.index('id="copies">') + len('id="copies">')
    data = html[start : html.index("</script>", start)]
    both = json.loads(data)
    assert both["json"]["schema"] == "cacheaudit.audit/1"
    assert len(both["json"]["calls"]) == 14
    assert both["md"].startswith("# Cache audit")
    assert HOSTILE in both["json"]["findings"][0]["title"]


def test_texts_around_a_change_are_shown_as_given() -> None:
    text = text_of(samples.audit())
    assert '{"xxxx":"⟦Xxxxx⟧"}' in text
    assert "Letters and digits are masked" in text


def test_where_there_is_nothing_to_mend_the_page_says_so() -> None:
    result = samples.audit()
    base = result.what_if.baseline
    assert base is not None
    result.findings = []
    result.what_if = WhatIf(all_fixes=base, baseline=base, reported=base)
    text = text_of(result)
    assert "Avoidable $0.00 there is nothing to mend" in text
    assert "Best case $1.21 as it was" in text
    assert "There is nothing to mend: the best case is what was paid." in text
