"""The report page in a real browser."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path

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
    made = {"plain": samples.audit, "hostile": hostile, "many": lambda: many(3_000)}[kind]()
    out = io.BytesIO()
    renderer("html").audit(made, out, View())
    file = folder / "report.html"
    file.write_bytes(out.getvalue())
    return file


@pytest.mark.parametrize("kind", ["plain", "hostile", "many"])
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
@pytest.mark.parametrize("kind", ["plain", "hostile", "many"])
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
    for selector in ("h1", ".panel .quiet", ".price", ".sure.proved", "thead th"):
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
    browser.evaluate("document.querySelector('[data-chip=consistent]').click()")
    assert shown(browser) == ["f1", "f2"]
    browser.evaluate("document.querySelector('[data-chip=note]').click()")
    assert shown(browser) == ["f6"]
    # A link to a finding that is filtered out brings it back.
    browser.evaluate("location.hash = '#f3'")
    browser.evaluate("new Promise(done => setTimeout(done, 50))")
    browser.call(
        "Runtime.evaluate",
        expression="new Promise(done => setTimeout(done, 50))",
        awaitPromise=True,
    )
    assert "f3" in shown(browser)


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
    for _ in range(60):
        browser.press("Tab", 9)
        reached.append(
            browser.evaluate(
                "(e => e.id || e.dataset.chip || e.getAttribute('href') || e.className"
                " || e.tagName)(document.activeElement)"
            )
        )
    assert reached[0] == "#findings"
    assert "filter" in reached
    assert "proved" in reached
    assert any(str(name).startswith("#f") and name != "#findings" for name in reached)
    assert "SUMMARY" in reached


def test_it_reads_without_scripts(browser: chromium.Browser, tmp_path: Path) -> None:
    browser.size(1000)
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(write(tmp_path, "plain"))
        text = browser.evaluate("document.body.innerText")
        assert "Paid $1.21" in text
        assert "Established" in text
        tools = "getComputedStyle(document.querySelector('.tools')).display"
        assert browser.evaluate(tools) == "none"
        assert browser.evaluate("document.querySelector('svg path.read') !== null") is True
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
    finally:
        browser.media("light")
