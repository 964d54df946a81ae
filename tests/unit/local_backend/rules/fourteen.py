"""The session of fourteen requests whose reads and writes are known row by row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

# Start, duration in seconds; input, written, read.
TABLE = (
    (0, 20, 8_500, 8_500, 0),
    (30, 15, 10_000, 1_500, 8_500),
    (55, 18, 11_500, 1_500, 10_000),
    (80, 25, 32_800, 21_300, 11_500),
    (115, 15, 34_650, 34_650, 0),
    (140, 150, 36_150, 1_500, 34_650),
    (475, 20, 37_650, 37_650, 0),
    (505, 15, 39_150, 1_500, 37_650),
    (530, 15, 40_650, 33_300, 7_350),
    (555, 15, 42_150, 3_000, 39_150),
    (580, 20, 51_870, 44_520, 7_350),
    (610, 25, 82_370, 30_500, 51_870),
    (610, 25, 82_370, 30_500, 51_870),
    (610, 25, 82_370, 30_500, 51_870),
)
TOOLS, SYSTEM, EXTRA_TOOL = 5_000, 2_000, 350


@dataclass(frozen=True)
class Item:
    """One content block of the conversation.

    Attributes:
        role: Who speaks.
        kind: Type of the content block.
        name: Equal names are equal content.
        tokens: Its size.
        marked: Whether it is marked.
    """

    role: str
    kind: str
    name: str
    tokens: int
    marked: bool = False


@dataclass(frozen=True)
class Step:
    """One request.

    Attributes:
        at: Second of its start.
        seconds: Its duration.
        tools: Sizes of the tools by name.
        forced: Whether a tool is forced.
        items: The conversation; the last one is marked.
        total, written, read: Tokens of the table.
    """

    at: int
    seconds: int
    tools: tuple[tuple[str, int], ...]
    forced: bool
    items: tuple[Item, ...]
    total: int
    written: int
    read: int


def tool_round(number: int, result: int = 1_200) -> list[Item]:
    """An answer of 300 tokens and the result of its call."""
    call = f"call{number}"
    return [
        Item("assistant", "text", f"say{number}", 50),
        Item("assistant", "tool_use", call, 250),
        Item("user", "tool_result", call, result),
    ]


def conversation(row: int) -> list[Item]:
    """The messages of a row, rows counted from 1."""
    items = [Item("user", "text", "task", 1_500)]
    for number in range(2, min(row, 10) + 1):
        items += tool_round(number, {4: 21_000}.get(number, 1_200))
    if row >= 11:
        items.append(Item("assistant", "text", "final", 120))
        items += [Item("user", "text", f"file{n}", 400) for n in range(24)]
    if row >= 12:
        items.append(Item("assistant", "text", "reply11", 300))
        items.append(Item("user", "text", "map", 30_000))
        items.append(Item("user", "text", f"own{row}", 200))
    return items


def steps() -> Iterator[Step]:
    """All fourteen."""
    for row, (at, seconds, total, written, read) in enumerate(TABLE, 1):
        tools = [("first", TOOLS // 2), ("second", TOOLS // 2)]
        if row >= 5:
            tools.insert(1, ("extra", EXTRA_TOOL))
        items = conversation(row)
        items[-1] = replace(items[-1], marked=True)
        yield Step(
            at=at,
            seconds=seconds,
            tools=tuple(tools),
            forced=row == 9,
            items=tuple(items),
            total=total,
            written=written,
            read=read,
        )
