"""Rules that are disputed in public, each a named switch with a dated default.

``auto`` follows the dated facts of :mod:`cacheaudit.providers.facts`; every other value overrides
them for the whole run. A result states every switch that differs from its default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from cacheaudit.errors import UsageError

AUTO: Final = "auto"
NUMBER: Final = "<number>"


class Switch(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one disputed rule.

    Attributes:
        name: As in :class:`Switches`.
        values: What it can be set to; :data:`NUMBER` stands for a number not below zero.
        default: Value where nobody says otherwise.
        since: Day of the source of the default.
        source: Where the default comes from.
        about: What is disputed.
    """

    name: str
    values: tuple[str, ...]
    default: str
    since: str
    source: str
    about: str


def _switch(name: str, values: str, default: str, since: str, source: str, about: str) -> Switch:
    return Switch(
        name=name,
        values=tuple(values.split()),
        default=default,
        since=since,
        source=source,
        about=about,
    )


_PAGE: Final = "Anthropic, Prompt caching, full page"
SWITCHES: Final[tuple[Switch, ...]] = (
    _switch(
        "lookback_runs", "auto one each", AUTO, "2026-09-01", _PAGE,
        "Whether a run of tool_use, or of tool_result, content blocks is one position of the "
        "lookback (one) or every content block counts (each). Stated for the Claude API only, "
        "and not on pages before September 2026.",
    ),
    _switch(
        "lookback_positions", "auto <number>", AUTO, "2026-08-22", _PAGE,
        "Positions that a marker's lookup visits, the marked content block included.",
    ),
    _switch(
        "tool_choice", "auto messages nothing", AUTO, "2026-08-22", _PAGE,
        "What a change of tool_choice drops: messages, or nothing, as one report measured "
        "(can1357/oh-my-pi#12602).",
    ),
    _switch(
        "thinking", "auto tools messages", AUTO, "2026-09-01", _PAGE,
        "First level that a change of the thinking settings drops. Messages for certain; tools "
        "and system on models that nobody lists.",
    ),
    _switch(
        "effort", "auto tools messages", AUTO, "2026-09-01", _PAGE,
        "First level that a change of the effort drops; as for thinking.",
    ),
    _switch(
        "speed", "auto tools system nothing", AUTO, "2026-08-22", _PAGE,
        "First level that a change of speed drops. The API page says system, the diagnostics "
        "count it as another model, a client's page says that only the header counts.",
    ),
    _switch(
        "beta_headers", "auto tools nothing", AUTO, "2026-08-22", _PAGE,
        "Whether the set of beta headers belongs to the key. The diagnostics list it, no level "
        "is stated.",
    ),
    _switch(
        "images", "auto messages nothing", AUTO, "2026-08-04", "Public measurement, eight pictures",
        "Whether the first picture anywhere drops messages, as pages say, or is an append.",
    ),
    _switch(
        "ttl_in_key", "no yes", "no", "2026-09-01", "not documented",
        "Whether a marker finds only entries of its own lifetime.",
    ),
    _switch(
        "read_upgrades", "no yes", "no", "2026-09-01", "not documented",
        "Whether a one-hour marker that reads a five-minute entry lengthens it.",
    ),
    _switch(
        "refresh_marked", "yes no", "yes", "2026-09-01", "not documented; observed in sessions",
        "Whether reading a long prefix renews the shorter prefixes that the request marks.",
    ),
    _switch(
        "write_below_hit", "yes no", "yes", "2026-09-01", "not documented",
        "Whether a marked prefix inside what was read becomes an entry of its own.",
    ),
    _switch(
        "visible_after", "auto <number>", AUTO, "2026-08-22", _PAGE,
        "Seconds from the first token until what was written can be read. Reports see up to two "
        "(anthropics/anthropic-sdk-python#1451).",
    ),
    _switch(
        "server_tools", "auto write ignore", AUTO, "2026-09-01", _PAGE,
        "Whether results of server tools get a five-minute marker of their own.",
    ),
    _switch(
        "bedrock_minimum", "model platform", "model", "2026-09-01", _PAGE,
        "Minimum size on Bedrock: the model's page (1,024 for Sonnet 4.6) or the platform's "
        "table (2,048).",
    ),
    _switch(
        "minimum_tokens", "auto <number>", AUTO, "2026-10-08", _PAGE,
        "Smallest prefix that is cached. Tables disagree on Mythos Preview and Opus 4.8.",
    ),
    _switch(
        "openai_lookup", "auto sdk guide", AUTO, "2026-11-30", "openai Python SDK 3.57.0",
        "Breakpoints that are compared from GPT-5.6 on: the latest 80 (sdk), or the first 2 and "
        "latest 50 explicit ones with 20 message endings (guide).",
    ),
    _switch(
        "openai_interval", "auto <number>", AUTO, "2026-10-02", "OpenAI, Prompt caching guide",
        "Tokens between the boundaries at which prefixes are kept before GPT-5.6.",
    ),
    _switch(
        "deepseek_unit", "auto <number>", AUTO, "2026-11-30", "DeepSeek, Context Caching",
        "Tokens of a unit that counts by itself; 0: only whole prefixes that were persisted.",
    ),
    _switch(
        "kimi_chunk", "auto <number>", AUTO, "2026-11-30", "measured on the coding endpoint",
        "Tokens of a chunk of Kimi's cache.",
    ),
)  # fmt: skip
_BY_NAME: Final = {switch.name: switch for switch in SWITCHES}


