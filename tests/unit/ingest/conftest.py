"""Reading a transcript with and without the compiled reader of usual lines."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from cacheaudit.ingest.claude_runs import scan, take_usual
from cacheaudit.ingest.sources import claude_code


@pytest.fixture(scope="module", params=["compiled", "python"])
def scanner(request: pytest.FixtureRequest) -> Iterator[str]:
    """The way that the tests of a module read transcripts, one after the other."""
    if request.param == "compiled" and take_usual is None:
        pytest.skip("the compiled scanner was not built here")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "python":
            patch.setattr(claude_code, "scan", partial(scan, take=None))
        yield request.param
