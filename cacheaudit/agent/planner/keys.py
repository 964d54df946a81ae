"""The key of requests to OpenAI from GPT-5.6 on, where a key parts the cache.

A part that is too small costs money, one that is too large costs nothing. So a key is made of what
stands in front of every place that can be read: tools and the first instructions. Requests that
differ there share nothing, with a key or without. What may or may not drop the cache (effort,
verbosity), what only hides tools (``allowed_tools``) and tools that are loaded later are left out:
a session keeps its key where it might keep its cache.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from cacheaudit.providers.shape import is_responses

if TYPE_CHECKING:
    from cacheaudit.agent.planner.memory import SessionMemory
    from cacheaudit.agent.planner.policy import PlanPolicy
    from cacheaudit.agent.planner.target import Target

_FIELD: Final = "prompt_cache_key"
_LEADING: Final = ("system", "developer")
# Where the key is the maker's own: what others do with it is their affair.
_SURFACES: Final = frozenset({"openai", "azure", "foundry"})
_HINT: Final = "cache key set"
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


def keyed(
    body: Mapping[str, Any], session: SessionMemory, target: Target, policy: PlanPolicy
) -> Mapping[str, Any]:
    """Return a request with its key; itself where it has one, or where keys mean something else."""
    if not policy.routing or body.get(_FIELD) is not None or target.surface not in _SURFACES:
        return body
    key = key_of(body)
    if key is None:
        return body
    session.notes.hints[_HINT] += 1
    return {**body, _FIELD: key}


def key_of(body: Mapping[str, Any]) -> str | None:
    """Return the key of a request: a digest of its tools and its first instructions, if any.

    A response that goes on with an earlier one has no instructions among its input, so that those
    of the Responses API are the field of that name alone.
    """
    first = body.get("instructions") if is_responses(body) else _opening(body.get("messages"))
    tools = sorted(map(_encode, _loaded(body.get("tools"))))
    if not tools and not first:
        return None
    front = b"\0".join((*tools, _encode(first)))
    return "front-" + hashlib.blake2b(front, digest_size=8).hexdigest()


def _loaded(tools: Any) -> list[Any]:
    """Return the tools that stand at the front of the prompt from the first request on."""
    return [
        tool
        for tool in (tools if isinstance(tools, list) else ())
        if not (isinstance(tool, dict) and tool.get("defer_loading"))
    ]


def _opening(messages: Any) -> str | None:
    """Return the first text of the instructions of a conversation; a breakpoint may follow it."""
    first = messages[0] if isinstance(messages, list) and messages else None
    if not isinstance(first, dict) or first.get("role") not in _LEADING:
        return None
    content = first.get("content")
    if isinstance(content, list):
        content = content[0].get("text") if content and isinstance(content[0], dict) else None
    return content if isinstance(content, str) else None
