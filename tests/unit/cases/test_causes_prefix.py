"""Public cases of changed prefixes (P), each as its smallest recorded session."""

from __future__ import annotations

import json
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import pytest

from tests.unit.cases.recording import (
    MARK,
    Recording,
    anthropic_usage,
    assistant,
    audit,
    body,
    command,
    diff,
    openai_usage,
    result,
    simulated,
    text,
    tool,
    use,
    user,
)
from tests.unit.cli.helpers import run

TOOLS = (tool("read", 1_500), tool("write", 1_500, **MARK))
SYSTEM = (text("You help with code.", 4_000, **MARK),)
FRONT = 7_000


def test_p01_a_block_injected_at_the_start_moves_into_the_newest_message(tmp_path: Path) -> None:
    listing, skills = text("A" * 533, 140), text("S" * 1_501, 2_000)
    task, answer = text("the task", 3_000), assistant(text("an answer", 2_500))
    fresh = body([user(listing, skills, task), answer, user(text("more", 800))],
                 tools=TOOLS, system=SYSTEM)  # fmt: skip
    resumed = body(
        [user(listing, task), answer, user(text("more", 800)), assistant(text("ok", 300)),
         user(text("next", 400), skills)],
        tools=TOOLS, system=SYSTEM,
    )  # fmt: skip
    first = FRONT + 140 + 2_000 + 3_000 + 2_500 + 800
    case = Recording().call(0, anthropic_usage(0, first), fresh)
    case.call(60, anthropic_usage(FRONT, first - FRONT + 700), resumed)
    change = diff(tmp_path, case)["first_change"]
    assert (change["level"], change["path"], change["kind"]) == (
        "messages",
        "messages[0].content[1]",
        "moved",
    )
    found = audit(tmp_path, case)
    loss = found.only()
    assert (loss.name, loss.verdict, loss.evidence) == (
        "injected-block-moved",
        "proved",
        "body_diff",
    )
    assert loss.path == "messages[0].content[1]"
    # Predicted: tools and system alone, although the first block of the message still agrees.
    assert found.reads[1] == FRONT
    assert loss.tokens == first - FRONT


def test_p03_a_flat_floor_is_told_from_usage_with_what_it_wastes(tmp_path: Path) -> None:
    floor, sizes = 14_500, (20_500, 22_500, 25_500, 28_000, 32_000)
    case = Recording(model="claude-sonnet-4-6").call(0, anthropic_usage(0, 18_000), client="2.1.10")
    case.call(60, anthropic_usage(18_000, 2_500), client="2.1.10")
    for number, size in enumerate(sizes[1:], 2):
        case.call(60 * number, anthropic_usage(floor, size - floor), client="2.1.12")
    loss = audit(tmp_path, case).only()
    assert loss.name == "read-floor"
    assert loss.verdict == "consistent"
    # What was written beyond what that turn added.
    added = [b - a for a, b in pairwise(sizes)]
    assert loss.tokens == sum(size - floor for size in sizes[1:]) - sum(added)
    assert "14,500" in loss.said
    # The date of the change is the date of another version of the client.
    assert "2.1.12" in loss.said + loss.to_check


def test_p03_with_bodies_the_missing_marker_is_proved(tmp_path: Path) -> None:
    talk = [user(text("task", 3_000)), assistant(text("a", 2_000)), user(text("b", 1_000))]
    more = [assistant(text("c", 1_500)), user(text("d", 500))]
    case = Recording().call(0, anthropic_usage(0, 13_000), body(talk, tools=TOOLS, system=SYSTEM))
    case.call(
        40,
        anthropic_usage(FRONT, 0, 8_000),
        body([*talk, *more], tools=TOOLS, system=SYSTEM, last=False),
    )
    loss = audit(tmp_path, case).only()
    assert (loss.name, loss.verdict) == ("last-message-unmarked", "proved")
    assert loss.tokens == 6_000


