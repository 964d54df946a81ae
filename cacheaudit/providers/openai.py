"""Chat Completions and Responses bodies: tools, then instructions, then the conversation.

Normalised away: text as a string or as a list of one text part, breakpoint markers, fields that
are null or say their default, ids and states that the server gave to echoed items. Kept: the
arguments of a function call as the text they were sent as, since that text is the prompt.
Source of the parameters: the provider's prompt-caching guide of October 2026.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from cacheaudit.model.prompt import Level, Marker, Prompt
from cacheaudit.providers.blocks import build, expanding, parameters_of
from cacheaudit.providers.openai_chat import chat_drafts
from cacheaudit.providers.openai_responses import responses_drafts
from cacheaudit.providers.shape import is_chat, is_responses, may_be_chat

TOOLS_FIRST: Final[tuple[Level, ...]] = ("tools", "system", "messages")
SYSTEM_FIRST: Final[tuple[Level, ...]] = ("system", "tools", "messages")

# A change of any of these drops the whole prefix.
_SHARED: Final = (
    "model",
    "parallel_tool_calls",
    "prompt_cache_key",
    "service_tier",
)
_CHAT: Final = (
    *_SHARED,
    "response_format",
    "reasoning_effort",
    "verbosity",
)
_RESPONSES: Final = (
    *_SHARED,
    "text.format",
    "text.verbosity",
    "reasoning.effort",
    "context_management",
)
_DEFAULTS: Final[Mapping[str, Any]] = {
    "parallel_tool_calls": True,
    "service_tier": "auto",
    "verbosity": "medium",
    "text.verbosity": "medium",
    "response_format": {"type": "text"},
    "text.format": {"type": "text"},
}


class OpenAIProvider:
    """Expands Chat Completions and Responses bodies; compatibles differ in name, order, keys.

    Args:
        name: Provider's name.
        order: Render order of the levels.
        models: Beginnings of model names that are this provider's own.
        extra: Further fields of the body that a change of drops the whole prefix.
        without: Fields that are no part of this provider's key.
        rank: Lower is asked first for a body of unknown origin.
    """

    def __init__(
        self,
        name: str,
        *,
        order: tuple[Level, ...] = TOOLS_FIRST,
        models: tuple[str, ...] = (),
        extra: tuple[str, ...] = (),
        without: tuple[str, ...] = (),
        rank: int = 30,
    ) -> None:
        self.name = name
        self.rank = rank
        self._order = order
        self._models = models
        self._chat = tuple((n, order[0]) for n in (*_CHAT, *extra) if n not in without)
        self._responses = tuple((n, order[0]) for n in (*_RESPONSES, *extra) if n not in without)

    def speaks(self, body: Mapping[str, Any]) -> bool:
        """Whether a body may have one of the two shapes that this provider takes."""
        return may_be_chat(body) or is_responses(body)

    def accepts(self, body: Mapping[str, Any]) -> bool:
        """Whether a body has the shape, and a model of this provider where it has own ones."""
        if not self._models:
            return is_chat(body) or is_responses(body)
        if not self.speaks(body):
            return False
        model = body.get("model")
        return isinstance(model, str) and model.lower().rpartition("/")[2].startswith(self._models)

    def expand(self, body: Mapping[str, Any], previous: Prompt | None = None) -> Prompt:
        """Turn a body into content blocks; see :class:`cacheaudit.model.ports.Provider`."""
        responses = is_responses(body)
        wanted: tuple[tuple[str, Level], ...] = self._responses if responses else self._chat
        with expanding():
            drafts = (responses_drafts if responses else chat_drafts)(body)
            drafts.sort(key=lambda draft: self._order.index(draft.level))
            prompt = build(
                self.name,
                body.get("model"),
                self._order,
                tuple(parameters_of(body, wanted, _DEFAULTS)),
                drafts,
                previous,
                _automatic(body),
            )
        options = body.get("prompt_cache_options")
        if isinstance(options, dict) and options.get("mode") == "explicit":
            return msgspec.structs.replace(prompt, only_explicit=True)
        return prompt


def _automatic(body: Mapping[str, Any]) -> Marker | None:
    """Return the marker that the request's options ask for."""
    options = body.get("prompt_cache_options")
    if not isinstance(options, dict) or options.get("mode") == "explicit":
        return None
    ttl = options.get("ttl")
    return Marker(ttl if isinstance(ttl, str) else None)


PROVIDER = OpenAIProvider("openai", rank=60)
