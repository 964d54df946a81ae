"""What the tests of the recorder share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cacheaudit import CacheAudit


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., CacheAudit]]:
    """Make audits that write into the test's folder and are closed when it ends."""
    made: list[CacheAudit] = []

    def maker(**settings: Any) -> CacheAudit:
        settings.setdefault("mode", "observe")
        audit = CacheAudit(settings.pop("db", tmp_path / "usage.db"), **settings)
        made.append(audit)
        return audit

    yield maker
    for audit in made:
        assert audit.close()


@pytest.fixture
def audit(make: Callable[..., CacheAudit]) -> CacheAudit:
    """One of them."""
    return make()