def test_p05_misses_at_short_gaps_between_hits_at_long_ones(tmp_path: Path) -> None:
    hour = {"ttl": "1h"}
    case = Recording()
    case.call(0, anthropic_usage(0, 180_000, **hour))
    case.call(30, anthropic_usage(29_542, 151_000, **hour))
    case.call(30 + 26 * 60, anthropic_usage(180_542, 900, **hour))
    case.call(30 + 26 * 60 + 60, anthropic_usage(29_542, 152_500, **hour))
    case.call(90 + 58 * 60, anthropic_usage(182_042, 700, **hour))
    found = audit(tmp_path, case)
    assert found.losses
    for loss in found.losses:
        assert loss.verdict == "unknown"
        assert loss.name == "provider-side-suspected"
        assert loss.rivals
        assert "expired" not in loss.said.lower()
    assert not {"ttl-expired", "history-message-edited", "messages-changed"} & set(found.names)


def test_p06_a_reconnected_server_moves_its_tools(tmp_path: Path) -> None:
    a1, a2, b1 = tool("a1", 1_000), tool("a2", 1_500), tool("b1", 2_000)
    task = user(text("task", 3_000))
    again = [task, assistant(text("yes", 500)), user(text("go on", 400))]
    system = (text("You help.", 2_000, **MARK),)
    case = Recording().call(
        0, anthropic_usage(0, 9_500), body([task], tools=(a1, a2, b1), system=system)
    )
    case.call(45, anthropic_usage(0, 10_400), body(again, tools=(b1, a1, a2), system=system))
    change = diff(tmp_path, case)["first_change"]
    assert (change["level"], change["path"], change["kind"]) == ("tools", "tools[0]", "reordered")
    found = audit(tmp_path, case)
    loss = found.only()
    assert (loss.name, loss.verdict, loss.path) == ("tools-reordered", "proved", "tools[0]")
    assert loss.tokens == 9_500
    assert "sort" in loss.fix["title"].lower()
    assert found.reads[1] == 0
    # The fix reads everything: 9,500 written at 1.25 become read at 0.1.
    assert Decimal(loss.fix["saves_alone"]["input_equivalents"]) == Decimal("1.15") * 9_500


def chat(names: list[str], *turns: str) -> dict[str, object]:
    tools = [
        {"type": "function", "function": {"name": name, "parameters": {"type": "object"}},
         "_t": 1_200}
        for name in names
    ]  # fmt: skip
    messages = [{"role": "system", "content": "You help.", "_t": 2_000}]
    roles = ("user", "assistant")
    messages += [
        {"role": roles[n % 2], "content": turn, "_t": 1_500} for n, turn in enumerate(turns)
    ]
    return {"tools": tools, "messages": messages}


def test_p08_a_tool_map_in_random_order(tmp_path: Path) -> None:
    case = Recording(provider="openai", surface="openai", model="gpt-5.4")
    case.call(0, openai_usage(7_100, 0), chat(["open", "close", "find"], "task"))
    case.call(9, openai_usage(10_100, 0), chat(["find", "open", "close"], "task", "a", "b"))
    loss = audit(tmp_path, case).only()
    assert (loss.name, loss.verdict, loss.path) == ("tools-reordered", "proved", "tools[0]")


def test_p08_every_process_has_its_own_order(tmp_path: Path) -> None:
    orders = (["open", "close", "find"], ["find", "open", "close"], ["close", "find", "open"])
    case = Recording(provider="openai", surface="openai", model="gpt-5.4")
    for number, names in enumerate(orders):
        case.call(60 * number, openai_usage(7_100, 0), chat(names, "task"), session=f"s{number}")
    found = audit(tmp_path, case)
    # First calls lose nothing of their own lane: a note across sessions, proved by the bodies.
    assert found.losses == []
    note = found.note("tools-reordered")
    assert (note.verdict, note.evidence, note.path) == ("proved", "body_diff", "tools[0]")
    assert set(note.calls) == {"call-1", "call-2", "call-3"}


