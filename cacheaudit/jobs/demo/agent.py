"""Runs the demo agent on both ways of working and compares them."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import msgspec

from cacheaudit.agent.audit import CacheAudit
from cacheaudit.agent.compaction.compactor import Compactor
from cacheaudit.agent.compaction.settings import Compaction
from cacheaudit.agent.engine import LocalEngine
from cacheaudit.agent.keep_alive.settings import KeepAlive
from cacheaudit.agent.outputs.filter import OutputBudget, OutputFilter
from cacheaudit.agent.outputs.store import OutputStore
from cacheaudit.agent.tools.directory import ToolDirectory
from cacheaudit.agent.tools.exposure import Exposure
from cacheaudit.errors import UsageError
from cacheaudit.jobs.audit import audit as audited
from cacheaudit.jobs.compare import compare
from cacheaudit.jobs.demo.clock import JumpingClock
from cacheaudit.jobs.demo.course import Course
from cacheaudit.jobs.demo.loop import Agent
from cacheaudit.jobs.demo.project import Issue, Project, issues
from cacheaudit.jobs.demo.scripted import scripted_client
from cacheaudit.jobs.inputs import Inputs, Progress, silent
from cacheaudit.jobs.tasks import tasks
from cacheaudit.report.demo import DemoResult, DemoSide, Found

_OPTIONS: Final = ("--clock", "manual", "--min-cache-tokens", "0", "--pages", "200000")
_BETWEEN: Final = 7_200.0
# Somebody has lunch before the last issue of a conversation.
_BREAK: Final = 5_400.0
_QUEUE: Final = 400.0
_WAIT_STEP: Final = 135.0
_POLL, _POLLS = 0.005, 2_000
_COMPACTION: Final = Compaction(
    mode=("prefix", "standalone"),
    standalone_model="claude-haiku-4-5",
    at=4_000,
    keep_recent=300,
    least=500,
    expected_summary=120,
    summary_tokens=1_024,
    min_savings=Decimal(0),
)
_KEEP_ALIVE: Final = KeepAlive(mode="running", min_savings=Decimal(0))
_BUDGET: Final = OutputBudget(max_tokens=600)


def demo_agent(
    folder: Path,
    inputs: Inputs,
    progress: Progress,
    *,
    start: float,
    sessions: int = 4,
    per_session: int = 3,
) -> DemoResult:
    """Let the agent work through the same issues twice, against an engine of its own.

    Args:
        folder: Where recordings go; made where it is missing.
        inputs: Price files and environment; its paths are not looked at.
        progress: Told after every issue.
        start: Moment at which the pretended time begins, in seconds since the epoch.
        sessions: Conversations.
        per_session: Issues in each.

    Raises:
        UsageError: There is nothing to do, or the folder holds recordings already.
        MissingExtraError: The engine, the SDK or the sandbox of scripts is not installed.
    """
    if sessions < 1 or per_session < 1:
        raise UsageError("The demo needs a session and an issue at least.")
    files = [folder / f"{name}.session.jsonl" for name in ("before", "after")]
    for file in files:
        if file.exists():
            raise UsageError(f"{file} is there already.", "Name another folder with --output.")
    folder.mkdir(parents=True, exist_ok=True)
    work = issues(sessions * per_session)
    groups = [work[n : n + per_session] for n in range(0, len(work), per_session)]
    engine = LocalEngine(_OPTIONS)
    try:
        clock = JumpingClock(start, engine.address)
        done = 0
        sides = []
        for careful, file in zip((False, True), files, strict=True):

            def tell() -> None:
                nonlocal done
                done += 1
                progress(done, 2 * len(work))

            side = _Side(engine.address, clock, file, tell, careful=careful)
            side.run(groups)
            sides.append(side)
            # By then nothing of this side can be read by the other.
            clock.jump(_BETWEEN)
    finally:
        engine.close()
    before, after = files
    return DemoResult(
        before=_audited(before, inputs),
        after=_audited(after, inputs),
        compared=compare(before, after, inputs, silent),
        decisions=dict(sides[1].decisions),
        refreshes=sides[1].refreshes,
    )


def _audited(file: Path, inputs: Inputs) -> DemoSide:
    """Audit one recording."""
    mine = msgspec.structs.replace(inputs, paths=(file,))
    found = audited(mine, silent)
    return DemoSide(
        file=str(file),
        findings=[
            Found(row.rule, row.title, row.kind, row.tokens_lost, len(row.calls))
            for row in found.findings
        ],
        ledger=tasks(mine, silent),
    )


class _Side:
    """One way of working through all issues."""

    def __init__(
        self,
        address: str,
        clock: JumpingClock,
        file: Path,
        tell: Callable[[], None],
        *,
        careful: bool,
    ) -> None:
        self._address = address
        self._clock = clock
        self._file = file
        self._tell = tell
        self._careful = careful
        self.decisions: Counter[str] = Counter()
        self.refreshes = 0

    def run(self, groups: list[list[Issue]]) -> None:
        """Work, and write the recording."""
        course = Course()
        with (
            tempfile.TemporaryDirectory() as scratch,
            CacheAudit(
                Path(scratch) / "usage.db",
                "auto" if self._careful else "observe",
                keep_alive=_KEEP_ALIVE if self._careful else None,
                clock=self._clock,
            ) as audit,
            scripted_client(self._address, course) as bare,
        ):
            client = audit.wrap(bare)
            for number, group in enumerate(groups, 1):
                folder = Path(scratch) / f"session-{number}"
                self._session(audit, client, course, folder, group)
            state = audit.keep_alive
            self.refreshes = 0 if state is None else state.verified
            audit.flush()
            audit.export(self._file)

    def _session(
        self, audit: CacheAudit, client: Any, course: Course, folder: Path, group: list[Issue]
    ) -> None:
        project = Project(folder / "project", group, lambda seconds: self._pass(audit, seconds))
        store = OutputStore(folder / "outputs")
        outputs = OutputFilter(_BUDGET, store) if self._careful else None
        exposure: Exposure = "codemode" if self._careful else "direct"
        with ToolDirectory(project.tools(), exposure=exposure, outputs=outputs) as directory:
            compactor = None
            if self._careful:
                compactor = Compactor(client, store, _COMPACTION, audit=audit, clock=self._clock)
            opened = directory.open(model="claude-opus-5")
            agent = Agent(audit, client, opened, self._clock.now, compactor, careful=self._careful)
            for issue in group:
                if issue is group[-1] and len(group) > 1:
                    self._clock.jump(_BREAK)
                # The queue of the tests is long once in each session.
                project.queue_seconds = _QUEUE if issue is group[len(group) // 2] else 20.0
                self._issue(audit, course, agent, project, issue, folder.name)
            self.decisions.update(agent.decisions)

    def _issue(
        self,
        audit: CacheAudit,
        course: Course,
        agent: Agent,
        project: Project,
        issue: Issue,
        name: str,
    ) -> None:
        course.plan(issue, scripts=self._careful)
        with audit.session(name, task=f"issue {issue.number}") as session:
            agent.solve(issue, project.read_file(issue.test) * 4)
            audit.flush()
            status, _ = project.check(issue.test)
            session.outcome("rejected" if status else "accepted")
        self._clock.jump(15.0)
        self._tell()

    def _pass(self, audit: CacheAudit, seconds: float) -> None:
        """Let time pass in pieces, so that refreshes are sent when they are due."""
        while seconds > 0:
            step = min(seconds, _WAIT_STEP)
            self._clock.jump(step)
            seconds -= step
            audit.flush()
            _refresh(audit)


def _refresh(audit: CacheAudit) -> None:
    """Send what is due: the timer keeps real time and cannot know that the clock has jumped."""
    service = audit._refreshes
    if service is None:
        return
    service.keeper.tick()
    for _ in range(_POLLS):
        if not any(series.busy for series in service.keeper._series.values()):
            return
        time.sleep(_POLL)
