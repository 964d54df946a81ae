"""The agent's loop, in two ways of working: naive, and with what this package offers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from cacheaudit.agent.audit import CacheAudit
from cacheaudit.agent.compaction.compactor import Compactor
from cacheaudit.agent.compaction.history import blocks_of
from cacheaudit.agent.fan_out.plain import plain
from cacheaudit.agent.tools.session import ToolSession
from cacheaudit.jobs.demo.course import REVIEW
from cacheaudit.jobs.demo.project import Issue
from cacheaudit.model.clock import iso

MODEL: Final = "claude-opus-5"
_MOST_OUTPUT: Final = 1_024
_MOST_STEPS: Final = 12
SYSTEM: Final = (
    "You are a coding agent in a small Python project. Each module has one function and one test."
    " Jobs run every night and write a log each: lint, build, unit. When you are given an issue,"
    " find the cause in the logs, change as little as possible, run the tests of the module, and"
    " say in one sentence what came of it. Never change a test. Two reviewers read each change;"
    " answer them before you finish. Keep to the style that is there: four spaces, no comments"
    " that repeat the code, no new dependencies."
)
_REVIEWERS: Final = ("correctness", "style")


class Agent:
    """One conversation about several issues.

    Args:
        audit: Records it.
        client: Sends requests.
        tools: What it works with.
        now: The clock.
        compactor: Keeps it short; ``None``: nobody does.
        careful: Whether it works with what this package offers.

    Attributes:
        decisions: What became of the question whether to compact.
    """

    def __init__(
        self,
        audit: CacheAudit,
        client: Any,
        tools: ToolSession,
        now: Callable[[], float],
        compactor: Compactor | None,
        *,
        careful: bool,
    ) -> None:
        self._audit = audit
        self._client = client
        self._tools = tools
        self._now = now
        self._compactor = compactor
        self._careful = careful
        self._messages: list[Mapping[str, Any]] = []
        self.decisions: Counter[str] = Counter()

    def solve(self, issue: Issue, reviewed: str) -> None:
        """Work on an issue until the model says nothing more.

        Args:
            issue: What is to be repaired.
            reviewed: What reviewers are shown beside the conversation.
        """
        self._say(f"Issue {issue.number}: the nightly jobs of {issue.name} fail. Repair it.")
        for step in range(_MOST_STEPS):
            reply = self._ask()
            self._messages.append({"role": "assistant", "content": reply["content"]})
            if reply["stop_reason"] != "tool_use":
                return
            self._messages.extend(self._tools.answer(reply))
            if step == 0:
                self._say(" ".join(self._reviews(reviewed)))

    def _say(self, text: str) -> None:
        """Add the user's words: behind tool results, where these come last."""
        block = {"type": "text", "text": text}
        if self._messages and self._messages[-1]["role"] == "user":
            last = self._messages[-1]
            self._messages[-1] = {**last, "content": [*blocks_of(last), block]}
            return
        self._messages.append({"role": "user", "content": [block]})

    def _ask(self) -> Mapping[str, Any]:
        request = self._request(self._messages)
        if self._compactor is not None:
            request = self._compactor.prepare(request)
            self._messages = list(request["messages"])
            self._note(self._compactor)
        with self._client.messages.stream(**request) as events:
            reply = plain(events.get_final_message())
        if self._compactor is not None:
            self._compactor.took(request, reply)
        return _spoken(reply)

    def _note(self, compactor: Compactor) -> None:
        outcome = compactor.outcome
        if outcome is not None and outcome.decision.reason != "no_occasion":
            word = outcome.decision.reason.replace("_", " ")
            if outcome.decision.action != "keep":
                word = outcome.failure or f"{outcome.decision.action} ({outcome.decision.occasion})"
            self.decisions[word] += 1

    def _request(self, messages: list[Mapping[str, Any]]) -> dict[str, Any]:
        # The naive way tells the model what time it is, where it changes everything behind it.
        system = SYSTEM if self._careful else f"It is {iso(self._now())}.\n{SYSTEM}"
        return {
            "model": MODEL,
            "max_tokens": _MOST_OUTPUT,
            "tools": self._tools.tools(),
            "system": [{"type": "text", "text": system}],
            "messages": list(messages),
        }

    def _reviews(self, reviewed: str) -> list[str]:
        """Ask two reviewers, who read the conversation so far and the same file."""
        requests = []
        for name in _REVIEWERS:
            asked = {"type": "text", "text": f"{REVIEW} Look at {name} only."}
            shown = {"type": "text", "text": f"The files:\n{reviewed}"}
            last = self._messages[-1]
            mine = {**last, "content": [*blocks_of(last), shown, asked]}
            requests.append(self._request([*self._messages[:-1], mine]))
        replies: list[Any] = []
        if self._careful:
            replies.extend(self._audit.fan_out(requests, client=self._client))
        else:
            for name, request in zip(_REVIEWERS, requests, strict=True):
                with self._audit.session(f"reviewer-{name}"):
                    replies.append(self._client.messages.create(**request))
        return [str(blocks_of(plain(reply))[0].get("text")) for reply in replies]


def _spoken(reply: Mapping[str, Any]) -> dict[str, Any]:
    """Return what goes back into the conversation: the blocks with their documented fields."""
    fields = {"text": ("type", "text"), "tool_use": ("type", "id", "name", "input")}
    content = [
        {name: block[name] for name in fields[block["type"]]}
        for block in blocks_of(reply)
        if block.get("type") in fields
    ]
    return {**reply, "content": content}
