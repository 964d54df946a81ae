"""Reads every transcript below a folder and does nothing with it: the floor under all that do.

A program of its own, started without site packages, so that little but the reads is measured.
"""

from __future__ import annotations

import os
import sys

_BUFFER = 1 << 18


def main(root: str) -> None:
    """Read the files into one buffer, again and again, and print how many bytes there were."""
    buffers = [bytearray(_BUFFER)]
    total = 0
    for folder, _, names in os.walk(root):
        for name in names:
            if name.endswith(".jsonl"):
                file = os.open(f"{folder}/{name}", os.O_RDONLY)
                while size := os.readv(file, buffers):
                    total += size
                os.close(file)
    sys.stdout.write(f'{{"bytes": {total}}}\n')


if __name__ == "__main__":
    main(sys.argv[1])
