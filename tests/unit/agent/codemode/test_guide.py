"""The example of the guide does what the guide shows. Update it with CACHEAUDIT_UPDATE_GOLDEN=1."""

from __future__ import annotations

import contextlib
import io
import os
import re
from pathlib import Path

import msgspec
import pytest

from cacheaudit import CodeLimits
from cacheaudit.agent.codemode.stubs import HELPERS

EXAMPLE = re.compile(
    r"<!-- example:start -->\n```python\n(.*?)```\n\n```text\n(.*?)```\n<!-- example:end -->",
    re.DOTALL,
)


def test_the_three_logs_of_the_guide(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = root / "docs/guide/codemode.md"
    text = guide.read_text(encoding="utf-8")
    found = EXAMPLE.search(text)
    assert found
    monkeypatch.chdir(tmp_path)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(found[1], "codemode.md", "exec"), {"__name__": "guide"})
    if os.environ.get("CACHEAUDIT_UPDATE_GOLDEN"):
        guide.write_text(text.replace(found[2], said.getvalue()), encoding="utf-8")
        return
    assert said.getvalue() == found[2]
    before, after = re.findall(r"^(\d+) tokens of logs, (\d+) in", found[2], re.MULTILINE)[0]
    assert int(after) * 1_000 < int(before)


def test_the_guide_names_every_helper_and_limit(root: Path) -> None:
    text = (root / "docs/guide/codemode.md").read_text(encoding="utf-8")
    for name in HELPERS:
        assert f"`{name}(" in text
    for field in msgspec.structs.fields(CodeLimits):
        assert f"`{field.name}`" in text
