"""Model and provider names: exact after normalisation, never by likeness."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

# What clients call a provider → the name of its price table.
_PROVIDERS: Final = {
    "claude": "anthropic",
    "claude_api": "anthropic",
    "claude_platform_on_aws": "anthropic",
    "foundry_claude": "anthropic",
    "openai_v1": "openai",
    "openai_v2": "openai",
    "openai_codex": "openai",
    "codex": "openai",
    "gemini": "google",
    "google_gemini": "google",
    "google_gemini_cli": "google",
    "google_cloud": "google",
    "google_vertex": "google",
    "google_vertex_anthropic": "google",
    "vertex": "google",
    "vertex_ai": "google",
    "vertexai": "google",
    "vertex_claude": "google",
    "aws": "bedrock",
    "aws_bedrock": "bedrock",
    "amazon_bedrock": "bedrock",
    "anthropic_on_bedrock": "bedrock",
    "bedrock_converse": "bedrock",
    "azure_openai": "azure",
    "azure_ai": "azure",
    "microsoft_foundry": "azure",
    "deepseek_ai": "deepseek",
    "moonshotai": "moonshot",
    "moonshot_kimi": "moonshot",
    "moonshotai_cn": "moonshot",
    "kimi": "moonshot",
    "kimi_coding": "moonshot",
    "z_ai": "zai",
    "z.ai": "zai",
    "zai_glm": "zai",
    "zai_org": "zai",
    "zai_coding_plan": "zai",
    "glm": "zai",
    "zhipu": "zhipuai",
    "bigmodel": "zhipuai",
    "x_ai": "xai",
    "x.ai": "xai",
    "grok": "xai",
    "alibaba": "qwen",
    "alibaba_qwen": "qwen",
    "dashscope": "qwen",
    "minimaxi": "minimax",
    "mistralai": "mistral",
    "fireworks_ai": "fireworks",
    "together_ai": "together",
    "togetherai": "together",
    "open_router": "openrouter",
    "github_copilot": "github-copilot",
    "copilot": "github-copilot",
}
# Surfaces that have a price table of their own.
_SURFACES: Final = {
    "bedrock": "bedrock",
    "google_cloud": "google",
    "vertex": "google",
    "vertex_ai": "google",
    "openrouter": "openrouter",
    "azure": "azure",
    "azure_openai": "azure",
}
# Beginning of a bare model id → whose model it is. Open weights served by many are left out.
# Patterns are compiled when they are first asked, the most frequent ones first.
_FAMILIES: Final = (
    (r"claude-", "anthropic"),
    (r"gpt-oss", None),
    (r"(gpt-|chatgpt-|codex-mini|o[134](-|$)|text-embedding-(3|ada))", "openai"),
    (r"deepseek-", "deepseek"),
    (r"gemini-", "google"),
    (r"(kimi-|moonshot-)", "moonshot"),
    (r"glm-", "zai"),
    (r"(qwen|qwq)", "qwen"),
    (r"grok-", "xai"),
    (r"minimax-", "minimax"),
    (r"(mistral|ministral|magistral|codestral|devstral|pixtral)-", "mistral"),
)

_BRACKETS = re.compile(r"\[[^\]]*\]$")
_REGION = re.compile(r"^(?:us-gov|us|eu|apac|au|jp|in|ca|sa|regional)\.(?=[a-z0-9-]+\.)")
_VENDOR = re.compile(
    r"^(global\.)?(?:anthropic|openai|moonshotai|moonshot|zai|deepseek|qwen|mistral|meta|amazon"
    r"|google|nvidia|writer|minimax|cohere|xai)\."
)
_BEDROCK_VERSION = re.compile(r"(?:-v\d+)?(?::\d+[a-z]*)*$")
_AT = re.compile(r"@.*$")
_DATE = re.compile(r"-(?:\d{8}|20\d{2}-\d{2}-\d{2}|preview-\d{2}-(?:\d{2}|20\d{2}))$")
_BEDROCK_ID = re.compile(
    r"^(?:arn:aws|(?:(?:us-gov|us|eu|apac|au|jp|in|ca|global)\.)?anthropic\.claude)"
)


def table_name(provider: str) -> str:
    """Return the name of the price table that a provider's name stands for."""
    name = provider.strip().lower()
    return _PROVIDERS.get(name) or _PROVIDERS.get(name.replace("-", "_"), name)