def test_p08_only_the_keys_of_a_schema_flip(tmp_path: Path) -> None:
    def schema(**properties: str) -> dict[str, object]:
        return {"type": "object", "properties": {k: {"type": v} for k, v in properties.items()}}

    one = tool("find", 1_500) | {"input_schema": schema(path="string", depth="integer")}
    two = tool("find", 1_500) | {"input_schema": schema(depth="integer", path="string")}
    task = user(text("task", 3_000))
    case = Recording().call(
        0, anthropic_usage(0, 10_000), body([task], tools=(TOOLS[0], one), system=SYSTEM)
    )
    case.call(
        9,
        anthropic_usage(0, 11_000),
        body([task, assistant(text("a", 500)), user(text("b", 500))],
             tools=(TOOLS[0], two), system=SYSTEM),
    )  # fmt: skip
    change = diff(tmp_path, case)["first_change"]
    assert (change["path"], change["kind"]) == ("tools[1].input_schema", "key_order_only")
    loss = audit(tmp_path, case).only()
    assert (loss.name, loss.verdict) == ("tool-schema-key-order", "proved")


NONCE = "x-anthropic-billing-header: version=2.1.92; entry=cli; cch={};"


def nonce(provider: str, surface: str) -> Recording:
    talk = [user(text("task", 3_000)), assistant(text("a", 500)), user(text("b", 500))]

    def system(value: str) -> tuple[dict[str, object], ...]:
        return (text(NONCE.format(value), 40), text("You help with code.", 4_000, **MARK))

    model = "claude-opus-5" if provider == "anthropic" else "qwen3-coder-local"
    case = Recording(provider=provider, surface=surface, model=model)
    anthropic = provider == "anthropic"
    usage = anthropic_usage(0, 7_040) if anthropic else openai_usage(7_040, 0)
    case.call(0, usage, body(talk[:1], system=system("1a2b3")))
    usage = anthropic_usage(0, 8_040) if anthropic else openai_usage(8_040, 0)
    return case.call(12, usage, body(talk, system=system("99871")))


@pytest.mark.parametrize(("provider", "surface"), [("local", "local"), ("anthropic", "bedrock")])
def test_p10_a_nonce_in_the_first_block_of_other_backends(
    tmp_path: Path, provider: str, surface: str
) -> None:
    case = nonce(provider, surface)
    loss = audit(tmp_path, case).only()
    assert (loss.name, loss.verdict, loss.path) == ("random-id-in-prefix", "proved", "system[0]")
    # Within the first 60 tokens: at the first of the five hexadecimal digits.
    assert loss.place["byte_offset"] == NONCE.index("{")
    assert diff(tmp_path, case)["first_change"]["path"] == "system[0]"


def test_p10_on_the_providers_own_api_nothing_is_proved(tmp_path: Path) -> None:
    loss = audit(tmp_path, nonce("anthropic", "claude_api")).only()
    assert loss.verdict == "unknown"
    assert "disputed" in loss.said
    assert "provider-side-suspected" in loss.rivals


def clock(*, seconds: bool) -> Recording:
    stamps = ("10:15:02", "10:15:37", "10:16:10") if seconds else ("", "", "")
    talk = [user(text("task", 3_000))]
    case, size = Recording(), 7_000
    for number, stamp in enumerate(stamps):
        system = (text(f"Now: 2026-10-14 {stamp}. You help.", 4_000, **MARK),)
        read = 0 if seconds or not number else size - 1_000
        case.call(35 * number, anthropic_usage(read, size - read), body(talk, system=system))
        talk += [assistant(text(f"a{number}", 500)), user(text(f"b{number}", 500))]
        size += 1_000
    return case


