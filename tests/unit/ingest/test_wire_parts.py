"""The parts that the recording sources share: tables, documents, packed bodies, lanes."""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from pathlib import Path
from typing import Any

import brotli
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cacheaudit.ingest.answers import read_answer, short_message
from cacheaudit.ingest.documents import json_records
from cacheaudit.ingest.endpoints import endpoint_of, provider_of_model
from cacheaudit.ingest.lanes import Lanes
from cacheaudit.ingest.lifetimes import with_assumed_ttl
from cacheaudit.ingest.problems import Problems
from cacheaudit.ingest.rows import is_json
from cacheaudit.ingest.tables import normal_name, table_rows
from cacheaudit.ingest.unpack import UnpackError, decompress, header
from cacheaudit.model.prompt import Prompt
from cacheaudit.model.usage import FLAG_TTL_ASSUMED, Usage
from cacheaudit.providers.registry import expand
from tests.unit.ingest.wire_samples import request


def prompt(*texts: str, **more: Any) -> Prompt:
    return expand(request(*texts, **more))


LINE = st.text('ab",;|é', min_size=1, max_size=6)
CELL = st.lists(LINE, max_size=3).map("\n".join)


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.tuples(CELL, CELL, CELL), min_size=1, max_size=8))
def test_quoted_cells_survive(tmp_path: Path, rows: list[tuple[str, str, str]]) -> None:
    def quoted(cell: str) -> str:
        return '"' + cell.replace('"', '""') + '"'

    text = "a,b,c\n" + "".join(",".join(map(quoted, row)) + "\n" for row in rows)
    path = tmp_path / "t.csv"
    path.write_text(text, encoding="utf-8", newline="")
    problems = Problems()
    found = [tuple(cells.values()) for _, cells in table_rows(path, problems)]
    assert found == rows
    assert not problems


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cacheReadTokens", "cache_read_tokens"),
        ("Cache-Read Tokens ", "cache_read_tokens"),
        ("cache_read_tokens", "cache_read_tokens"),
        ("prompt_tokens_details.cached_tokens", "prompt_tokens_details_cached_tokens"),
        ("traceId", "trace_id"),
        ("startTime", "start_time"),
    ],
)
def test_names_are_normalised(name: str, expected: str) -> None:
    assert normal_name(name) == expected


RECORDS: list[dict[str, Any]] = [
    {"n": 1, "s": "a{[\"'"},
    {"n": 2},
    {"n": 3, "deep": {"x": [1, {}]}},
]


@pytest.mark.parametrize(
    "text",
    [
        "".join(json.dumps(r) + "\n" for r in RECORDS),
        json.dumps(RECORDS),
        json.dumps(RECORDS, indent=2),
        json.dumps({"data": RECORDS}),
        json.dumps({"meta": [0], "data": RECORDS}, indent=1),
        "\n".join(json.dumps(r, indent=4) for r in RECORDS),
        "\ufeff" + json.dumps({"data": RECORDS}, indent=1),
    ],
)
def test_records_are_found_in_every_form(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text, encoding="utf-8")
    problems = Problems()
    assert [record for _, record in json_records(path, problems, "data")] == RECORDS
    assert not problems


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(min_value=1, max_value=400))
def test_a_cut_document_gives_a_prefix_of_its_records(tmp_path: Path, cut: int) -> None:
    text = json.dumps({"data": [*RECORDS, *RECORDS]}, indent=1)
    path = tmp_path / "x.json"
    path.write_text(text[: max(0, len(text) - cut)])
    found = [record for _, record in json_records(path, Problems(), "data")]
    whole = [*RECORDS, *RECORDS]
    if found != [json.loads(text)] and cut < len(text) - 12:
        assert found == whole[: len(found)]


