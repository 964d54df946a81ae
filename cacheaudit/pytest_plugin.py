"""Fails a test whose agent run moves its cached prefix.

The fixture ``cache_prefix_guard`` takes the request bodies of a test: ``guard.record(body)``, or
``guard.transport(...)`` and ``guard.on_request`` for HTTP clients. A test that breaks its prefix on
purpose says why: ``@pytest.mark.moves_cache_prefix(reason="...")``.

pytest loads this module in every run where cacheaudit is installed, so it imports nothing else
until a test asks for the fixture.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from cacheaudit.jobs.guard import CachePrefixGuard

MARKER = "moves_cache_prefix"
_FIXTURE = "cache_prefix_guard"
_HINT = (
    f'If it is meant to, mark the test: @pytest.mark.{MARKER}(reason="..."); for a compaction of'
    " the history call guard.compaction() before it."
)


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers", f"{MARKER}(reason): this test moves its cached prefix on purpose, and why."
    )


@pytest.fixture
def cache_prefix_guard(request: pytest.FixtureRequest) -> Iterator[CachePrefixGuard]:
    """Record request bodies; the test fails where one does not extend the one before it."""
    from cacheaudit.jobs.guard import CachePrefixGuard

    _reason(request.node)
    guard = CachePrefixGuard()
    yield guard
    # What other fixtures sent while they were torn down has not been looked at yet.
    checked = request.node.stash.get(_CHECKED, None)
    if checked is not None and len(guard.breaks) > checked and _reason(request.node) is None:
        pytest.fail(_broken(guard), pytrace=False)


_CHECKED = pytest.StashKey[int]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Judge right behind the test's own code, so that a break is a failure and no error."""
    result = yield
    guard = getattr(item, "funcargs", {}).get(_FIXTURE)
    if guard is not None:
        item.stash[_CHECKED] = len(guard.breaks)
        message = _verdict(guard, _reason(item))
        if message is not None:
            pytest.fail(message, pytrace=False)
    return result


def _verdict(guard: CachePrefixGuard, reason: str | None) -> str | None:
    if guard.breaks and reason is None:
        return _broken(guard)
    if guard.unused_compactions:
        names = ", ".join(map(repr, guard.unused_compactions))
        return f"A compaction was announced for {names}, but no request changed the history."
    if reason is not None and not guard.breaks:
        return (
            f"The test is marked as moving its cached prefix ({reason}), but none of its"
            f" {guard.requests} requests did. Remove the marker."
        )
    return None


def _broken(guard: CachePrefixGuard) -> str:
    return f"The cached prefix moved.\n{guard.report()}\n{_HINT}"


def _reason(item: Any) -> str | None:
    """Return the reason of the marker; ``None`` where the test has none."""
    marker = item.get_closest_marker(MARKER)
    if marker is None:
        return None
    reason = marker.kwargs.get("reason", marker.args[0] if marker.args else None)
    if not isinstance(reason, str) or not reason.strip():
        pytest.fail(f'{MARKER} needs a reason: @pytest.mark.{MARKER}(reason="...").', pytrace=False)
    return reason.strip()
