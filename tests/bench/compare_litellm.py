"""Compares our Claude machine with litellm's prediction of prompt-cache hits, on random sessions.

Needs an environment with litellm 1.110 and msgspec; it is part of no test group:

    LITELLM_LOCAL_MODEL_COST_MAP=True PYTHONPATH=. python tests/bench/compare_litellm.py [SESSIONS]

litellm's plan of a body (positions, lookback, fingerprints) and its history of entries are used as
they are; sizes come from the same list for both. It prints how often both agree, and every kind of
difference with an example.
"""

from __future__ import annotations

import copy
import json
import random
import sys
from collections import Counter
from typing import Any

from litellm.llms.anthropic.prompt_cache_prediction import (
    CountedBreakpoint,
    CountedPromptCachePlan,
    PromptCachePlan,
    parse_cache_plan,
)
from litellm.proxy.spend_tracking.baseline_accounting import (
    BaselineHistory,
    BaselineObservation,
    advance_baseline_history,
)
from litellm.types.utils import PromptTokensDetailsWrapper, Usage

from cacheaudit.model.call import Call
from cacheaudit.model.tokens import with_recorded_tokens
from cacheaudit.providers.registry import expand
from cacheaudit.simulate.run import Player
from cacheaudit.simulate.switches import Switches

Json = dict[str, Any]
MODEL, MINIMUM, EPOCH = "claude-opus-5", 512, 1_793_000_000.0
# litellm renews only what was read, and drops everything when speed changes.
ALIKE = {"refresh_marked": "no", "write_below_hit": "no", "speed": "tools"}
_GAPS = (0.0, 0.5, 2.0, 30.0, 200.0, 299.0, 301.0, 1_800.0, 3_599.0, 3_601.0)