def test_p13_a_clock_with_seconds(tmp_path: Path) -> None:
    case = clock(seconds=True)
    loss = audit(tmp_path, case).only()
    assert (loss.name, loss.verdict, loss.path) == ("clock-in-system", "proved", "system[0]")
    assert loss.place["byte_offset"] == len("Now: 2026-10-14 10:15:")
    assert loss.calls == ["call-2", "call-3"]
    assert loss.tokens == 7_000 + 8_000
    assert "newest user message" in loss.fix["title"]


def test_p13_a_day_keeps_hits(tmp_path: Path) -> None:
    assert audit(tmp_path, clock(seconds=False)).losses == []


def git_sessions(gap: float, *names: str) -> Recording:
    """One request a session; the last system block holds the state of the repository."""
    case = Recording()
    states = ("M app.py", "M app.py\n M tests.py", "M tests.py")
    for number, (state, name) in enumerate(zip(states, names, strict=True)):
        status = text(f"gitStatus: at the start\nOn branch main\n {state}", 6_000, **MARK)
        system = (text("You help with code.", 2_000, **MARK), status)
        tools = (tool("read", 9_000), tool(name, 9_000))
        request = body([user(text(f"task {number}", 200))], tools=tools, system=system)
        read = 20_000 if number else 0
        usage = anthropic_usage(read, 26_200 - read)
        case.call(gap * number, usage, request, session=f"s{number}")
    return case


def test_p15_git_status_rewrites_the_last_block_of_every_session(tmp_path: Path) -> None:
    case = git_sessions(100, "write", "write", "write")
    change = diff(tmp_path, case)["first_change"]
    assert (change["level"], change["path"]) == ("system", "system[1]")
    note = audit(tmp_path, case).note("git-status-in-system")
    assert (note.verdict, note.evidence, note.path) == ("proved", "body_diff", "system[1]")
    assert set(note.calls) == {"call-1", "call-2", "call-3"}
    # Tools are read, the last system block is not: 6,000 tokens at each further start.
    assert "12,000 tokens" in note.said
    assert "20,000 of 26,000 tokens were read" in note.said
    assert "content block of its own" in note.fix["title"]
    assert "first user message" in note.fix["title"]


@pytest.mark.parametrize(
    "case",
    [git_sessions(301, "write", "write", "write"), git_sessions(100, "write", "run", "ask")],
    ids=["expired", "other tools"],
)
def test_p15_sessions_that_could_share_nothing_are_not_compared(
    tmp_path: Path, case: Recording
) -> None:
    assert "git-status-in-system" not in {f.name for f in audit(tmp_path, case).findings}


def test_p15_within_a_session(tmp_path: Path) -> None:
    case = Recording()
    talk = [user(text("task", 3_000))]
    for number, state in enumerate(("M app.py", "M app.py\n M tests.py")):
        status = text(f"gitStatus: at the start\nOn branch main\n {state}", 6_000, **MARK)
        system = (text("You help with code.", 2_000), status)
        read = 3_000 if number else 0
        size = 14_000 + 1_000 * number
        case.call(
            50 * number,
            anthropic_usage(read, size - read),
            body(talk, tools=TOOLS, system=system),
        )
        talk += [assistant(text("a", 500)), user(text("b", 500))]
    loss = audit(tmp_path, case).only()
    assert (loss.name, loss.verdict, loss.path) == ("git-status-in-system", "proved", "system[1]")
    assert loss.tokens == 14_000 - 3_000


