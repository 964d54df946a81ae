"""Clients by the name of whom they ask."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from cacheaudit._lazy import need
from cacheaudit.errors import UsageError

LOCAL: Final = "local"
# The SDK's own clients, by platform; each has an asynchronous one of the same name.
_ANTHROPIC: Final[Mapping[str, str]] = {
    "anthropic": "Anthropic",
    "claude_aws": "AnthropicAWS",
    "bedrock": "AnthropicBedrock",
    "google_cloud": "AnthropicVertex",
    "foundry": "AnthropicFoundry",
}
_OPENAI: Final[Mapping[str, tuple[str | None, str]]] = {
    "openai": (None, "OPENAI_API_KEY"),
    "deepseek": ("https://api.deepseek.com", "DEEPSEEK_API_KEY"),
    "openrouter": ("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
}
NAMES: Final = (*_ANTHROPIC, *_OPENAI, LOCAL)


def make_client(
    target: str,
    *,
    environment: Mapping[str, str],
    wrap: Callable[[Any], Any],
    transport: Callable[[Any], Any],
    local: Callable[[], str],
    asynchronous: bool = False,
    **settings: Any,
) -> Any:
    """Make a client whose calls are recorded.

    Args:
        target: A name, or the address of a server that speaks the Messages API.
        environment: Where keys are looked for.
        wrap: Wraps a client of Anthropic's SDK.
        transport: Puts a recording transport in front of another one.
        local: Starts the bundled engine and returns its address.
        asynchronous: Make an asynchronous client.
        **settings: Arguments of the client.

    Raises:
        UsageError: There is no such target.
        MissingExtraError: The SDK that is needed is not installed.
    """
    prefix = "Async" if asynchronous else ""
    if target in _ANTHROPIC:
        sdk = need("anthropic", "anthropic")
        return wrap(getattr(sdk, prefix + _ANTHROPIC[target])(**settings))
    if target in _OPENAI:
        return _openai(target, prefix, environment, transport, settings)
    if target == LOCAL:
        settings.setdefault("api_key", LOCAL)
        settings["base_url"] = local()
    elif _is_address(target):
        settings["base_url"] = target
    else:
        raise UsageError(
            f"There is no target {target!r}.", f"Known are {', '.join(NAMES)}, and URLs."
        )
    sdk = need("anthropic", "anthropic")
    return wrap(getattr(sdk, f"{prefix}Anthropic")(**settings))


def _openai(
    target: str,
    prefix: str,
    environment: Mapping[str, str],
    transport: Callable[[Any], Any],
    settings: dict[str, Any],
) -> Any:
    sdk = need("openai", "openai")
    base, variable = _OPENAI[target]
    if base is not None:
        settings.setdefault("base_url", base)
    if key := environment.get(variable):
        settings.setdefault("api_key", key)
    if "http_client" not in settings:
        http, made = _http_of(sdk, prefix)
        inner = getattr(http, f"{prefix}HTTPTransport")()
        settings["http_client"] = made(transport=transport(inner))
    return getattr(sdk, f"{prefix}OpenAI")(**settings)


def _http_of(sdk: Any, prefix: str) -> tuple[Any, Any]:
    """Return the HTTP library that an SDK was made for, and the client that it likes best."""
    made = getattr(sdk, f"Default{prefix}HttpxClient")
    for base in made.__mro__:
        name = base.__module__.partition(".")[0]
        if name in ("httpx", "httpx2"):
            return need(name, "httpx"), made
    raise UsageError("The installed openai package uses an unknown HTTP library.", None)


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)
