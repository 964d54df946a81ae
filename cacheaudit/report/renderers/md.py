"""Markdown, for an issue or a pull request."""

from __future__ import annotations

from typing import BinaryIO

from cacheaudit.report.markdown import audit_markdown, code, escape, usage_markdown
from cacheaudit.report.renderer import View
from cacheaudit.report.result import AuditResult, UsageResult


class MarkdownRenderer:
    """Writes tables and headings; text from the record is escaped."""

    name = "md"
    suffix = ".md"

    def audit(self, result: AuditResult, out: BinaryIO, view: View) -> None:
        """Write the result of an audit; single calls are left to JSON and CSV."""
        del view
        out.write(audit_markdown(result).encode())

    def usage(self, result: UsageResult, out: BinaryIO, view: View) -> None:
        """Write totals."""
        del view
        out.write(usage_markdown(result).encode())


RENDERER = MarkdownRenderer()
__all__ = ["RENDERER", "MarkdownRenderer", "code", "escape"]
