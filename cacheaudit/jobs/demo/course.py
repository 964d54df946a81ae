"""What a capable model would say to each request, on both ways of working."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

from cacheaudit.agent.compaction.history import blocks_of
from cacheaudit.jobs.demo.project import Issue

Said = list[dict[str, Any]]
REVIEW: Final = "You are a reviewer."
_SUMMARY: Final = "Pause the work here and write a summary"
JOBS: Final = ("lint", "build", "unit")


class Course:
    """Plays the model: steps of the main conversation in order, reviews, summaries."""

    def __init__(self) -> None:
        self._steps: deque[Said] = deque()
        self._serial = 0

    def plan(self, issue: Issue, *, scripts: bool) -> None:
        """Lay out the steps of one issue.

        Args:
            issue: What is to be repaired.
            scripts: Tools are called by scripts, several in one.
        """
        steps = _by_scripts(issue) if scripts else _one_by_one(issue)
        self._steps.extend([*steps, _text(_verdict(issue))])

    def __call__(self, request: Mapping[str, Any]) -> Sequence[Mapping[str, Any]] | None:
        """Say what comes next; ``None``: the model itself may answer."""
        last = "".join(str(b.get("text", "")) for b in blocks_of(request["messages"][-1]))
        if _SUMMARY in last:
            return _text(
                "## Goal\nRepair the modules whose tests fail at night.\n## State\nEarlier issues"
                " are closed.\n## Decisions\nOne expression each.\n## Next steps\nThe next issue."
            )
        if REVIEW in last:
            return _text("The change is small and its test covers it. No objection.")
        if not self._steps:
            return None
        step = self._steps.popleft()
        for block in step:
            if block["type"] == "tool_use":
                self._serial += 1
                block["id"] = f"toolu_{self._serial:04}"
        return step


def _by_scripts(issue: Issue) -> list[Said]:
    look = (
        f"for job in {list(JOBS)!r}:\n"
        f"    log = str(await read_log(name='{issue.name}.' + job))\n"
        "    for row in log.split('\\n'):\n"
        "        if 'FAIL' in row or 'exit status' in row:\n"
        "            text(row)\n"
        f"text(await read_file(path='{issue.source}'))\n"
    )
    repair = (
        f"await write_file(path='{issue.source}', text={_repaired(issue)!r})\n"
        f"text(await run_tests(path='{issue.test}'))\n"
    )
    return [_call("run_code", script=look), _call("run_code", script=repair)]


def _one_by_one(issue: Issue) -> list[Said]:
    logs = [_call("read_log", name=f"{issue.name}.{job}")[0] for job in JOBS]
    return [
        logs,
        _call("read_file", path=issue.source),
        _call("write_file", path=issue.source, text=_repaired(issue)),
        _call("run_tests", path=issue.test),
    ]


def _repaired(issue: Issue) -> str:
    return issue.module(issue.right if issue.solvable else "values")


def _verdict(issue: Issue) -> str:
    if issue.solvable:
        return f"Issue {issue.number} is repaired; {issue.test} passes."
    return f"Issue {issue.number}: {issue.test} still fails; somebody else should look."


def _call(tool: str, /, **given: str) -> Said:
    return [{"type": "tool_use", "id": "", "name": tool, "input": given}]


def _text(text: str) -> Said:
    return [{"type": "text", "text": text}]
