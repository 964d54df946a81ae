"""Prints what a pytest run skipped, by reason, and what the wheel tests reported."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree


def main(path: str) -> None:
    """Read a JUnit file and print."""
    skipped: Counter[str] = Counter()
    smoke: list[str] = []
    # The file was written by our own pytest run a moment ago.
    for case in ElementTree.fromstring(Path(path).read_text(encoding="utf-8")).iter("testcase"):  # noqa: S314
        for skip in case.iter("skipped"):
            skipped[skip.get("message", "no reason")] += 1
        smoke += [p.get("value", "") for p in case.iter("property") if p.get("name") == "smoke"]
    lines = [f"wheels: {line}" for line in smoke or ["nothing reported"]]
    lines.append(f"skipped: {sum(skipped.values())}")
    lines += [f"  {count} x {reason}" for reason, count in skipped.most_common()]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
