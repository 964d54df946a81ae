"""The report page in a real browser."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from cacheaudit.report.renderer import View, renderer
from tests.browser import chromium
from tests.unit.report import samples
from tests.unit.report.test_html import many
from tests.unit.report.test_renderers import hostile

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser() -> Iterator[chromium.Browser]:
    program = chromium.find()
    if program is None:
        if os.environ.get("CI"):
            pytest.fail("Chromium is missing; tests/services.sh installs it")
        pytest.skip("Chromium is missing (Debian package: chromium)")
    opened = chromium.Browser(program)
    yield opened
    opened.close()


def write(folder: Path, kind: str) -> Path:
    made = {
        "plain": samples.audit,
        "hostile": hostile,
        "bare": samples.bare,
        "many": lambda: many(3_000),
    }[kind]()
    out = io.BytesIO()
    renderer("html").audit(made, out, View())
    file = folder / "report.html"
    file.write_bytes(out.getvalue())
    return file


@pytest.mark.parametrize("kind", ["plain", "hostile", "bare", "many"])
def test_no_error_and_no_request(browser: chromium.Browser, tmp_path: Path, kind: str) -> None:
    page = write(tmp_path, kind)
    browser.size(1000)
    browser.open(page)
    browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    asked = {
        event["params"]["request"]["url"]
        for event in browser.events
        if event.get("method") == "Network.requestWillBeSent"
    }
    # A data: address is part of the page itself.
    assert {url for url in asked if not url.startswith("data:")} == {page.as_uri()}
    bad = [
        event
        for event in browser.events
        if event.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded")
        or (
            event.get("method") == "Runtime.consoleAPICalled"
            and event["params"]["type"] in ("error", "warning", "assert")
        )
    ]
    assert bad == []
    # The script ran: what needs it is shown.
    assert browser.evaluate("document.querySelector('[data-needs-script]').hidden") is False


@pytest.mark.parametrize("width", [400, 1000, 1600])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["plain", "hostile", "bare", "many"])
def test_nothing_runs_out_of_the_window(
    browser: chromium.Browser, tmp_path: Path, width: int, scheme: str, kind: str
) -> None:
    browser.media(scheme)
    browser.size(width)
    browser.open(write(tmp_path, kind))
    browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.evaluate("document.documentElement.scrollWidth") <= width


def luminance(colour: str) -> float:
    """Relative luminance as WCAG defines it, of ``rgb(r, g, b)``."""
    parts = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(browser: chromium.Browser, tmp_path: Path, scheme: str) -> None:
    browser.media(scheme)
    browser.size(1000)
    browser.open(write(tmp_path, "plain"))
    style = "getComputedStyle(document.querySelector('{}')).{}"
    page = browser.evaluate(style.format("body", "backgroundColor"))
    assert (luminance(page) > 0.5) == (scheme == "light")
    panel = browser.evaluate(style.format(".panel", "backgroundColor"))
    for selector in (
        "h1",
        ".panel .quiet",
        ".number .big",
        ".metric .quiet",
        ".price",
        ".todo",
        ".sure.proved",
        "thead th",
    ):
        colour = browser.evaluate(style.format(selector, "color"))
        assert contrast(colour, panel) >= 4.5, selector
    for name in ("read", "write", "uncached"):
        colour = browser.evaluate(f"getComputedStyle(document.querySelector('.key.{name}')).color")
        assert colour
    fills = {
        name: browser.evaluate(f"getComputedStyle(document.querySelector('svg path.{name}')).fill")
        for name in ("read", "write")
    }
    # Told apart without seeing hue, and from the panel that they stand on.
    assert contrast(fills["read"], fills["write"]) >= 1.3
    for colour in fills.values():
        assert contrast(colour, panel) >= 2.0


def shown(browser: chromium.Browser) -> list[str]:
    found: list[str] = browser.evaluate(
        "[...document.querySelectorAll('.finding')].filter(f => !f.hidden).map(f => f.id)"
    )
    return found


def pause(browser: chromium.Browser) -> None:
    browser.call(
        "Runtime.evaluate",
        expression="new Promise(done => setTimeout(done, 80))",
        awaitPromise=True,
    )


def test_the_filter_and_the_chips(browser: chromium.Browser, tmp_path: Path) -> None:
    browser.size(1000)
    browser.open(write(tmp_path, "plain"))
    assert len(shown(browser)) == 6
    typing = (
        "(() => {{ const f = document.getElementById('filter'); f.value = {!r};"
        " f.dispatchEvent(new Event('input')); }})()"
    )
    browser.evaluate(typing.format("TTL101"))
    assert shown(browser) == ["f2"]
    browser.evaluate(typing.format("nothing has this"))
    assert shown(browser) == []
    assert browser.evaluate("document.getElementById('nothing').hidden") is False
    browser.evaluate(typing.format(""))
    browser.evaluate("document.querySelector('[data-chip=Tools]').click()")
    assert shown(browser) == ["f4"]
    browser.evaluate("document.querySelector('[data-chip=Timing]').click()")
    assert shown(browser) == ["f2"]
    # A link to an opportunity that is filtered out brings it back.
    browser.evaluate("location.hash = '#f3'")
    pause(browser)
    assert "f3" in shown(browser)


def test_the_model_filter(browser: chromium.Browser, tmp_path: Path) -> None:
    result = samples.audit()
    rows = samples.calls()
    rows[6] = msgspec.structs.replace(rows[6], model="other-model")
    result.calls = rows
    page = tmp_path / "models.html"
    out = io.BytesIO()
    renderer("html").audit(result, out, View())
    page.write_bytes(out.getvalue())
    browser.open(page)
    choose = (
        "(() => {{ const m = document.getElementById('model'); m.value = {!r};"
        " m.dispatchEvent(new Event('change')); }})()"
    )
    browser.evaluate(choose.format("other-model"))
    assert shown(browser) == ["f2"]
    browser.evaluate(choose.format(""))
    assert len(shown(browser)) == 6


def test_time_or_calls_tokens_or_money(browser: chromium.Browser, tmp_path: Path) -> None:
    browser.size(1000)
    browser.open(write(tmp_path, "plain"))
    seen = (
        "[...document.querySelectorAll('.view, svg g.tokens:has(.read), svg g.money:has(.read)')]"
        ".filter(e => [e, e.closest('.view')].every(p => getComputedStyle(p).display !== 'none'))"
        ".map(e => e.className.baseVal ?? e.className.replace('scroll ', ''))"
    )
    rows = 4
    assert browser.evaluate(seen) == ["view time first", *["tokens"] * rows]
    browser.evaluate("document.getElementById('by-calls').click()")
    assert browser.evaluate(seen) == ["view calls", *["tokens"] * rows]
    browser.evaluate("document.getElementById('by-money').click()")
    assert browser.evaluate(seen) == ["view calls", *["money"] * rows]


def test_copies_reach_the_clipboard(browser: chromium.Browser, tmp_path: Path) -> None:
    browser.size(1000)
    browser.open(write(tmp_path, "plain"))
    browser.evaluate(
        "Object.defineProperty(navigator, 'clipboard', {configurable: true, value:"
        " {writeText: text => { window.copied = text; return Promise.resolve(); }}})"
    )
    browser.evaluate("document.querySelector('[data-copies=md]').click()")
    pause(browser)
    copied = browser.evaluate("window.copied")
    assert copied.startswith("# Cache audit")
    assert "| Best case |  | $0.89 |  |" in copied
    browser.evaluate("document.querySelector('[data-copies=json]').click()")
    pause(browser)
    document = json.loads(browser.evaluate("window.copied"))
    assert document["schema"] == "cacheaudit.audit/1"
    assert document["totals"]["cost"]["computed"] == "1.208103"
    assert [call["id"] for call in document["calls"]] == [f"r{n}" for n in range(1, 15)]
    button = "document.querySelector('[data-copies=json]').textContent"
    assert browser.evaluate(button) == "Copied"
    browser.evaluate("document.querySelector('.patch button').click()")
    pause(browser)
    assert browser.evaluate("window.copied").startswith("cache_control = ")


def test_without_a_clipboard_the_text_can_be_copied_by_hand(
    browser: chromium.Browser, tmp_path: Path
) -> None:
    browser.size(1000)
    browser.open(write(tmp_path, "plain"))
    browser.evaluate(
        "Object.defineProperty(navigator, 'clipboard', {configurable: true, value: undefined})"
    )
    browser.evaluate("document.querySelector('[data-copies=md]').click()")
    pause(browser)
    area = "document.querySelector('.by-hand')"
    assert browser.evaluate(f"{area}.value").startswith("# Cache audit")
    assert browser.evaluate(f"{area}.selectionEnd > 500") is True


def test_stepping_through_the_breaks(browser: chromium.Browser, tmp_path: Path) -> None:
    browser.size(1000)
    browser.open(write(tmp_path, "plain"))
    place = "document.getElementById('at-break').textContent"
    focused = "document.activeElement.querySelector('code').textContent"
    forward = "document.querySelector('[data-step=\"1\"]').click()"
    browser.evaluate(forward)
    assert (browser.evaluate(place), browser.evaluate(focused)) == ("1 of 2", "tools[3]")
    browser.evaluate(forward)
    assert (browser.evaluate(place), browser.evaluate(focused)) == ("2 of 2", "tool_choice")
    browser.evaluate(forward)
    assert browser.evaluate(place) == "1 of 2"
    browser.evaluate("document.querySelector('[data-step=\"-1\"]').click()")
    assert browser.evaluate(place) == "2 of 2"


def test_a_mark_opens_its_opportunity(browser: chromium.Browser, tmp_path: Path) -> None:
    browser.size(1000)
    browser.open(write(tmp_path, "plain"))
    assert browser.evaluate("document.getElementById('f4').open") is False
    browser.evaluate("location.hash = '#f4'")
    pause(browser)
    assert browser.evaluate("document.getElementById('f4').open") is True


def test_a_heading_sorts_the_calls(browser: chromium.Browser, tmp_path: Path) -> None:
    browser.size(1000)
    browser.open(write(tmp_path, "plain"))
    browser.evaluate(
        "[...document.querySelectorAll('.calls th button')]"
        ".find(b => b.textContent === 'Written').click()"
    )
    first = "document.querySelector('.calls tbody tr').cells[6].textContent.trim()"
    assert browser.evaluate(first) == "44,520"
    browser.evaluate("document.querySelector('.calls th[aria-sort] button').click()")
    assert browser.evaluate(first) == "1,500"


def test_the_keyboard_reaches_what_can_be_used(browser: chromium.Browser, tmp_path: Path) -> None:
    browser.size(1000)
    browser.open(write(tmp_path, "plain"))
    reached: list[str] = []
    for _ in range(120):
        browser.press("Tab", 9)
        reached.append(
            browser.evaluate(
                "(e => e.id || e.dataset.chip || e.dataset.copies || e.dataset.step"
                " || e.getAttribute('href') || e.className || e.tagName)(document.activeElement)"
            )
        )
    assert reached[0] == "#opportunities"
    for name in ("json", "md", "filter", "Timing", "by-calls", "SUMMARY", "1", "-1"):
        assert name in reached or (name == "by-calls" and "time" in str(reached)), name
    assert any(str(name).startswith("#f") for name in reached)
    assert any(str(name).startswith("#c") for name in reached)


def test_it_reads_without_scripts(browser: chromium.Browser, tmp_path: Path) -> None:
    browser.size(1000)
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(write(tmp_path, "plain"))
        text = browser.evaluate("document.body.innerText")
        assert "56 % of the bill went into cache misses." in text
        assert "$0.89" in text
        assert "Established" in text
        for hidden in (".tools[data-needs-script]", ".buttons"):
            style = f"getComputedStyle(document.querySelector('{hidden}')).display"
            assert browser.evaluate(style) == "none"
        assert browser.evaluate("document.querySelector('svg path.read') !== null") is True
        # The figure can be turned without a script, too.
        browser.evaluate("document.getElementById('by-calls').checked = true")
        view = "getComputedStyle(document.querySelector('.view.{}')).display"
        assert browser.evaluate(view.format("time")) == "none"
        assert browser.evaluate(view.format("calls")) == "block"
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)


def test_on_paper(browser: chromium.Browser, tmp_path: Path) -> None:
    browser.size(794)
    browser.media("dark", "print")
    try:
        browser.open(write(tmp_path, "plain"))
        tools = "getComputedStyle(document.querySelector('.tools')).display"
        assert browser.evaluate(tools) == "none"
        ground = browser.evaluate("getComputedStyle(document.body).backgroundColor")
        assert luminance(ground) == pytest.approx(1.0)
        assert browser.evaluate("document.documentElement.scrollWidth") <= 794
        browser.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert browser.evaluate("document.querySelectorAll('details:not([open])').length") == 0
        browser.evaluate("dispatchEvent(new Event('afterprint'))")
        assert browser.evaluate("document.querySelectorAll('details:not([open])').length") > 0
    finally:
        browser.media("light")
