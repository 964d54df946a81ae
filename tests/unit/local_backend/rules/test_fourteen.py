"""The session of fourteen requests against the rules, as it was and with each fix."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal

import pytest

from local_backend.rules import AnthropicRules, Block, Level, Outcome, Prompt
from tests.unit.local_backend.rules.build import block, prompt
from tests.unit.local_backend.rules.fourteen import SYSTEM, Step, steps

STEPS = tuple(steps())


def as_prompt(step: Step, extra_marks: Iterable[str] = ()) -> Prompt:
    found: list[Block] = [
        block(name, size, level=Level.TOOLS, kind="tool") for name, size in step.tools
    ]
    found.append(block("system", SYSTEM, "5m", level=Level.SYSTEM))
    marked = set(extra_marks)
    for item in step.items:
        ttl = "5m" if item.marked or item.name in marked else None
        found.append(block(item.name, item.tokens, ttl, kind=item.kind))
    settings = (b"", b"", b"forced" if step.forced else b"")
    return prompt(*found, settings=settings)


def play(asked: Sequence[tuple[Prompt, float, float]]) -> list[Outcome]:
    """Requests with start and the second at which their response begins, in order of start."""
    rules = AnthropicRules()
    found = []
    for one, at, began in asked:
        plan = rules.plan(one, at)
        found.append(rules.began(plan, plan.read or 0, began))
    return found


def as_it_was() -> list[tuple[Prompt, float, float]]:
    return [(as_prompt(step), step.at, step.at + 2.0) for step in STEPS]


def equivalents(found: Iterable[Outcome]) -> Decimal:
    parts = [Decimal("1.25") * o.written + Decimal("0.1") * o.read + o.uncached for o in found]
    return sum(parts, Decimal(0))


def test_every_row() -> None:
    found = play(as_it_was())
    assert [(o.total, o.written, o.read) for o in found] == [
        (s.total, s.written, s.read) for s in STEPS
    ]
    assert sum(o.written for o in found) == 280_420
    assert sum(o.read for o in found) == 311_760
    assert equivalents(found) == Decimal(381_701)


def saving(changed: list[tuple[Prompt, float, float]]) -> Decimal:
    return equivalents(play(as_it_was())) - equivalents(play(changed))


def declared_later(step: Step) -> Step:
    """The new tool comes in the messages; the tools stay as they were."""
    if len(step.tools) < 3:
        return step
    items = [replace(i, tokens=i.tokens + 350) if i.name == "say5" else i for i in step.items]
    return replace(step, tools=(step.tools[0], step.tools[-1]), items=tuple(items))


def test_declaring_the_tool_later() -> None:
    """Row 5 then writes 1,850 and reads 32,800; rows 9 and 11 read 350 less."""
    changed = [declared_later(step) for step in STEPS]
    asked = [(as_prompt(step), step.at, step.at + 2.0) for step in changed]
    found = play(asked)
    assert (found[4].written, found[4].read) == (1_850, 32_800)
    assert (found[8].read, found[10].read) == (7_000, 7_000)
    assert saving(asked) == Decimal(36_915)


def test_a_refresh_before_the_test_ends() -> None:
    asked = as_it_was()
    refresh = (replace(asked[5][0], id="refresh"), 410.0, 411.0)
    asked.insert(6, refresh)
    found = play(asked)
    assert (found[6].read, found[6].written) == (36_150, 0)
    assert (found[7].written, found[7].read) == (1_500, 36_150)
    assert saving(asked) == Decimal("37957.5")


def test_not_forcing_a_tool() -> None:
    asked = [(as_prompt(replace(s, forced=False)), s.at, s.at + 2.0) for s in STEPS]
    found = play(asked)
    assert [(found[i].written, found[i].read) for i in (8, 9)] == [(1_500, 39_150), (1_500, 40_650)]
    assert saving(asked) == Decimal(38_295)


def test_marking_the_end_of_the_request_before() -> None:
    asked = []
    for step in STEPS:
        marks = {51_870: ["call10"], 82_370: ["file23"]}.get(step.total, [])
        asked.append((as_prompt(step, marks), step.at, step.at + 2.0))
    found = play(asked)
    assert (found[10].written, found[10].read) == (9_720, 42_150)
    assert saving(asked) == Decimal(40_020)


def in_one_block(step: Step) -> Step:
    """All files in the first one's content block."""
    items = [item for item in step.items if not item.name.startswith("file")]
    if len(items) < len(step.items):
        place = next(i for i, item in enumerate(step.items) if item.name == "file0")
        items.insert(place, replace(step.items[place], tokens=24 * 400))
    return replace(step, items=(*items[:-1], replace(items[-1], marked=True)))


def test_all_files_in_one_content_block() -> None:
    asked = [(as_prompt(in_one_block(s)), s.at, s.at + 2.0) for s in STEPS]
    found = play(asked)
    assert (found[10].written, found[10].read) == (9_720, 42_150)
    assert saving(asked) == Decimal(40_020)


def test_waiting_for_the_common_beginning() -> None:
    """The map is marked; the second and third are sent when the first one's answer begins."""
    asked = as_it_was()[:11]
    for number, step in enumerate(STEPS[11:]):
        late = 0.0 if number == 0 else 3.0
        asked.append((as_prompt(step, ["map"]), step.at + late, step.at + late + 2.0))
    found = play(asked)
    assert [(o.written, o.read) for o in found[11:]] == [
        (30_500, 51_870),
        (200, 82_170),
        (200, 82_170),
    ]
    assert saving(asked) == Decimal(69_690)


def test_all_fixes_together() -> None:
    changed = [in_one_block(declared_later(replace(s, forced=False))) for s in STEPS]
    asked = [(as_prompt(step), step.at, step.at + 2.0) for step in changed[:11]]
    asked.insert(6, (replace(asked[5][0], id="refresh"), 410.0, 411.0))
    for number, step in enumerate(changed[11:]):
        at = step.at + 3.0 * number
        asked.append((as_prompt(step, ["map"]), at, at + 2.0))
    found = play(asked)
    assert len(found) == 15
    assert sum(o.written for o in found) == 82_770
    assert sum(o.read for o in found) == 545_560
    assert equivalents(found) == Decimal("158018.5")


@pytest.mark.parametrize(
    ("marked", "waits", "written"),
    [(False, False, 91_500), (True, False, 91_500), (False, True, 91_500), (True, True, 30_900)],
)
def test_the_four_cells_of_a_fan_out(marked: bool, waits: bool, written: int) -> None:
    asked = as_it_was()[:11]
    for number, step in enumerate(STEPS[11:]):
        late = 3.0 * number if waits else 0.0
        marks = ["map"] if marked else []
        asked.append((as_prompt(step, marks), step.at + late, step.at + late + 2.0))
    assert sum(o.written for o in play(asked)[11:]) == written


def test_the_content_blocks_are_as_large_as_the_table_says() -> None:
    for step in STEPS:
        sizes = [size for _, size in step.tools] + [item.tokens for item in step.items]
        assert sum(sizes) + SYSTEM == step.total
