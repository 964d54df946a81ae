"""Requests for tests of the rules, in a few words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from local_backend.rules import AnthropicRules, Block, Level, Outcome, Prompt
from local_backend.rules.anthropic import AnthropicSettings

FREE = AnthropicSettings(minimum=0)


def block(
    name: str,
    tokens: int = 100,
    ttl: str | None = None,
    *,
    level: Level = Level.MESSAGES,
    kind: str = "text",
    **more: Any,
) -> Block:
    """A content block; equal names are equal content."""
    return Block(level=level, kind=kind, digest=name.encode(), tokens=tokens, ttl=ttl, **more)


def prompt(*blocks: Block, tail: int = 0, **more: Any) -> Prompt:
    """A request of these content blocks and some tokens behind them."""
    total = sum(b.tokens for b in blocks) + tail
    return Prompt(**{"id": "m", "tokens": (0,) * total, **more}, blocks=blocks)


def texts(count: int, marked: Sequence[int] = (), tokens: int = 100, ttl: str = "5m") -> Prompt:
    """Text blocks 1 to ``count``, those of the given numbers marked."""
    return prompt(
        *(block(f"b{n}", tokens, ttl if n in marked else None) for n in range(1, count + 1))
    )


def ask(rules: AnthropicRules, asked: Prompt, at: float, began: float | None = None) -> Outcome:
    """A request from start to first response, on an engine that holds everything."""
    plan = rules.plan(asked, at)
    return rules.began(plan, plan.read or 0, at if began is None else began)


def run(*steps: tuple[Prompt, float], rules: AnthropicRules | None = None) -> list[Outcome]:
    """Requests one after the other."""
    machine = rules or AnthropicRules(FREE)
    return [ask(machine, asked, at) for asked, at in steps]


def parts(outcome: Outcome) -> tuple[int, int, int, int]:
    """Read, written for 5 minutes and for an hour, uncached."""
    writes = outcome.writes
    return outcome.read, writes.get("5m", 0), writes.get("1h", 0), outcome.uncached
