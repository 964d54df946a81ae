"""The search of a session: what it returns to the model, and what it loads."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cacheaudit.agent.outputs.size import estimated
from cacheaudit.agent.tools import native
from cacheaudit.agent.tools.exposure import DEFAULT_RESULTS, search_problems
from cacheaudit.agent.tools.shown import Shown
from cacheaudit.agent.tools.tool import CALL, SEARCH, Outcome, Tool, encoded, failure

if TYPE_CHECKING:
    from cacheaudit.agent.tools.directory import ToolDirectory


class Finder:
    """Answers searches.

    Args:
        directory: Where to search.
        shown: Notes which schemas the results hold.
        declared: Tools that are declared, for the exposure in which the provider loads them;
            ``None``: results hold schemas instead.
    """

    def __init__(
        self, directory: ToolDirectory, shown: Shown, declared: Mapping[str, Tool] | None
    ) -> None:
        self._directory = directory
        self._shown = shown
        self._declared = declared
        self._lock = threading.Lock()
        self._loaded: dict[str, Tool] = {}
        self._additions: list[Tool] = []

    def search(self, arguments: Any) -> Outcome:
        """Answer a search."""
        problems = search_problems(arguments)
        if problems:
            do = "Search again with words for what the tool should do."
            return failure(SEARCH, "invalid_arguments", do, problems=problems)
        limit = arguments.get("limit", DEFAULT_RESULTS)
        found = self._directory.search(arguments["query"], limit)
        return self._schemas(found) if self._declared is None else self._load(found)

    def unread(self, tool: Tool, *, changed: bool) -> Outcome:
        """Refuse a call whose schema was not read, and show it."""
        do = "Read the schema in this result, then call the tool again in your next reply."
        error = "schema_changed" if changed else "schema_not_shown"
        outcome = failure(tool.name, error, do, schema=tool.definition())
        self._shown.give(str(outcome.content), [tool])
        return outcome

    def is_loaded(self, name: str) -> bool:
        """Tell whether a tool that is not declared was brought by a search."""
        with self._lock:
            return name in self._loaded

    def loaded(self, name: str) -> Tool | None:
        """Return a tool as it was when it was loaded, if the model has read that."""
        with self._lock:
            tool = self._loaded.get(name)
        return tool if tool and self._shown.digest(name) == tool.digest() else None

    def changes(self) -> list[dict[str, Any]]:
        """Return the blocks that bring tools by value, once."""
        with self._lock:
            additions, self._additions = self._additions, []
        return [native.addition(tool) for tool in additions]

    def rebuild(self, messages: list[Any]) -> None:
        """Take what was loaded from a history."""
        if self._declared is None:
            return
        names = set(_loaded_in(messages))
        tools = [tool for name in sorted(names) if (tool := self._directory.get(name))]
        with self._lock:
            self._loaded = {tool.name: tool for tool in tools}
            self._additions = []
        self._shown.give("", tools)
        self._shown.sent()

    def _schemas(self, found: list[Tool]) -> Outcome:
        """Return schemas as far as the budget goes; the rest by name."""
        most = self._directory.outputs.budget.max_tokens
        shown: list[Tool] = []
        for tool in found:
            if shown and estimated(self._text([*shown, tool], found)) > most:
                break
            shown.append(tool)
        text = self._text(shown, found)
        self._shown.give(text, shown)
        size = estimated(text)
        return Outcome(tool=SEARCH, content=text, tokens_before=size, tokens_after=size)

    def _text(self, shown: list[Tool], found: list[Tool]) -> str:
        body: dict[str, Any] = {"tools": [tool.definition() for tool in shown]}
        also = [tool.name for tool in found[len(shown) :]]
        if also:
            body["also_found"] = also
        return encoded({**body, **self._state(), "do": self._advice(found)})

    def _advice(self, found: list[Tool]) -> str:
        if not found:
            return "Nothing fits. Search with other words, or go on without a tool."
        return f"Run one with {CALL} in your next reply."

    def _load(self, found: list[Tool]) -> Outcome:
        """Load tools natively: declared ones by reference, the others by value."""
        declared = self._declared or {}
        names = [tool.name for tool in found if self._is_as_declared(tool)]
        late = [tool for tool in found if tool.name not in declared]
        text = encoded(
            {
                "loaded": [tool.name for tool in found if tool.name in names or tool in late],
                **self._state(),
                "do": "Call one by its name in your next reply."
                if names or late
                else "Nothing fits. Search with other words, or go on without a tool.",
            }
        )
        with self._lock:
            for tool in late:
                if self._loaded.get(tool.name) != tool:
                    self._additions.append(tool)
            self._loaded.update((tool.name, tool) for tool in found if tool.name in names)
            self._loaded.update((tool.name, tool) for tool in late)
        content = [{"type": "text", "text": text}, *native.references(names)]
        self._shown.give(text, [tool for tool in found if tool.name in names or tool in late])
        size = estimated(text)
        return Outcome(tool=SEARCH, content=content, tokens_before=size, tokens_after=size)

    def _is_as_declared(self, tool: Tool) -> bool:
        known = (self._declared or {}).get(tool.name)
        return known is not None and not known.pinned and known.digest() == tool.digest()

    def _state(self) -> dict[str, Any]:
        """Say which servers do not answer yet, or no more."""
        states = {server.name: server.state for server in self._directory.servers()}
        late = [name for name, state in states.items() if state == "connecting"]
        failed = [name for name, state in states.items() if state == "failed"]
        return {
            **({"still_connecting": late} if late else {}),
            **({"not_reachable": failed} if failed else {}),
        }


def _loaded_in(messages: list[Any]) -> list[str]:
    """Name the tools that a history has loaded, by reference or by value."""
    found: list[str] = []
    for message in messages:
        content = message.get("content") if isinstance(message, Mapping) else None
        for block in content if isinstance(content, list) else []:
            if not isinstance(block, Mapping):
                continue
            if block.get("type") == "tool_addition":
                definition = block.get("tool", {}).get("definition", {})
                found.append(str(definition.get("name")))
            inner = block.get("content") if block.get("type") == "tool_result" else None
            found += [
                str(item.get("tool_name"))
                for item in (inner if isinstance(inner, list) else [])
                if isinstance(item, Mapping) and item.get("type") == "tool_reference"
            ]
    return found
