"""Templates of the page: found in ``assets``, with what every one of them may call."""

from __future__ import annotations

import base64
import hashlib
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from cacheaudit.model.money import plain
from cacheaudit.report import format as fmt
from cacheaudit.report.cells import Cell, cell, loss_cell
from cacheaudit.report.signs import SIGNS
from cacheaudit.report.svg import duration
from cacheaudit.report.words import EVIDENCE, VERDICTS, confidence, mode_words, quality_words

_CODE = re.compile(r"``(.+?)``|`(.+?)`")
_STYLES = ("report.css", "figures.css")


def render(name: str, data: str, **values: Any) -> str:
    """Fill a template.

    Args:
        name: File in ``assets``.
        data: JSON for the copy buttons, safe inside a page.
        values: What the template shows.
    """
    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        loader=jinja2.FunctionLoader(asset),
    )
    environment.globals.update(_GLOBALS)
    environment.filters["prose"] = prose
    environment.filters["inline"] = inline
    script = asset("report.js")
    return environment.get_template(name).render(
        css=Markup("".join(map(asset, _STYLES))),  # noqa: S704 - our own files
        script=Markup(script),  # noqa: S704 - our own file
        script_hash=_hash(script),
        copies=Markup(data),  # noqa: S704 - encoded for this place
        **values,
    )


def asset(name: str) -> str:
    """Read a file of ``assets``."""
    return (Path(__file__).with_name("assets") / name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def prose(text: str | None) -> Markup:
    """Turn paragraphs with marked code into markup."""
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", text or "")]
    return Markup("").join(Markup("<p>{}</p>").format(inline(part)) for part in paragraphs if part)


def inline(text: str) -> Markup:
    """Turn marked code into markup; everything else is escaped."""
    return Markup(_CODE.sub(r"<code>\1\2</code>", str(escape(text))))  # noqa: S704 - escaped


def _exactly(value: Decimal) -> str:
    return plain(value)


_GLOBALS: dict[str, Any] = {
    "Cell": Cell,
    "cell": cell,
    "loss_cell": loss_cell,
    "count": fmt.count,
    "short_count": fmt.short_count,
    "equivalents": fmt.equivalents,
    "ratio": fmt.ratio,
    "plural": fmt.plural,
    "short_id": fmt.short_id,
    "moment": fmt.moment,
    "dash": fmt.DASH,
    "exactly": _exactly,
    "duration": duration,
    "confidence": confidence,
    "quality_words": quality_words,
    "mode_words": mode_words,
    "verdicts": VERDICTS,
    "evidence_words": EVIDENCE,
    "signs": SIGNS,
}
