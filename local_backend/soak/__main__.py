"""``python -m local_backend.soak --minutes 10``: exit code 0 if every page is accounted for."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence

from local_backend.errors import LocalBackendError
from local_backend.soak.config import draw_lives
from local_backend.soak.run import Result, soak

_LIFE_S = 30.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a soak; 0 where all is well, 1 where not, 2 where it could not run."""
    parser = argparse.ArgumentParser(
        prog="python -m local_backend.soak",
        description="Clients that come, leave and hang up at random; too few pages, tiers, and a"
        " server that is stopped or killed and started again. At the end every page must be"
        " accounted for, and equal requests must have had equal answers.",
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="of all lives together")
    parser.add_argument("--seed", type=int, default=1, help="of everything that is drawn")
    parser.add_argument("--users", type=int, default=6, help="clients at the same time")
    parser.add_argument("--lives", type=int, help="starts of the server; one for each 30 s")
    found = parser.parse_args(arguments)
    seconds = found.minutes * 60
    count = found.lives or max(2, round(seconds / _LIFE_S))
    if seconds <= 0 or found.users < 1 or count < 1:
        parser.error("minutes, users and lives must be more than 0")
    with tempfile.TemporaryDirectory() as folder:
        lives = draw_lives(found.seed, seconds, count, found.users, folder)
        try:
            result = soak(lives, found.seed, _say)
        except LocalBackendError as error:
            sys.stderr.write(f"Error: {error.message}\n")
            return 2
    return _report(result)


def _report(result: Result) -> int:
    for name, count in sorted(result.counts.items()):
        _say(f"  {name.replace('_', ' ')}: {count:,}")
    if result.problems:
        _say(f"{len(result.problems)} problems")
        return 1
    _say(f"all {result.pages} pages accounted for, equal requests had equal answers")
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
