"""What could have been read: against the simulator, which counts the same in another way."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.reach import reach, size_before, sizes
from cacheaudit.diagnose.runner import diagnose
from cacheaudit.diagnose.scenes import Scene, continued, request, result, use
from cacheaudit.model.call import Session
from cacheaudit.model.tokens import calibrated
from cacheaudit.simulate.run import run

MARKS = st.sampled_from(
    (
        ("tools", "system", "last"),
        ("system", "last"),
        ("last",),
        ("tools", 0),
        ("system", 0, "last"),
    )
)


@st.composite
def requests(draw: Any) -> list[dict[str, Any]]:
    """Requests of one conversation that is edited now and then."""
    talk: list[Any] = ["task"]
    sent: list[dict[str, Any]] = []
    system = "You help with code."
    for number in range(draw(st.integers(2, 6))):
        what = draw(st.sampled_from(("append", "append", "edit", "system", "round")))
        if what == "edit":
            place = draw(st.integers(0, len(talk) - 1))
            talk = [*talk[:place], f"edited {number}", *talk[place + 1 :]]
        elif what == "system":
            system = f"You help with code, {number}."
        elif what == "round":
            count = draw(st.integers(1, 14))
            ids = range(100 * number, 100 * number + count)
            talk = [*talk, [use(n) for n in ids], [result(n) for n in ids]]
        else:
            talk = [*talk, f"answer {number}", f"next {number}"]
        sent.append(request(*talk, system=system, mark=draw(MARKS)))
    return sent


@given(requests())
def test_it_is_what_the_simulator_reads_while_nothing_expires(bodies: list[dict[str, Any]]) -> None:
    scene = Scene()
    for body in bodies:
        scene.send(body, after=20)
    session = scene.session()
    ctx = Context(session)
    rows = run(session.calls).calls
    for index, row in enumerate(rows):
        found = reach(ctx, index, explicit=True)
        assert found is not None
        assert row.predicted is not None
        assert found.tokens == row.predicted.read
        assert found.marked
        assert found.agrees(row.predicted.read)
        # The naive cache of the examples is a third way to count the same.
        assert row.exact


@given(requests())
def test_an_unlimited_lookup_never_finds_less(bodies: list[dict[str, Any]]) -> None:
    session = continued(*bodies)
    ctx = Context(session)
    for index in range(len(bodies)):
        near = reach(ctx, index, explicit=True)
        far = reach(ctx, index, explicit=True, unlimited=True)
        assert near is not None
        assert far is not None
        assert far.blocks >= near.blocks


def estimated(session: Session) -> Session:
    """The same session with sizes that are estimated from bytes and the recorded total."""
    calls = []
    for call in session.calls:
        assert call.prompt is not None
        assert call.usage is not None
        bare = tuple(
            msgspec.structs.replace(b, tokens=None, tokens_origin=None) for b in call.prompt.blocks
        )
        prompt = msgspec.structs.replace(call.prompt, blocks=bare)
        total = call.usage.total_input
        assert total is not None
        calls.append(msgspec.structs.replace(call, prompt=calibrated(prompt, total)))
    return msgspec.structs.replace(session, calls=tuple(calls))


def test_sizes_add_up_to_the_total_where_none_is_known() -> None:
    session = continued(request("task", "answer", "go on"))
    call = session.calls[0]
    assert call.prompt is not None
    bare = tuple(msgspec.structs.replace(b, tokens=None) for b in call.prompt.blocks)
    unknown = msgspec.structs.replace(
        call, prompt=msgspec.structs.replace(call.prompt, blocks=bare)
    )
    assert abs(sum(sizes(unknown)) - 14_500) < len(bare)
    assert size_before(call, 3) == 7_000


def _worded(number: int) -> str:
    return f"word{number} " * 1_500


@pytest.mark.parametrize("what", ["system", "message"])
def test_estimated_sizes_agree_within_an_eighth(what: str) -> None:
    # Texts of the length that their fixed sizes stand for: four bytes a token, more or less.
    tools = [
        {"name": f"t{n}", "description": _worded(n)[:5_000], "input_schema": {}} for n in range(2)
    ]
    rules = "rule " * 3_000
    clock = {"system": ("It is 10:15:02.", "It is 10:15:37."), "message": ("", "")}[what]
    texts = [_worded(n)[:9_000] for n in range(5)]
    edited = [texts[0], "shorter " + texts[1][8:], *texts[2:]] if what == "message" else texts
    first = request(*texts[:3], tools=tools, system=rules + clock[0])
    second = request(*edited, tools=tools, system=rules + clock[1])
    session = estimated(continued(first, second))
    (finding,) = [f for f in diagnose(session).findings if f.kind == "loss"]
    assert finding.name == ("clock-in-system" if what == "system" else "history-message-edited")
    assert finding.verdict == "proved"
    assert any("(estimated)" in line for line in finding.established)