@pytest.mark.parametrize(
    "data",
    [
        gzip.compress(b'{"a": 1}', mtime=0),
        zlib.compress(b'{"a": 1}'),
        zlib.compress(b'{"a": 1}')[2:-4],
        b'{"a": 1}',
    ],
)
def test_encodings_are_undone(data: bytes) -> None:
    encoding = None if data.startswith((b"\x1f\x8b", b"{")) else "deflate"
    assert decompress(data, encoding) == b'{"a": 1}'
    assert decompress(b'{"a": 1}', "gzip") == b'{"a": 1}'
    assert decompress(brotli.compress(b'{"a": 1}'), "br") == b'{"a": 1}'
    assert decompress(b'{"a": 1}', "br") == b'{"a": 1}'


def test_brotli_without_its_extra_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "brotli", None)
    with pytest.raises(UnpackError, match=r"pip install 'cacheaudit\[brotli\]'"):
        decompress(b"\x8b\x02\x80", "br")


def test_what_cannot_be_unpacked_says_why() -> None:
    with pytest.raises(UnpackError, match="cut off"):
        decompress(gzip.compress(b"x" * 1000)[:-12])
    with pytest.raises(UnpackError, match="damaged"):
        decompress(b"\xff\xff\xff\xff", "br")
    with pytest.raises(UnpackError, match="cut off"):
        decompress(brotli.compress(b"x" * 1000)[:-3], "br")
    with pytest.raises(UnpackError, match="over 256 MiB"):
        decompress(brotli.compress(b"\0" * (257 << 20), quality=1), "br")
    with pytest.raises(UnpackError, match="over 256 MiB"):
        decompress(gzip.compress(b"\0" * (257 << 20), compresslevel=1))


def test_headers_of_every_shape() -> None:
    headers: Any
    for headers in ({"Date": "x"}, {"date": ["x"]}, [{"name": "DATE", "value": "x"}]):
        assert header(headers, "date") == "x"
    for headers in (None, 3, [], {}, {"date": 3}, [{"name": "date"}]):
        assert header(headers, "date") is None


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://api.anthropic.com/v1/messages", ("anthropic", "claude_api", True)),
        ("https://api.anthropic.com/v1/messages/count_tokens", ("anthropic", "claude_api", False)),
        ("https://api.anthropic.com/v1/messages/batches", ("anthropic", "claude_api", False)),
        ("https://api.openai.com/v1/embeddings", ("openai", "openai", False)),
        ("https://chatgpt.com/backend-api/codex/responses", ("openai", "openai", True)),
        ("https://api.moonshot.ai/v1/chat/completions", ("moonshot", "other", True)),
        (
            "https://dashscope-intl.aliyuncs.com/compatible-mode/v1/chat/completions",
            ("qwen", "other", True),
        ),
        ("https://user:pass@api.x.ai/v1/responses", ("xai", "other", True)),
        ("https://evil-api.anthropic.com.example/v1/messages", (None, "other", True)),
        ("https://example.com/", (None, None, None)),
        ("http://[bad", (None, None, None)),
        (None, (None, None, None)),
    ],
)
def test_endpoints(url: str | None, expected: tuple[Any, ...]) -> None:
    found = endpoint_of(url)
    assert (found.provider, found.surface, found.is_model_call) == expected


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("claude-opus-5", "anthropic"),
        ("us.anthropic.claude-haiku-4-5-20251001-v1:0", "anthropic"),
        ("openrouter/anthropic/claude-opus-5", "anthropic"),
        ("amazon.nova-pro-v1:0", "amazon"),
        ("models/gemini-3.8-flash", "gemini"),
        ("gpt-5.6-sol", "openai"),
        ("something-else", None),
        ("", None),
        (None, None),
    ],
)
def test_makers_of_models(model: str | None, provider: str | None) -> None:
    assert provider_of_model(model) == provider


