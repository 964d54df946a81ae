"""What every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no fault of the code: neither a deadline nor slow drawing may fail a test. The
# same examples are drawn in every run, so that a change is judged by what it changed; `make fuzz`
# draws others.
_CALM = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True, derandomize=True
)
settings.register_profile("calm", _CALM)
settings.register_profile("fuzz", _CALM, derandomize=False, max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "calm"))

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared() -> Path:
    """The recorded data folder beside the checkout; the test is skipped where it is absent."""
    folder = Path(os.environ.get("CACHEAUDIT_SHARED", ROOT.parent / "shared"))
    if not (folder / "data" / "expected.json").is_file():
        pytest.skip("the recorded data folder is not beside this checkout (CACHEAUDIT_SHARED)")
    return folder


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep every test away from the user's own sessions and database."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    for name in list(os.environ):
        if name.startswith(("CLAUDE_", "CODEX_", "XDG_", "CACHEAUDIT_DB")):
            monkeypatch.delenv(name)
