"""Small losses: named where recorded requests show a change, left alone where sizes are all."""

from __future__ import annotations

from typing import Any

import pytest

from cacheaudit.diagnose.examples import Script, body
from cacheaudit.diagnose.runner import diagnose
from cacheaudit.model.finding import Finding


def losses(lost: int, first: dict[str, Any] | None, second: dict[str, Any] | None) -> list[Finding]:
    script = Script().call(0, 0, 40_000, body=first).call(20, 40_000 - lost, 900, body=second)
    return [found for found in diagnose(script.session()).findings if found.kind == "loss"]


def message(inner: dict[str, Any], *more: str) -> dict[str, Any]:
    made = body("task", *more)
    use = {"type": "tool_use", "id": "t1", "name": "run_tests", "input": inner}
    made["messages"].insert(1, {"role": "assistant", "content": [use]})
    return made


FIRST = message({"city": "X", "unit": "C"})
SWAPPED = message({"unit": "C", "city": "X"}, "done", "next")
SAME = message({"city": "X", "unit": "C"}, "done", "next")


def test_a_change_of_key_order_is_named_however_little_it_cost() -> None:
    (found,) = losses(800, FIRST, SWAPPED)
    assert found.name == "key-order-in-tool-input"
    assert found.tokens_lost == 800
    assert found.first_change is not None
    assert found.first_change.path == "messages[1].content[0]"


@pytest.mark.parametrize(
    ("lost", "first", "second"),
    [
        (800, FIRST, SAME),  # a seam, as far as anyone can tell
        (800, None, None),
        (800, FIRST, None),
        (128, FIRST, SWAPPED),
    ],
)
def test_a_small_shortfall_alone_is_no_loss(
    lost: int, first: dict[str, Any] | None, second: dict[str, Any] | None
) -> None:
    assert losses(lost, first, second) == []