class Talk:
    """A random conversation, one request after the other."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._serial = 0
        self.sizes: dict[str, int] = {}
        self._tools = [self._tool() for _ in range(self._draw.randint(0, 3))]
        self._system = [self._text() for _ in range(self._draw.randint(0, 2))]
        self._messages: list[Json] = [{"role": "user", "content": [self._text()]}]
        self._settings: Json = {}
        self._mixes = self._draw.random() < 0.3
        self.at = EPOCH

    def step(self) -> tuple[Json, float]:
        """Return the next request and how long its first token takes."""
        draw = self._draw
        draw.choice(
            (
                self._grow,
                self._grow,
                self._grow,
                self._change_tools,
                self._edit,
                self._cut,
                self._same,
                self._set,
            )
        )()
        self.at += draw.choice(_GAPS)
        return self._body(), draw.choice((0.25, 1.0, 5.0))

    def _grow(self) -> None:
        for _ in range(self._draw.randint(1, 3)):
            if self._draw.random() < 0.5:
                self._messages.append({"role": "assistant", "content": [self._text()]})
                self._messages.append({"role": "user", "content": [self._text()]})
                if self._draw.random() < 0.2:
                    self._messages.append({"role": "system", "content": [self._text()]})
                continue
            count = self._draw.choice((1, 1, 2, 14))
            uses = [self._use() for _ in range(count)]
            self._messages.append(
                {"role": "assistant", "content": [*self._thought(), self._text(), *uses]}
            )
            results = [self._result(use["id"]) for use in uses]
            self._messages.append({"role": "user", "content": results})

    def _change_tools(self) -> None:
        self._tools = [*self._tools[:1], self._tool(), *self._tools[1:]]

    def _edit(self) -> None:
        message = self._draw.choice(self._messages)
        place = self._draw.randrange(len(message["content"]))
        if message["content"][place]["type"] == "text":
            message["content"] = [*message["content"]]
            message["content"][place] = self._text()

    def _cut(self) -> None:
        if len(self._messages) > 2:
            del self._messages[-2:]

    def _same(self) -> None:
        return

    def _set(self) -> None:
        name, value = self._draw.choice(
            (
                ("tool_choice", {"type": "any"}),
                ("output_config", {"effort": "low"}),
                ("thinking", {"type": "adaptive"}),
                ("speed", "fast"),
            )
        )
        if name in self._settings:
            del self._settings[name]
        elif name != "tool_choice" or self._tools:
            self._settings[name] = value

    def _text(self) -> Json:
        return self._sized({"type": "text", "text": f"t{self._next()}"})

    def _thought(self) -> list[Json]:
        if self._draw.random() < 0.5:
            return []
        made = {"type": "thinking", "thinking": f"h{self._next()}", "signature": "s"}
        return [self._sized(made)]

    def _use(self) -> Json:
        number = self._next()
        return self._sized({"type": "tool_use", "id": f"u{number}", "name": "n", "input": {"x": 1}})

    def _result(self, identity: str) -> Json:
        made = {"type": "tool_result", "tool_use_id": identity, "content": f"r{self._next()}"}
        return self._sized(made)

    def _tool(self) -> Json:
        return self._sized({"name": f"n{self._next()}", "input_schema": {"type": "object"}})

    def _sized(self, block: Json) -> Json:
        self.sizes[json.dumps(block)] = self._draw.randint(20, 400)
        return block

    def _next(self) -> int:
        self._serial += 1
        return self._serial

    def _body(self) -> Json:
        body: Json = {"model": MODEL, "max_tokens": 9, **self._settings}
        body |= {"messages": copy.deepcopy(self._messages)}
        if self._tools:
            body["tools"] = copy.deepcopy(self._tools)
        if self._system:
            body["system"] = copy.deepcopy(self._system)
        places = list(in_order(body))
        places = [place for place in places if place.get("type") != "thinking"]
        near = places[-6:]
        chosen = self._draw.sample(near, min(len(near), self._draw.randint(0, 2)))
        chosen += self._draw.sample(places, min(len(places), self._draw.choice((0, 1, 1, 2, 3))))
        marked = {id(block): block for block in chosen}
        lives = self._lives(len(marked))
        for block in places:
            if id(block) in marked:
                block["cache_control"] = {"type": "ephemeral", **lives.pop(0)}
        if self._draw.random() < 0.3:
            body["cache_control"] = {"type": "ephemeral", **self._lives(1)[0]}
        for message in body["messages"]:
            self._shorten(message)
        return body

    def _shorten(self, message: Json) -> None:
        """Send some lone texts as a string, which is the same prompt."""
        content = message["content"]
        if (
            len(content) == 1
            and content[0].keys() == {"type", "text"}
            and self._draw.random() < 0.3
        ):
            message["content"] = content[0]["text"]

    def _lives(self, count: int) -> list[Json]:
        if not self._mixes:
            return [{} for _ in range(count)]
        found = [self._draw.choice(({}, {"ttl": "5m"}, {"ttl": "1h"})) for _ in range(count)]
        if self._draw.random() < 0.1:
            return found
        return sorted(found, key=lambda life: life != {"ttl": "1h"})


def in_order(body: Json) -> list[Json]:
    """List the content blocks of a body in render order."""
    found = [*body.get("tools", ()), *body.get("system", ())]
    for message in body["messages"]:
        content = message["content"]
        found += [{"type": "text", "text": content}] if isinstance(content, str) else content
    return found


def sizes_of(body: Json, known: dict[str, int]) -> list[int]:
    """Look up the size of every content block."""
    return [
        known[json.dumps({k: v for k, v in block.items() if k != "cache_control"})]
        for block in in_order(body)
    ]


def theirs(
    history: BaselineHistory, body: Json, sizes: list[int], at: float, first: float, number: int
) -> tuple[BaselineHistory, tuple[int, int, int] | str]:
    """Ask litellm: read, written for five minutes and an hour, or why it does not say."""
    plan = parse_cache_plan(body)
    if not isinstance(plan, PromptCachePlan):
        return history, plan.reason
    counted = CountedPromptCachePlan(
        sum(sizes),
        tuple(
            CountedBreakpoint(
                point.fingerprint,
                point.ttl_seconds,
                sum(sizes[: len(in_order({"messages": [], **point.prefix_body}))]),
                point.lookback_fingerprints,
                point.content_fingerprint,
                point.lookback_content_fingerprints,
            )
            for point in plan.breakpoints
        ),
    )
    details = PromptTokensDetailsWrapper(
        text_tokens=sum(sizes), cached_tokens=0, cache_creation_tokens=0
    )
    usage = Usage(prompt_tokens=sum(sizes), completion_tokens=1, total_tokens=sum(sizes) + 1)
    usage.prompt_tokens_details = details
    seen = BaselineObservation(
        request_id=str(number),
        started_at=at,
        available_at=at + first,
        outcome="complete",
        baseline_equivalent=False,
        usage=usage,
        plan=counted,
        minimum_cache_tokens=MINIMUM,
    )
    history, (estimate,) = advance_baseline_history(history, (seen,))
    if estimate.usage is None or estimate.usage.prompt_tokens_details is None:
        return history, estimate.reason
    told = estimate.usage.prompt_tokens_details
    split = told.cache_creation_token_details
    return history, (
        told.cached_tokens,
        split.ephemeral_5m_input_tokens,
        split.ephemeral_1h_input_tokens,
    )


def ours(player: Player, body: Json, sizes: list[int], at: float, first: float, number: int) -> Any:
    """Ask our machine the same."""
    call = Call(
        id=str(number),
        provider="anthropic",
        surface="claude_api",
        model=MODEL,
        started_at=at,
        first_token_at=at + first,
        ended_at=at + first,
        prompt=with_recorded_tokens(expand(body, provider="anthropic"), sizes),
    )
    outcome = player.play(call).predicted
    if outcome is None or outcome.refused is not None:
        return "refused"
    return outcome.read, outcome.writes.get("5m", 0), outcome.writes.get("1h", 0)


def compare(sessions: int, switches: Switches) -> tuple[Counter[str], dict[str, Json]]:
    """Play random sessions through both."""
    tally: Counter[str] = Counter()
    examples: dict[str, Json] = {}
    for seed in range(sessions):
        talk, player = Talk(seed), Player(switches)
        history = BaselineHistory(first_at=0.0, uncertain_before=0.0, equivalent=False)
        moment = -1.0
        for number in range(10):
            body, first = talk.step()
            if talk.at == moment:
                talk.at += 0.01  # litellm takes one request a moment
            moment = talk.at
            sizes = sizes_of(body, talk.sizes)
            history, other = theirs(history, body, sizes, moment, first, number)
            mine = ours(player, body, sizes, moment, first, number)
            kind = _kind(mine, other)
            tally[kind] += 1
            example = {"seed": seed, "request": number, "ours": mine, "litellm": other}
            examples.setdefault(kind, example)
            if isinstance(other, str) and other != "cache_ttl_changed":
                continue
            if kind not in ("agree", "both refuse"):
                break  # both caches hold different things from here on
    return tally, examples


def _kind(mine: Any, other: Any) -> str:
    if isinstance(other, str):
        if mine == "refused":
            return "both refuse"
        return f"litellm does not say: {other}"
    if mine == "refused":
        return "only we refuse"
    if mine == other:
        return "agree"
    if mine[0] == other[0]:
        return "writes differ"
    return "we read more" if mine[0] > other[0] else "litellm reads more"


def main(sessions: int) -> None:
    """Compare under litellm's own choices, under our defaults, and under one of these at a time."""
    alone = [(f"our {name}", {n: v for n, v in ALIKE.items() if n != name}) for name in ALIKE]
    for name, switches in (("litellm's choices", ALIKE), ("our defaults", {}), *alone):
        tally, examples = compare(sessions, Switches.parse(switches))
        print(f"{name}: {json.dumps(dict(tally.most_common()))}")
        for kind, example in examples.items():
            if kind not in ("agree", "both refuse"):
                print(f"  {kind}: {json.dumps(example)}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2_000)