def test_p17_arguments_sent_again_with_another_key_order(tmp_path: Path) -> None:
    def talk(*arguments: tuple[str, str]) -> list[dict[str, object]]:
        call = use(1, 300, "weather", **dict(arguments))
        return [user(text("task", 3_000)), assistant(call), user(result(1, 2_000))]

    city, unit = ("city", "Oslo"), ("unit", "C")
    more = [assistant(text("so", 300)), user(text("next", 200))]
    case = Recording().call(
        0, anthropic_usage(0, 12_300), body(talk(city, unit), tools=TOOLS, system=SYSTEM)
    )
    case.call(
        30,
        anthropic_usage(FRONT, 5_800),
        body([*talk(unit, city), *more], tools=TOOLS, system=SYSTEM),
    )
    change = diff(tmp_path, case)["first_change"]
    assert (change["path"], change["kind"]) == ("messages[1].content[0]", "key_order_only")
    loss = audit(tmp_path, case).only()
    assert (loss.name, loss.verdict) == ("key-order-in-tool-input", "proved")
    assert loss.path == "messages[1].content[0]"
    assert "key order" in loss.said
    assert loss.tokens == 12_300 - FRONT


def test_p20_thinking_flips_on_a_tool_continuation(tmp_path: Path) -> None:
    on, off = {"thinking": {"type": "adaptive"}}, {"thinking": {"type": "disabled"}}
    talk = [user(text("task", 21_114))]
    grown = [*talk, assistant(use(1, 60)), user(result(1, 65))]
    last = [*grown, assistant(text("so", 40)), user(text("next", 100))]
    case = Recording(model="claude-opus-4-8")
    case.call(0, anthropic_usage(0, 28_114), body(talk, tools=TOOLS, system=SYSTEM, **on))
    case.call(20, anthropic_usage(0, 28_239), body(grown, tools=TOOLS, system=SYSTEM, **off))
    case.call(40, anthropic_usage(28_114, 265), body(last, tools=TOOLS, system=SYSTEM, **on))
    change = diff(tmp_path, case)["first_change"]
    assert (change["path"], change["kind"]) == ("thinking", "parameter")
    found = audit(tmp_path, case)
    assert set(found.names) == {"thinking-toggled"}
    loss = found.losses[0]
    assert (loss.verdict, loss.path) == ("proved", "thinking")


def test_p20_from_usage_alone_it_is_a_setting_that_came_back(tmp_path: Path) -> None:
    case = Recording(model="claude-opus-4-8")
    case.call(0, anthropic_usage(0, 28_114)).call(20, anthropic_usage(0, 28_239))
    case.call(40, anthropic_usage(28_114, 265))
    found = audit(tmp_path, case)
    assert all(loss.verdict != "proved" for loss in found.losses)
    assert "older-prefix-read" in found.names
    told = " ".join(loss.said + loss.to_check for loss in found.losses)
    assert "switched and switched back" in told


def test_p21_a_picture_becomes_a_text_pointer(tmp_path: Path) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}
    picture = {"type": "image", "source": source, "_t": 1_600}
    pointer = text("[Image #1: pasted.png]", 30)
    long = assistant(text("a long answer", 146_231))
    front = (text("You help with code.", 83_834, **MARK),)

    def talk(shown: dict[str, object]) -> list[dict[str, object]]:
        return [user(shown, text("what is this", 86)), long]

    hour = {"ttl": "1h"}
    first = body([*talk(picture), user(text("go on", 828))], system=front)
    second = body(
        [*talk(pointer), user(text("go on", 828)), assistant(text("ok", 519)),
         user(text("next", 11_000))],
        system=front,
    )  # fmt: skip
    case = Recording()
    case.call(0, anthropic_usage(231_751, 828, **hour), first)
    case.call(30, anthropic_usage(83_834, 158_694, **hour), second)
    change = diff(tmp_path, case)["first_change"]
    assert change["path"] == "messages[0].content[0]"
    loss = audit(tmp_path, case).only()
    assert (loss.name, loss.verdict) == ("image-re-rendered", "proved")
    assert loss.path == "messages[0].content[0]"
    assert "image" in loss.said
    assert "text" in loss.said
    # Of the 158,694 written, 9,949 were new and would have been written anyway.
    assert loss.tokens == 231_751 + 828 - 83_834
    assert Decimal(loss.row["lost"]["input_equivalents"]) == Decimal("1.9") * loss.tokens


