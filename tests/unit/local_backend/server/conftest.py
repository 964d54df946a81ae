"""One server for the tests that need no settings of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.local_backend.server.running import Running, running


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    """A server; at the end no page of it is in use."""
    with running() as found:
        yield found
        found.pages_are_free()