def candidates(model: str) -> Iterator[str]:
    """Yield forms of a model id, as given first, each more stripped than the one before.

    Stripped are, in this order: a bracketed suffix such as ``[1m]``, path prefixes, Bedrock's
    region and vendor prefixes (``global.`` stays, since it is priced by itself), ``@…``,
    Bedrock's version, ``-latest``, and a date.
    """
    form = model.strip().lower()
    seen: set[str] = set()
    for step in _STEPS:
        form = step(form)
        if form not in seen:
            seen.add(form)
            yield form


_STEPS: Final = (
    lambda form: form,
    lambda form: _BRACKETS.sub("", form),
    lambda form: form.partition("/")[2] or form,
    lambda form: form.rpartition("/")[2],
    lambda form: _REGION.sub("", form),
    lambda form: _VENDOR.sub(lambda found: found.group(1) or "", form),
    lambda form: _AT.sub("", form),
    lambda form: _BEDROCK_VERSION.sub("", form),
    lambda form: form.removesuffix("-latest"),
    lambda form: _DATE.sub("", form),
)


def infer_table(model: str) -> str | None:
    """Return the table that a model id alone names without doubt, else ``None``."""
    form = _BRACKETS.sub("", model.strip().lower())
    if is_bedrock_id(form):
        return "bedrock"
    prefix, slash, _ = form.partition("/")
    if slash and (known := vendor(prefix)) is not None:
        return known
    if slash and prefix not in ("models", "publishers"):
        return None
    bare = form.rpartition("/")[2]
    for pattern, table in _FAMILIES:
        if re.match(pattern, bare):
            return table
    return None


def vendor(prefix: str) -> str | None:
    """Return the table for the part before the slash of an id such as ``x-ai/grok-4``."""
    name = table_name(prefix)
    return name if name in _KNOWN_VENDORS else None


_KNOWN_VENDORS: Final = frozenset(_PROVIDERS.values()) | {"anthropic", "openai", "groq"}


def is_bedrock_id(model: str) -> bool:
    """Whether an id of a Claude model has the form that only Bedrock uses."""
    return _BEDROCK_ID.match(model.strip().lower()) is not None


def choose_table(provider: str | None, model: str, surface: str | None) -> str | None:
    """Return the table to look in, or ``None`` where it cannot be told.

    The surface decides first, then the form of the id (a call recorded as ``anthropic`` whose
    model is ``us.anthropic.…`` ran on Bedrock), then the provider, then the model's family.
    """
    if surface is not None:
        own = _SURFACES.get(surface.strip().lower().replace("-", "_"))
        if own is not None:
            return own
    if provider is None:
        return infer_table(model)
    name = table_name(provider)
    if name == "anthropic" and surface is None and is_bedrock_id(model):
        return "bedrock"
    return name


_STANDARD: Final = frozenset(
    {"", "standard", "default", "auto", "standard_only", "on_demand", "normal", "none"}
)
_SPECIAL: Final = {
    "batch": "batch",
    "flex": "flex",
    "on_demand_flex": "flex",
    "priority": "priority",
    "on_demand_priority": "priority",
    "fast": "priority",
    "ultrafast": "ultrafast",
}


def variant(table: str, speed: str | None, service_tier: str | None) -> str:
    """Return the kind of row (``standard``, ``batch``, ``fast`` …) that a call is billed by.

    A word that nobody documents comes back unchanged, so that no row is found for it.
    """
    tier = (service_tier or "").strip().lower()
    quick = (speed or "").strip().lower()
    kind = "standard" if tier in _STANDARD else _SPECIAL.get(tier, tier)
    if quick in _STANDARD:
        return kind
    if kind != "standard":
        return f"{kind}+{quick}"
    return "priority" if quick == "fast" and table in ("openai", "azure") else quick
