"""What the machine gives at its best, by torch: reading in a row, and a bf16 product."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from protocol import Times, least, timed


def main(threads: str, report: str) -> None:
    """Measure with so many threads and write the report."""
    torch.set_num_threads(int(threads))
    data = torch.ones(32 << 20)
    half = torch.randn(2048, 2048).bfloat16()
    read: list[Times] = [timed(data.sum) for _ in range(9)]
    product: list[Times] = [timed(lambda: half @ half) for _ in range(9)]
    found = {
        "read": [(128 << 20) / seconds for seconds in least(read)],
        "product": [2 * 2048**3 / seconds for seconds in least(product)],
    }
    Path(report).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
