"""A directory for scripts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from cacheaudit import CodeLimits, OutputBudget, OutputFilter, OutputStore, ToolDirectory
from cacheaudit.agent.codemode.codemode import CodeMode


class Counted:
    """A tool that notes its calls, and how many run at once."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.running = 0
        self.most = 0

    async def read(self, number: int, share: float = 1.0) -> dict[str, Any]:
        """Read a record.

        Args:
            number: Which.
            share: How much.
        """
        self.calls.append(number)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(0.05)
            if number < 0:
                raise LookupError(f"no record {number}")
            return {"number": number, "share": share}
        finally:
            self.running -= 1


def code_mode(
    *tools: Any, folder: Path | None = None, most: int = 4_000, **limits: Any
) -> tuple[ToolDirectory, CodeMode]:
    outputs = OutputFilter(OutputBudget(max_tokens=most), OutputStore(folder) if folder else None)
    directory = ToolDirectory(tools, exposure="codemode", outputs=outputs)
    return directory, CodeMode(directory, limits=CodeLimits(**limits))
