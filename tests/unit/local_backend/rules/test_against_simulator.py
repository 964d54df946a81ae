"""The rules of the server and those of the simulator, written apart, on the same random sessions.

Where they differ one of them is wrong. Both start from the bodies as sent, so what is compared is
all of it: which content blocks there are, what a change drops, markers, lookback, lifetimes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from cacheaudit.simulate.run import run
from cacheaudit.simulate.switches import Switches
from local_backend.rules import AnthropicRules, MarkerError
from local_backend.rules.anthropic import AnthropicSettings
from local_backend.server.frames import frame_of
from local_backend.server.render import Rendered, Renderer
from local_backend.server.request import parse_request
from local_backend.tokenizer.byte_level import ByteTokenizer
from tests.unit.simulate.builders import call

MODEL = "claude-opus-5"
# Models that show thinking and effort ahead of their tools are not enumerated, and no local one
# does; the pages say that the first picture drops the messages.
SWITCHES = Switches(thinking="messages", effort="messages", images="messages")
TOKENIZER = ByteTokenizer()
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QQ=="}}
TTLS = ("5m", "1h")

Figures = tuple[int, int, int, int] | str


@dataclass(frozen=True)
class Sent:
    """One request, and when it was sent and first answered."""

    body: dict[str, Any]
    at: float
    first: float


def rendered(sent: Sequence[Sent]) -> list[Rendered]:
    renderer = Renderer(TOKENIZER, frame_of(TOKENIZER, None), media_tokens=50)
    return [renderer.render(parse_request(s.body), f"m{i}") for i, s in enumerate(sent)]


def by_rules(sent: Sequence[Sent], prompts: Sequence[Rendered], *, runs: bool) -> list[Figures]:
    rules = AnthropicRules(AnthropicSettings(collapse_runs=runs))
    found: list[Figures] = []
    for one, shown in zip(sent, prompts, strict=True):
        try:
            plan = rules.plan(shown.prompt, one.at)
        except MarkerError:
            found.append("refused")
            continue
        outcome = rules.began(plan, plan.read or 0, one.first)
        writes = outcome.writes
        uncached = outcome.uncached - shown.tail
        found.append((outcome.read, writes.get("5m", 0), writes.get("1h", 0), uncached))
    return found


def by_simulator(sent: Sequence[Sent], prompts: Sequence[Rendered], *, runs: bool) -> list[Figures]:
    calls = [
        call(f"m{i:03}", s.body, at=s.at, first=s.first, sizes=list(p.content_tokens))
        for i, (s, p) in enumerate(zip(sent, prompts, strict=True))
    ]
    switches = structs.replace(SWITCHES, lookback_runs="one" if runs else "each")
    found: list[Figures] = []
    for row in run(calls, switches=switches).calls:
        outcome = row.predicted
        if outcome is None or outcome.refused is not None:
            found.append("refused")
            continue
        writes = outcome.writes
        found.append((outcome.read, writes.get("5m", 0), writes.get("1h", 0), outcome.uncached))
    return found


class Conversation:
    """A session in the making: every step changes one thing, or adds to it."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._count = 0
        self.tools = [self._tool() for _ in range(draw(st.integers(0, 2)))]
        self.system = [self._text() for _ in range(draw(st.integers(0, 2)))]
        self.messages: list[dict[str, Any]] = [{"role": "user", "content": [self._text()]}]
        self.more: dict[str, Any] = {}

    def _size(self) -> int:
        return self._draw(st.sampled_from([1, 20, 150, 600]))

    def _name(self) -> str:
        self._count += 1
        return f"n{self._count}"

    def _text(self) -> dict[str, Any]:
        return {"type": "text", "text": f"{self._name()}{'x' * self._size()}"}

    def _tool(self) -> dict[str, Any]:
        schema = {"type": "object", "properties": {}}
        return {"name": self._name(), "description": "d" * self._size(), "input_schema": schema}

    def step(self) -> None:
        """Change one thing."""
        change = self._draw(st.sampled_from(CHANGES))
        getattr(self, change)()

    def nothing(self) -> None:
        """Send the same again."""

    def add_round(self) -> None:
        width = self._draw(st.sampled_from([1, 1, 2, 15]))
        names = [self._name() for _ in range(width)]
        calls = [{"type": "tool_use", "id": n, "name": "f", "input": {}} for n in names]
        results = [
            {"type": "tool_result", "tool_use_id": n, "content": "r" * self._size()} for n in names
        ]
        self.messages.append({"role": "assistant", "content": calls})
        self.messages.append({"role": "user", "content": results})

    def add_texts(self) -> None:
        count = self._draw(st.sampled_from([1, 3, 9, 18, 19, 20, 25]))
        self.messages.append({"role": "assistant", "content": [self._text()]})
        self.messages.append({"role": "user", "content": [self._text() for _ in range(count)]})

    def add_thought(self) -> None:
        thought = {"type": "thinking", "thinking": self._name(), "signature": "s"}
        self.messages.append({"role": "assistant", "content": [thought, self._text()]})
        self.messages.append({"role": "user", "content": [self._text()]})

    def add_picture(self) -> None:
        self.messages.append({"role": "assistant", "content": [self._text()]})
        self.messages.append({"role": "user", "content": [IMAGE, self._text()]})

    def change_tools(self) -> None:
        if self.tools and self._draw(st.booleans()):
            self.tools = self.tools[::-1] if len(self.tools) > 1 else []
        else:
            self.tools = [*self.tools, self._tool()]

    def change_system(self) -> None:
        self.system = [*self.system[:1], self._text()]

    def edit_message(self) -> None:
        place = self._draw(st.integers(0, len(self.messages) - 1))
        content = self.messages[place]["content"]
        if content[-1]["type"] == "text":
            changed = {**self.messages[place], "content": [*content[:-1], self._text()]}
            self.messages = [*self.messages[:place], changed, *self.messages[place + 1 :]]

    def rewind(self) -> None:
        self.messages = self.messages[: max(1, len(self.messages) - 2)]

    def change_setting(self) -> None:
        name, values = self._draw(st.sampled_from(sorted(SETTINGS.items())))
        value = self._draw(st.sampled_from(values))
        self.more = {k: v for k, v in self.more.items() if k != name}
        if value is not None:
            self.more[name] = value

    def body(self) -> dict[str, Any]:
        """The request with its markers."""
        tools, system, messages = list(self.tools), list(self.system), list(self.messages)
        ttl = self._draw(st.sampled_from([None, *TTLS]))
        front = self._draw(st.sampled_from([None, *TTLS]))
        marks = self._draw(st.sets(st.sampled_from(["tools", "system", "first", "last", "middle"])))
        if tools and "tools" in marks:
            tools[-1] = _marked(tools[-1], front)
        if system and "system" in marks:
            system[-1] = _marked(system[-1], front)
        places = {"first": 0, "middle": len(messages) // 2, "last": len(messages) - 1}
        for name in sorted(marks & places.keys()):
            content = messages[places[name]]["content"]
            marked = [*content[:-1], _marked(content[-1], ttl)]
            messages[places[name]] = {**messages[places[name]], "content": marked}
        made = {"model": MODEL, "max_tokens": 2000, "messages": messages, **self.more}
        if self._draw(st.integers(0, 3)) == 0:
            made["cache_control"] = _marker(self._draw(st.sampled_from([None, *TTLS])))
        if system:
            made["system"] = system
        return {**made, "tools": tools} if tools else made


CHANGES = (
    "nothing", "add_round", "add_round", "add_texts", "add_texts", "add_thought", "add_picture",
    "change_tools", "change_system", "edit_message", "rewind", "change_setting",
)  # fmt: skip
SETTINGS: dict[str, list[Any]] = {
    "tool_choice": [None, {"type": "auto"}, {"type": "none"},
                    {"type": "auto", "disable_parallel_tool_use": True}],
    "thinking": [None, {"type": "disabled"}, {"type": "adaptive"},
                 {"type": "enabled", "budget_tokens": 1024}],
    "context_management": [None, {"edits": []}],
    "output_config": [None, {"effort": "low"}, {"effort": "high"}],
    "speed": [None, "standard", "fast"],
    "model": [MODEL, "claude-sonnet-5"],
}  # fmt: skip


def _marker(ttl: str | None) -> dict[str, str]:
    return {"type": "ephemeral", **({} if ttl is None else {"ttl": ttl})}


def _marked(block: dict[str, Any], ttl: str | None) -> dict[str, Any]:
    return {**block, "cache_control": _marker(ttl)}


@st.composite
def sessions(draw: st.DrawFn) -> list[Sent]:
    """Requests in order of their start, some beside each other."""
    talk, at, sent = Conversation(draw), 0.0, []
    for _ in range(draw(st.integers(1, 9))):
        at += draw(st.sampled_from([0.0, 1.0, 30.0, 200.0, 299.0, 300.0, 301.0, 3500.0, 3700.0]))
        first = at + draw(st.sampled_from([0.5, 5.0, 100.0]))
        sent.append(Sent(talk.body(), at, first))
        talk.step()
    return sent


@given(sessions(), st.booleans())
@settings(max_examples=200)
def test_both_say_the_same(sent: list[Sent], runs: bool) -> None:
    prompts = rendered(sent)
    assert by_rules(sent, prompts, runs=runs) == by_simulator(sent, prompts, runs=runs)


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_every_setting_is_tried_by_itself(name: str) -> None:
    """Each value against each other, with markers on all levels."""
    first, *_ = SETTINGS[name]
    for value in SETTINGS[name]:
        sent = []
        for number, chosen in enumerate((first, value, first)):
            body = {
                "model": MODEL,
                "max_tokens": 2000,
                "tools": [_marked({"name": "f", "description": "d" * 900,
                                   "input_schema": {"type": "object"}}, None)],
                "system": [_marked({"type": "text", "text": "s" * 700}, None)],
                "messages": [
                    {"role": "user", "content": [_marked({"type": "text", "text": "m"}, None)]}
                ],
                **({} if chosen is None else {name: chosen}),
            }  # fmt: skip
            sent.append(Sent(body, number * 10.0, number * 10.0 + 1))
        prompts = rendered(sent)
        assert by_rules(sent, prompts, runs=True) == by_simulator(sent, prompts, runs=True)
