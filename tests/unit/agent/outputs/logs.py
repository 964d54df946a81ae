"""Three logs of test runs, as long as real ones: the same in every run."""

from __future__ import annotations

TRACE = [
    "Traceback (most recent call last):",
    '  File "shop/stock.py", line 88, in reserve',
    "    raise StockError(f'{sku}: {left} left, {wanted} wanted')",
    "shop.stock.StockError: SKU-2210: 3 left, 5 wanted",
]
STATUSES = {"unit": 0, "integration": 1, "browser": 124}


def log(name: str, rows: int = 40_000) -> str:
    """Return one log: ``unit`` passes, ``integration`` fails midway, ``browser`` times out."""
    lines = [
        f"10:{row // 3600 % 60:02}:{row // 60 % 60:02} {name} case_{row:05} ... ok ({row % 97} ms)"
        for row in range(rows)
    ]
    if name == "integration":
        lines[rows // 2 : rows // 2] = ["case_20000_reserve ... FAILED", *TRACE]
        lines.append(f"1 failed, {rows} passed")
    elif name == "browser":
        lines[rows // 3] = "page /checkout: timed out after 30 s waiting for #pay"
        lines.append("stopped by the time limit")
    else:
        lines.append(f"0 failed, {rows} passed")
    return "\n".join(lines) + "\n"
