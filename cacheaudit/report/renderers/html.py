"""HTML: one file that loads nothing, reads well without scripts, on paper and in the dark."""

from __future__ import annotations

from typing import BinaryIO

from cacheaudit.report import page as pages
from cacheaudit.report.copies import copies
from cacheaudit.report.hero import context
from cacheaudit.report.renderer import View, not_for_usage
from cacheaudit.report.result import AuditResult, UsageResult
from cacheaudit.report.summary import by_money
from cacheaudit.report.templates import render


class HtmlRenderer:
    """Writes the report page."""

    name = "html"
    suffix = ".html"

    def audit(self, result: AuditResult, out: BinaryIO, view: View) -> None:
        """Write the result of an audit."""
        del view
        page = pages.build(result)
        rows = [call.row for call in page.calls]
        data = copies(result, rows, by_money(result.findings))
        text = render("report.html.j2", data, result=result, page=page, **context(result, page))
        out.write(text.encode())

    def usage(self, result: UsageResult, out: BinaryIO, view: View) -> None:
        """Refuse: the page is made for audits."""
        del result, out, view
        raise not_for_usage(self.name)


RENDERER = HtmlRenderer()
