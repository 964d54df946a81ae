"""The guide keeps up with options, endpoints and metrics."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from local_backend.rules.base import Miss
from local_backend.server.app import ROUTES
from local_backend.server.options import KEYS, make_parser
from tests.unit.local_backend.server.running import Running


@pytest.fixture(scope="module")
def guide(root: Path) -> str:
    return (root / "docs/guide/server.md").read_text()


def test_every_option_is_described_and_no_other(guide: str) -> None:
    actions = make_parser()._actions
    known = {option for action in actions for option in action.option_strings}
    rows = [line.split("|")[1] for line in guide.splitlines() if line.startswith("| `--")]
    described = set(re.findall(r"`(--[a-z-]+)`", "".join(rows)))
    assert described == {option for option in known if option.startswith("--")} - {"--help"}
    assert KEYS in guide


def test_every_endpoint_is_described(guide: str) -> None:
    for method, path, _, _ in ROUTES:
        assert f"`{method} {path.replace('{name:path}', 'NAME')}`" in guide


def test_every_metric_is_described(guide: str, server: Running) -> None:
    server.ask({})
    names = set(re.findall(r"^# TYPE (\w+)", server.call("/metrics")[1], re.MULTILINE))
    assert names == set(re.findall(r"`(cacheaudit_\w+)`", guide))


def test_every_reason_is_described(guide: str) -> None:
    assert all(f"`{reason.value}`" in guide for reason in Miss)