def test_p26_a_keep_alive_with_a_forced_tool_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    request = {
        "model": "claude-opus-5",
        "max_tokens": 0,
        "tools": [{"name": "read", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "tool", "name": "read"},
        "messages": [{"role": "user", "content": [{"type": "text", "text": "x", **MARK}]}],
    }
    file = tmp_path / "body.json"
    file.write_text(json.dumps(request), "utf-8")
    problems = command(tmp_path, "lint", str(file), code=1)["problems"]
    (problem,) = [one for one in problems if one["level"] == "refused"]
    assert problem["rule"] == "prewarm-conflict"
    assert "tool_choice" in problem["path"]


def forced() -> Recording:
    choice = {"tool_choice": {"type": "tool", "name": "read"}}
    talk = [user(text("task", 3_000))]
    grown = [*talk, assistant(text("a", 500)), user(text("b", 500))]
    case = Recording().call(0, anthropic_usage(0, 10_000), body(talk, tools=TOOLS, system=SYSTEM))
    return case.call(
        30, anthropic_usage(FRONT, 4_000), body(grown, tools=TOOLS, system=SYSTEM, **choice)
    )


def test_p26_whether_tool_choice_breaks_messages_is_disputed(tmp_path: Path) -> None:
    case = forced()
    loss = audit(tmp_path, case).only()
    assert (loss.name, loss.path) == ("tool-choice-toggled", "tool_choice")
    page = run(tmp_path, "explain", loss.name).stdout
    assert "disputed" in page
    documented = simulated(tmp_path, case)
    reported = simulated(tmp_path, case, "--switch", "tool_choice=nothing")
    reads = [[c["predicted"]["cache_read"] for c in d["calls"]] for d in (documented, reported)]
    assert reads == [[0, FRONT], [0, 10_000]]
    assert reported["switches"] == {"tool_choice": "nothing"}


def test_p27_a_warning_in_a_tool_description(tmp_path: Path) -> None:
    plain = tool("run", 1_500, "Runs a command.", **MARK)
    warned = tool("run", 1_520, "Runs a command. Warning: it failed 1 time.", **MARK)
    talk = [user(text("task", 3_000))]
    grown = [*talk, assistant(use(1, 100)), user(result(1, 400))]
    case = Recording().call(
        0, anthropic_usage(0, 10_000), body(talk, tools=(TOOLS[0], plain), system=SYSTEM)
    )
    case.call(20, anthropic_usage(0, 10_520), body(grown, tools=(TOOLS[0], warned), system=SYSTEM))
    change = diff(tmp_path, case)["first_change"]
    assert (change["path"], change["kind"]) == ("tools[1].description", "edited")
    assert change["byte_offset"] == len("Runs a command.")
    found = audit(tmp_path, case)
    loss = found.only()
    assert (loss.name, loss.verdict) == ("tool-description-volatile", "proved")
    assert loss.path == "tools[1].description"
    # Tools come first: everything is lost.
    assert loss.tokens == 10_000
    assert found.reads[1] == 0


def test_a_side_call_with_a_prompt_of_its_own_lost_nothing(tmp_path: Path) -> None:
    talk = [user(text("task", 9_000))]
    more = [*talk, assistant(text("a", 500)), user(text("b", 500))]
    title = body(
        [user(text("Give this a title", 2_500))],
        tools=TOOLS,
        system=(text("You write short titles.", 4_000, **MARK),),
    )
    case = Recording().call(0, anthropic_usage(0, 16_000), body(talk, tools=TOOLS, system=SYSTEM))
    case.call(10, anthropic_usage(3_000, 6_500), title)
    case.call(20, anthropic_usage(16_000, 1_000), body(more, tools=TOOLS, system=SYSTEM))
    found = audit(tmp_path, case)
    assert found.losses == []
    assert found.note("side-call-with-own-prompt").calls == ["call-2"]
    assert found.reads == [0, 3_000, 16_000]