def test_a_conversation_stays_in_its_lane() -> None:
    lanes = Lanes()
    tools = [{"name": "read", "input_schema": {}}]
    steps = [
        (prompt("One?", tools=tools), "main"),
        (prompt("One?", "Yes.", "Two?", tools=tools), "main"),
        (prompt("Name this.", system="You write titles."), "side-1"),
        (prompt("Look there.", system="You are a scout.", tools=tools), "side-2"),
        (prompt("One?", "Yes.", "Two?", "No.", "Three?", tools=tools), "main"),
        (prompt("Look there.", "Seen.", "More.", system="You are a scout.", tools=tools), "side-2"),
        (prompt("Another topic.", tools=tools), "main"),
    ]
    for body, expected in steps:
        lane = lanes.guess("s", body)
        assert lane == expected
        lanes.remember("s", lane, body)
    assert lanes.guess("other", steps[0][0]) == "main"


def test_a_clock_in_the_system_prompt_does_not_split_a_conversation() -> None:
    lanes = Lanes()
    text = "You are an agent. The time is {}. " + "Be careful with files. " * 20
    for second in range(5):
        body = prompt(f"Question {second}", system=text.format(f"10:00:0{second}"))
        lane = lanes.guess("s", body)
        assert lane == "main"
        lanes.remember("s", lane, body)


def test_a_reminder_that_all_agents_share_does_not_join_them() -> None:
    lanes = Lanes()

    def body(system: str, task: str) -> Prompt:
        blocks = [{"type": "text", "text": "reminder"}, {"type": "text", "text": task}]
        return expand(
            {"model": "m", "system": system, "messages": [{"role": "user", "content": blocks}]}
        )

    first = body("You are the main agent of this project.", "Build it.")
    lanes.remember("s", lanes.guess("s", first), first)
    assert lanes.guess("s", body("Search only; never write a thing.", "Find it.")) == "side-1"


def test_forgotten_lanes_are_bounded() -> None:
    lanes = Lanes(kept=3)
    for number in range(10):
        lanes.remember("s", f"l{number}", prompt(f"{number}"))
    assert lanes.previous("s", "l0") is None
    assert lanes.previous("s", "l9") is not None
    assert lanes.previous("s") is lanes.previous("s", "l9")


def marked(ttl: str | None) -> Prompt:
    control = {"type": "ephemeral"} if ttl is None else {"type": "ephemeral", "ttl": ttl}
    return prompt("One?", system=[{"type": "text", "text": "S", "cache_control": control}])


@pytest.mark.parametrize(
    ("sent", "provider", "model", "expected"),
    [
        (marked("1h"), "anthropic", "claude-opus-5", "1h"),
        (marked(None), "anthropic", "claude-opus-5", "5m"),
        (None, "anthropic", None, "5m"),
        (None, None, "claude-opus-5", "5m"),
        (None, "openai", "gpt-5.6-sol", "30m"),
        (None, None, None, "5m"),
        (None, "deepseek", "deepseek-chat", None),
        (None, None, "unheard-of", None),
    ],
)
def test_lifetime_of_unlabelled_writes(
    sent: Prompt | None, provider: str | None, model: str | None, expected: str | None
) -> None:
    found = with_assumed_ttl(Usage(write_other=10), sent, provider, model)
    assert found is not None
    assert found.write_other_ttl == expected
    assert (FLAG_TTL_ASSUMED in found.flags) == (expected is not None)
    certain = Usage(write_5m=10)
    assert with_assumed_ttl(certain, sent, provider, model) is certain


def test_error_messages_are_cut_and_lose_keys() -> None:
    found = short_message("Incorrect API key provided: sk-abcdefgh12345678. " + "x" * 500)
    assert found is not None
    assert "sk-abcdefgh" not in found
    assert len(found) <= 200
    answer = read_answer({"error": {"type": "t", "message": "y" * 999}})
    assert answer.error is not None
    assert answer.error.message == "y" * 200


@pytest.mark.parametrize("first", ["null", '{"n": 0, "cut": [', '{"n": 0, ', "tail, of, a line}"])
def test_a_damaged_first_line_hides_no_record(tmp_path: Path, first: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(first + "\n" + "".join(json.dumps(r) + "\n" for r in RECORDS))
    problems = Problems()
    assert is_json(path)
    assert [record for _, record in json_records(path, problems, "data")] == RECORDS
    assert sum(count for _, count, _ in problems.items()) == (first != "null")
