"""Golden files: compared, or written anew with ``CACHEAUDIT_UPDATE_GOLDEN=1``."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "golden"
SWITCH = "CACHEAUDIT_UPDATE_GOLDEN"


def check(name: str, made: bytes) -> None:
    """Compare what was made with the golden file of that name."""
    file = FOLDER / name
    if os.environ.get(SWITCH):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(made)
        return
    assert file.is_file(), f"{file} is missing; run the test once with {SWITCH}=1 and look at it"
    assert made.decode() == file.read_text(encoding="utf-8"), (
        f"{name} differs; if the new form is meant, run with {SWITCH}=1 and look at the difference"
    )
