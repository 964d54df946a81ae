"""A comparison as one self-contained page: no script, nothing loaded."""

from __future__ import annotations

from html import escape
from pathlib import Path

import jinja2
from markupsafe import Markup

from cacheaudit.report import comparison_words as words
from cacheaudit.report.comparison import CompareResult, OutcomeRow

_WIDTH, _HEIGHT, _MARGIN = 640, 30, 16
_LEAST_REACH = 0.05


def comparison_html(result: CompareResult) -> str:
    """Render the page."""
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    template = environment.from_string(_asset("compare.html.j2"))
    return template.render(
        result=result,
        words=words,
        headline=words.headline(result),
        css=Markup(_asset("report.css")),  # noqa: S704 - our own file
        own_css=Markup(_asset("compare.css")),  # noqa: S704 - our own file
        plot=lambda row: Markup(_plot(row)),  # noqa: S704 - made of numbers
        task_rows=list(words.task_cells(result, len(result.tasks))),
    )


def _asset(name: str) -> str:
    return (Path(__file__).with_name("assets") / name).read_text(encoding="utf-8")


def _plot(row: OutcomeRow) -> str:
    """Draw the change with its interval around a line at zero."""
    found = words.relative_interval(row)
    if found is None:
        return ""
    value, low, high = found
    reach = max(abs(low), abs(high), abs(value), _LEAST_REACH)

    def place(x: float) -> float:
        return round(_WIDTH / 2 + x / reach * (_WIDTH / 2 - _MARGIN), 1)

    is_share = row.measures[0].unit == "share"
    said = ", ".join(
        f"{x * 100:+.1f} points" if is_share else words.signed_percent(x) for x in found
    )
    label = f"Change, then the ends of its interval: {said}"
    middle = _HEIGHT / 2
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(label)}"'
        f' class="change {row.conclusion}">'
        f'<path class="ground" d="M{_WIDTH / 2} 0V{_HEIGHT}"/>'
        f'<path class="range" d="M{place(low)} {middle}H{place(high)}"/>'
        f'<circle class="dot" cx="{place(value)}" cy="{middle}" r="6"/></svg>'
    )
