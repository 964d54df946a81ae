"""The examples of the guides do what the guides show. Update with CACHEAUDIT_UPDATE_GOLDEN=1."""

from __future__ import annotations

import contextlib
import io
import os
import re
from pathlib import Path
from typing import get_args

import pytest

from cacheaudit.agent.outputs.filter import Action
from cacheaudit.agent.tools.exposure import EXPOSURES

EXAMPLE = re.compile(
    r"<!-- example:start -->\n```python\n(.*?)```\n\n```text\n(.*?)```\n<!-- example:end -->",
    re.DOTALL,
)


@pytest.mark.parametrize("name", ["tools.md", "outputs.md"])
def test_examples_of_the_guides(
    name: str, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = root / "docs/guide" / name
    text = guide.read_text(encoding="utf-8")
    found = EXAMPLE.search(text)
    assert found
    monkeypatch.chdir(tmp_path)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(found[1], name, "exec", dont_inherit=True), {"__name__": "guide"})
    if os.environ.get("CACHEAUDIT_UPDATE_GOLDEN"):
        guide.write_text(text.replace(found[2], said.getvalue()), encoding="utf-8")
        return
    assert said.getvalue() == found[2]


def test_every_exposure_error_and_action_is_described(root: Path) -> None:
    tools = (root / "docs/guide/tools.md").read_text(encoding="utf-8")
    source = (root / "cacheaudit/agent/tools/tool.py").read_text(encoding="utf-8")
    listed = source.split("error: Why there is no result: ")[1].split("``None``")[0]
    for name in (*EXPOSURES, *re.findall(r"``(\w+)``", listed)):
        assert f"| `{name}` |" in tools
    outputs = (root / "docs/guide/outputs.md").read_text(encoding="utf-8")
    for action in get_args(Action):
        assert f"| `{action}` |" in outputs
