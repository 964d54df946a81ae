"""Tells provider, surface and model from the address that a request went to."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec


class Endpoint(msgspec.Struct, frozen=True):
    """Where a request went.

    Attributes:
        provider: Whose rules and prices apply; ``None`` where the address does not say.
        surface: Platform that it was reached on.
        model: Model, where it stands in the path.
        is_model_call: Whether the path is one that produces text, and not a list of models or a
            token count; ``None`` where the path is not known.
    """

    provider: str | None = None
    surface: str | None = None
    model: str | None = None
    is_model_call: bool | None = None


# Host pattern, provider, surface. The first that matches counts.
_HOSTS: Final = tuple(
    (re.compile(pattern), provider, surface)
    for pattern, provider, surface in (
        (r"^api(-staging)?\.anthropic\.com$", "anthropic", "claude_api"),
        (r"^aws-external-anthropic\.[\w-]+\.api\.aws$", "anthropic", "claude_aws"),
        (r"^bedrock-runtime(-fips)?\.[\w-]+\.amazonaws\.com(\.cn)?$", None, "bedrock"),
        (r"^bedrock-mantle\.[\w-]+\.api\.aws$", None, "bedrock"),
        (r"(^|[-.])aiplatform\.googleapis\.com$", None, "google_cloud"),
        (r"^generativelanguage\.googleapis\.com$", "gemini", "gemini_api"),
        (r"^cloudcode-pa\.googleapis\.com$", "gemini", "gemini_api"),
        (r"^(\w+\.)?api\.openai\.com$|^chatgpt\.com$", "openai", "openai"),
        (r"\.openai\.azure\.com$|\.cognitiveservices\.azure\.com$", "openai", "azure"),
        (r"\.services\.ai\.azure\.com$|\.models\.ai\.azure\.com$", None, "foundry"),
        (r"^api\.deepseek\.com$", "deepseek", "deepseek"),
        (r"(^|\.)openrouter\.ai$", "openrouter", "openrouter"),
        (r"^api\.(moonshot|kimi)\.(ai|cn|com)$", "moonshot", "other"),
        (r"^api\.z\.ai$|^open\.bigmodel\.cn$", "zai", "other"),
        (r"^dashscope(-intl|-us)?\.aliyuncs\.com$", "qwen", "other"),
        (r"^api\.x\.ai$", "xai", "other"),
        (r"^api\.minimaxi?\.(io|com|chat)$", "minimax", "other"),
        (r"^api\.mistral\.ai$", "mistral", "other"),
        (r"^api\.groq\.com$", "groq", "other"),
        (r"^api\.fireworks\.ai$", "fireworks", "other"),
        (r"^api\.together\.(ai|xyz)$", "together", "other"),
        (r"^(localhost|127\.\d+\.\d+\.\d+|\[?::1\]?|0\.0\.0\.0)$", None, "local"),
    )
)
_CALL_PATHS: Final = re.compile(
    r"/(messages|chat/completions|completions|responses|invoke|invoke-with-response-stream|converse"
    r"|converse-stream|api/chat|api/generate|interactions)$"
    r"|:(generateContent|streamGenerateContent|rawPredict|streamRawPredict)$"
)
_OTHER_PATHS: Final = re.compile(
    r"/(count_tokens|models|embeddings|files|batches|moderations|input_tokens|oauth/\w+)(/[\w.:-]+)?$"
    r"|:(countTokens|embedContent|batchEmbedContents)$"
)
_BEDROCK_MODEL: Final = re.compile(r"/model/([^/]+)/")
_GOOGLE_MODEL: Final = re.compile(r"/(?:publishers/([\w-]+)/)?models/([^/:]+)")
_AZURE_MODEL: Final = re.compile(r"/deployments/([^/]+)/")
_FAMILIES: Final = (
    (("claude",), "anthropic"),
    (("gpt-", "o1", "o3", "o4", "chatgpt", "codex"), "openai"),
    (("deepseek",), "deepseek"),
    (("gemini", "gemma"), "gemini"),
    (("kimi", "moonshot"), "moonshot"),
    (("glm-",), "zai"),
    (("qwen",), "qwen"),
    (("grok",), "xai"),
    (("minimax", "abab"), "minimax"),
    (("mistral", "codestral", "ministral", "devstral", "magistral"), "mistral"),
)
_BEDROCK_VENDORS: Final = {
    "anthropic": "anthropic",
    "amazon": "amazon",
    "deepseek": "deepseek",
    "qwen": "qwen",
    "openai": "openai",
    "moonshot": "moonshot",
    "mistral": "mistral",
    "minimax": "minimax",
    "zai": "zai",
}


@lru_cache(maxsize=1024)
def provider_of_model(model: str | None) -> str | None:
    """Guess whose model a name is; ``None`` where the family is not known.

    Vendor prefixes such as ``us.anthropic.`` and ``openrouter/anthropic/`` are looked through.
    """
    if not model:
        return None
    name = model.lower().rsplit("/", 1)[-1].rsplit("models/", 1)[-1]
    for part in name.split(".")[:-1]:
        if part in _BEDROCK_VENDORS:
            return _BEDROCK_VENDORS[part]
    for prefixes, provider in _FAMILIES:
        if name.startswith(prefixes):
            return provider
    return None


def served_model(sent: str | None, answered: str | None) -> str | None:
    """Return the model of a call: as sent, unless that is a router's word or a gateway's alias.

    ``openrouter/auto`` and ``my-fast-model`` name no model; the response says which one answered.
    """
    if sent is None or answered is None:
        return sent or answered
    if provider_of_model(sent) is None and provider_of_model(answered) is not None:
        return answered
    return sent


@lru_cache(maxsize=1024)
def endpoint_of(url: str | None) -> Endpoint:
    """Look an address up; credentials in it are ignored."""
    if not url:
        return Endpoint()
    try:
        parts = urlsplit(url if "//" in url else f"//{url}")
        host = (parts.hostname or "").lower()
    except ValueError:
        return Endpoint()
    path = unquote(parts.path).rstrip("/")
    is_call = _is_model_call(path)
    for pattern, provider, surface in _HOSTS:
        if pattern.search(host):
            model = _model_in(path)
            return Endpoint(_provider(provider, surface, path, model), surface, model, is_call)
    if is_call:
        return Endpoint(None, "other", None, is_call)
    return Endpoint(is_model_call=is_call)


def _is_model_call(path: str) -> bool | None:
    if _CALL_PATHS.search(path):
        return True
    return False if _OTHER_PATHS.search(path) else None


def _model_in(path: str) -> str | None:
    for pattern, group in ((_BEDROCK_MODEL, 1), (_GOOGLE_MODEL, 2), (_AZURE_MODEL, 1)):
        if match := pattern.search(path):
            return match[group]
    return None


def _provider(provider: str | None, surface: str, path: str, model: str | None) -> str | None:
    if provider == "openrouter" or provider is None:
        found = provider_of_model(model)
        if found is not None:
            return found
        if surface == "google_cloud":
            match = _GOOGLE_MODEL.search(path)
            return {"google": "gemini"}.get(match[1], match[1]) if match and match[1] else None
        if surface == "foundry" and "/anthropic/" in path:
            return "anthropic"
        return "local" if surface == "local" else provider
    return provider
