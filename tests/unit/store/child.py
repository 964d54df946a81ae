"""Imports a folder in a process of its own, and dies at the statement that it is told to.

Usage: child.py URL FOLDER BATCH [STATEMENT]
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

import sqlalchemy as sa  # noqa: E402
from sqlalchemy.engine import Engine  # noqa: E402

import cacheaudit.jobs.import_ as job  # noqa: E402
from cacheaudit.model.clock import FixedClock  # noqa: E402
from cacheaudit.store import open_store  # noqa: E402
from tests.unit.store.builders import ContinuingToy, inputs  # noqa: E402


def main(url: str, folder: str, batch: str, last: str = "0") -> None:
    job.BATCH = int(batch)
    left = int(last)

    def count(*_: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    for event in ("before_cursor_execute", "after_cursor_execute", "commit"):
        sa.event.listen(Engine, event, count)
    with open_store(url) as store:
        report = job.import_files(
            inputs(Path(folder)), store, FixedClock(), sources=[ContinuingToy()]
        )
    print(report.calls_new)


if __name__ == "__main__":
    main(*sys.argv[1:])
