"""One request to be checked, with the provider's rules that hold for it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final, Literal

import msgspec

from cacheaudit.jobs.linting.markers import (
    Place,
    converse_markers,
    is_blank_text,
    messages_markers,
    prompt_markers,
)
from cacheaudit.model.prompt import ContentBlock, Prompt
from cacheaudit.providers import facts
from cacheaudit.providers.registry import expand
from cacheaudit.providers.shape import is_messages

Wire = Literal["messages", "converse", "chat", "responses", "other"]
_RUNS: Final = ("tool_use", "tool_result")
_NEVER_MARKED: Final = frozenset({"thinking", "redacted_thinking", "settings"})
# A marker of its own is named by this in a body that a platform's SDK has made.
_VERSIONS: Final = {"bedrock": "bedrock", "vertex": "google_cloud"}


class Subject:
    """A request body, expanded, with what its provider's rules say.

    Args:
        body: The request as it would be sent; never changed.
        provider: Provider, where known; else the model and the body's shape tell.
        surface: Surface, where known; a body for Bedrock or Vertex tells by itself.
        at: Moment whose rules apply, in seconds since the epoch.
        is_batch: It is an entry of a batch.
        prompt: The body expanded, where that has been done, with recorded sizes for instance.

    Raises:
        PromptError: The body has the shape of no supported API.
    """

    def __init__(
        self,
        body: Mapping[str, Any],
        *,
        provider: str | None = None,
        surface: str | None = None,
        at: float | None = None,
        is_batch: bool = False,
        prompt: Prompt | None = None,
    ) -> None:
        self.body = body
        self.is_batch = is_batch
        self.prompt = prompt or expand(body, provider=provider)
        self.wire = _wire(body, self.prompt)
        self.model = self.prompt.model
        self.rules = _rules(self.prompt, provider, surface or _surface(body, self.wire), at)
        self.at = at

    @property
    def blocks(self) -> tuple[ContentBlock, ...]:
        """Content blocks in render order."""
        return self.prompt.blocks

    @property
    def machine(self) -> str | None:
        """Kind of cache that serves the model; ``None`` where nothing is known of it."""
        return self.rules.machine if self.rules is not None else None

    @property
    def is_partial(self) -> bool:
        """Whether the server completes the request from what it remembers."""
        thread = self.body.get("thread")
        is_continued = isinstance(thread, Mapping) and thread.get("type") == "continue"
        return is_continued or isinstance(self.body.get("previous_response_id"), str)

    def integer(self, name: str) -> int | None:
        """Return a number of the rules; ``None`` where it is unknown or only guessed."""
        fact = self.rules.facts.get(name) if self.rules is not None else None
        if fact is None or fact.confidence == "low" or not isinstance(fact.value, int):
            return None
        return fact.value

    @property
    def minimum(self) -> int | None:
        """Least size of a cached prefix, in tokens."""
        return self.integer("platform_minimum_tokens") or self.integer("minimum_tokens")

    @property
    def lifetimes(self) -> dict[str, float]:
        """Lifetimes on offer, in seconds by name."""
        return self.rules.ttl_seconds() if self.rules is not None else {}

    def lifetime(self, ttl: Any) -> float | None:
        """Return the seconds of a lifetime as written; the default where none is."""
        if ttl is None and self.rules is not None:
            ttl = self.rules.text("default_ttl")
        return self.lifetimes.get(ttl) if isinstance(ttl, str) else None

    @cached_property
    def places(self) -> list[Place]:
        """Every marker as written, in render order, the automatic one last."""
        if self.wire == "messages":
            return messages_markers(self.body)
        if self.wire == "converse":
            return converse_markers(self.body)
        return prompt_markers(self.prompt)

    @property
    def automatic(self) -> Place | None:
        """The marker on the body itself."""
        return next((place for place in self.places if place.spot == "automatic"), None)

    @cached_property
    def automatic_index(self) -> int | None:
        """Content block that the automatic marker falls on: the last that can carry one."""
        for index in range(len(self.blocks) - 1, -1, -1):
            block = self.blocks[index]
            if block.kind in _NEVER_MARKED or block.level == "tools" or _is_blank(block):
                continue
            return index
        return None

    @cached_property
    def marked(self) -> list[int]:
        """Content blocks that end a marked prefix, in render order, without repetition."""
        where = {block.path: index for index, block in enumerate(self.blocks)}
        found = {
            where[place.block]
            for place in self.places
            if place.block is not None and place.block in where
        }
        if self.automatic is not None and self.automatic_index is not None:
            found.add(self.automatic_index)
        return sorted(found)

    @cached_property
    def positions(self) -> list[int]:
        """Position of each content block as a lookup counts them."""
        collapses = self.rules is not None and self.rules.flag("collapse_runs")
        found: list[int] = []
        previous = ""
        for block in self.blocks:
            joins = collapses and block.kind in _RUNS and block.kind == previous
            found.append((found[-1] if found else 0) + (0 if joins else 1))
            previous = block.kind
        return found


def _is_blank(block: ContentBlock) -> bool:
    if block.kind != "text" or block.size > 200:
        return False
    fields = msgspec.json.decode(block.canonical) if block.canonical else {}
    return isinstance(fields, dict) and is_blank_text({"type": "text", **fields})


def _wire(body: Mapping[str, Any], prompt: Prompt) -> Wire:
    if prompt.provider == "bedrock" and "anthropic_version" not in body:
        return "converse"
    if isinstance(body.get("messages"), list):
        speaks = prompt.provider == "anthropic" or is_messages(body)
        return "messages" if speaks else "chat"
    return "responses" if "input" in body or "instructions" in body else "other"


def _surface(body: Mapping[str, Any], wire: Wire) -> str | None:
    if wire == "converse":
        return "bedrock"
    version = body.get("anthropic_version")
    if isinstance(version, str):
        return _VERSIONS.get(version.partition("-")[0])
    return None


def _rules(
    prompt: Prompt, provider: str | None, surface: str | None, at: float | None
) -> facts.Rules | None:
    """Look the rules up by whoever made the model, else by whose API the body speaks."""
    if provider is None and facts.owner_of(None, prompt.model) is None:
        provider = prompt.provider
    return facts.rules(provider, prompt.model, at, surface)
