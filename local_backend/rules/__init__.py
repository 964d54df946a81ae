"""What a provider's service would let a request read from its cache. Knows nothing of engines."""

from __future__ import annotations

from local_backend.rules.anthropic import AnthropicRules
from local_backend.rules.base import Block, Level, MarkerError, Outcome, Plan, Prompt, ServiceRules
from local_backend.rules.deepseek import DeepSeekRules
from local_backend.rules.implicit import ImplicitRules

__all__ = [
    "AnthropicRules",
    "Block",
    "DeepSeekRules",
    "ImplicitRules",
    "Level",
    "MarkerError",
    "Outcome",
    "Plan",
    "Prompt",
    "ServiceRules",
]
