"""One local engine for all replays."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cacheaudit.jobs.inputs import Inputs, silent
from cacheaudit.jobs.replay import ReplayOptions, replay
from cacheaudit.jobs.replaying.local import LocalServer
from cacheaudit.jobs.replaying.target import Wanted, options
from cacheaudit.report.replay import ReplayResult
from tests.unit.replay.builders import ROOT
from tests.unit.replay.ticking import Ticking

# Compiled once for all tests, though each of them has a home of its own.
os.environ.setdefault("CACHEAUDIT_KERNEL_CACHE", str(ROOT / ".cache" / "kernels"))
# Every size of the exercises is a multiple of it, or stands inside one content block.
SCALE = 50
Replay = Callable[..., ReplayResult]


@pytest.fixture(scope="session")
def engine() -> Iterator[str]:
    """The address of an engine on a manual clock, large enough for everything."""
    for package in ("torch", "starlette", "uvicorn"):
        pytest.importorskip(package, reason="needs the local engine (extra 'local')")
    wanted = Wanted(scale=SCALE, context_length=4_000, pages=100_000)
    with LocalServer(options(wanted, "anthropic")) as address:
        yield address


@pytest.fixture
def replayed(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> Replay:
    """Replays sessions on that engine; nothing of another test is read."""

    def play(*paths: Path, **settings: Any) -> ReplayResult:
        inputs = Inputs(paths=paths, environment={}, home=tmp_path)
        chosen = {"backend": engine, "scale": SCALE, **settings}
        name = request.node.name.encode().hex()[:64] + str(len(played))
        played.append(name)
        return replay(inputs, silent, ReplayOptions(**chosen), tick=Ticking(), name=name)

    played: list[str] = []
    return play
