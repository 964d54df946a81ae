"""What a compaction may do, and what a summary looks like."""

from __future__ import annotations

from decimal import Decimal
from typing import Final, Literal, get_args

import msgspec

from cacheaudit.errors import ConfigError

Mode = Literal["prefix", "server", "standalone", "clear"]
When = Literal["threshold", "cold", "before_expiry"]
MODES: Final[tuple[str, ...]] = get_args(Mode)
WHENS: Final[tuple[str, ...]] = get_args(When)


class Heading(msgspec.Struct, frozen=True):
    """One part of a summary: its title, and what belongs under it."""

    title: str
    about: str


HEADINGS: Final = (
    Heading("Goal", "what is to be achieved, and how one will know that it is"),
    Heading("State", "what is done, what is half done, what was tried and did not work"),
    Heading("Decisions", "what was decided and why, with names, numbers and paths as they are"),
    Heading("Next steps", "what to do next, in order"),
    Heading("Open questions", "what is not known yet and who or what could tell"),
)


class Structure(msgspec.Struct, frozen=True, kw_only=True):
    """What a summary is made of.

    Attributes:
        headings: Its parts, in order.
        also: Further instructions, such as a language or a length.
    """

    headings: tuple[Heading, ...] = HEADINGS
    also: str | None = None

    def __post_init__(self) -> None:
        """Refuse a summary of nothing."""
        if not self.headings or not all(heading.title.strip() for heading in self.headings):
            raise ConfigError("structure: every summary needs a heading with a title.")


class Clearing(msgspec.Struct, frozen=True, kw_only=True):
    """How old tool results are emptied: many at once or none.

    Attributes:
        at_least: Tokens that one batch must free.
        keep: Latest tool results that stay.
        smallest: Results of fewer tokens stay.
        exclude: Names of tools whose results stay.
    """

    at_least: int = 20_000
    keep: int = 4
    smallest: int = 200
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what would clear turn by turn."""
        if self.at_least < 1 or self.keep < 0 or self.smallest < 0:
            raise ConfigError("clearing: at_least must be 1 or more, keep and smallest 0 or more.")


class Compaction(msgspec.Struct, frozen=True, kw_only=True):
    """When and how a conversation is compacted.

    Attributes:
        mode: One way, or several to choose the cheapest of: ``prefix`` asks the same model behind
            the unchanged prompt and so reads the cache, ``server`` uses the provider's own
            compaction, ``standalone`` sends the conversation as text, ``clear`` empties old tool
            results.
        when: Occasions: ``threshold`` (larger than ``at``), ``cold`` (the cached prefix has
            expired), ``before_expiry`` (an idle session whose prefix is about to).
        at: Tokens from which a prompt counts as large.
        window: Tokens that the model takes; beyond ``window - reserve`` a compaction is due at any
            price. ``None``: never for that reason.
        reserve: Tokens that must stay free for the answer.
        keep_recent: Tokens of the latest messages that stay word for word.
        least: A conversation whose older part has fewer tokens stays as it is.
        expected_summary: Tokens that a summary is expected to have.
        summary_tokens: Most tokens of an answer to the request for a summary.
        min_savings: Least expected gain, in the currency of the prices.
        remaining_turns: Requests that are still to come; ``None``: as many as there have been.
        return_probability: How likely an idle session is to go on.
        lead: Share of a lifetime after whose passing ``before_expiry`` decides.
        structure: What a summary is made of.
        clearing: How tool results are emptied.
        standalone_model: Model for ``standalone``; ``None``: the conversation's own.
        attempts: How often the model is asked where it calls a tool instead of answering.
        longest_words: Tokens of one message of the user that are kept; a longer one loses its
            middle, which stays in the original.

    Raises:
        ConfigError: A value makes no sense.
    """

    mode: Mode | tuple[Mode, ...] = "prefix"
    when: When | tuple[When, ...] = ("threshold", "cold")
    at: int = 150_000
    window: int | None = None
    reserve: int = 16_384
    keep_recent: int = 20_000
    least: int = 10_000
    expected_summary: int = 1_500
    summary_tokens: int = 8_192
    min_savings: Decimal = Decimal("0.01")
    remaining_turns: int | None = None
    return_probability: float = 0.15
    lead: float = 0.9
    structure: Structure = Structure()
    clearing: Clearing = Clearing()
    standalone_model: str | None = None
    attempts: int = 2
    longest_words: int = 8_000

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        _known("mode", self.modes, MODES)
        _known("when", self.occasions, WHENS)
        for name in ("at", "reserve", "keep_recent", "least", "min_savings"):
            if getattr(self, name) < 0:
                raise ConfigError(f"compaction: {name} is negative.", "Give 0 or more.")
        for name in ("expected_summary", "summary_tokens", "attempts", "longest_words"):
            if getattr(self, name) < 1:
                raise ConfigError(f"compaction: {name} is not positive.", "Give 1 or more.")
        if self.window is not None and self.window <= self.reserve:
            raise ConfigError("compaction: the window is no larger than the reserve.")
        if self.remaining_turns is not None and self.remaining_turns < 0:
            raise ConfigError("compaction: remaining_turns is negative.", "Give 0 or more.")
        if not 0 <= self.return_probability <= 1 or not 0 < self.lead < 1:
            raise ConfigError(
                "compaction: return_probability and lead are shares.", "Give values from 0 to 1."
            )

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The ways to choose among."""
        return (self.mode,) if isinstance(self.mode, str) else self.mode

    @property
    def occasions(self) -> tuple[When, ...]:
        """The occasions on which something may be done."""
        return (self.when,) if isinstance(self.when, str) else self.when


def _known(field: str, given: tuple[str, ...], known: tuple[str, ...]) -> None:
    for name in given:
        if name not in known:
            raise ConfigError(
                f"compaction: there is no {field} {name!r}.", f"Choose of: {', '.join(known)}."
            )
    if not given:
        raise ConfigError(f"compaction: no {field} is given.", f"Choose of: {', '.join(known)}.")