class Switches(msgspec.Struct, frozen=True, kw_only=True):
    """One value for each disputed rule; see :data:`SWITCHES` for what they mean."""

    lookback_runs: str = AUTO
    lookback_positions: str = AUTO
    tool_choice: str = AUTO
    thinking: str = AUTO
    effort: str = AUTO
    speed: str = AUTO
    beta_headers: str = AUTO
    images: str = AUTO
    ttl_in_key: str = "no"
    read_upgrades: str = "no"
    refresh_marked: str = "yes"
    write_below_hit: str = "yes"
    visible_after: str = AUTO
    server_tools: str = AUTO
    bedrock_minimum: str = "model"
    minimum_tokens: str = AUTO
    openai_lookup: str = AUTO
    openai_interval: str = AUTO
    deepseek_unit: str = AUTO
    kimi_chunk: str = AUTO

    @classmethod
    def parse(cls, settings: Mapping[str, str]) -> Switches:
        """Read settings as a user writes them.

        Raises:
            UsageError: There is no such switch, or it has no such value.
        """
        for name, value in settings.items():
            _check(name, value)
        return cls(**settings)

    @classmethod
    def of_texts(cls, texts: tuple[str, ...]) -> Switches:
        """Read ``name=value`` texts.

        Raises:
            UsageError: As :meth:`parse`, or a text has no equals sign.
        """
        settings: dict[str, str] = {}
        for text in texts:
            name, equals, value = text.partition("=")
            if not equals:
                raise UsageError(f"{text!r} is no switch.", "Write NAME=VALUE.")
            settings[name.strip().replace("-", "_")] = value.strip()
        return cls.parse(settings)

    def changed(self) -> dict[str, str]:
        """Return the switches that differ from their defaults."""
        values = self.in_force().items()
        return {name: value for name, value in values if value != _BY_NAME[name].default}

    def in_force(self) -> dict[str, str]:
        """Return the value of every switch, by name."""
        return {switch.name: str(getattr(self, switch.name)) for switch in SWITCHES}

    def number(self, name: str, fallback: float) -> float:
        """Return the number that a switch is set to, ``fallback`` where it is ``auto``."""
        value: str = getattr(self, name)
        return fallback if value == AUTO else float(value)

    def choice(self, name: str, fallback: str) -> str:
        """Return what a switch is set to, ``fallback`` where it is ``auto``."""
        value: str = getattr(self, name)
        return fallback if value == AUTO else value


def _check(name: str, value: str) -> None:
    switch = _BY_NAME.get(name)
    if switch is None:
        import difflib

        near = difflib.get_close_matches(name, _BY_NAME, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else "Switches: " + ", ".join(sorted(_BY_NAME))
        raise UsageError(f"There is no switch {name!r}.", hint)
    if value in switch.values and value != NUMBER:
        return
    if NUMBER in switch.values and _is_number(value):
        return
    allowed = ", ".join(switch.values)
    raise UsageError(f"Switch {name!r} cannot be {value!r}.", f"Allowed: {allowed}.")


def _is_number(value: str) -> bool:
    try:
        return 0 <= float(value) < float("inf")
    except ValueError:
        return False
