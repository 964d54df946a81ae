"""VCR cassettes; figures of public recordings, see the facts on formats."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from cacheaudit.ingest.detect import head_of
from cacheaudit.ingest.sources.vcr import SOURCE
from cacheaudit.model.call import Span
from tests.unit.ingest.wire_samples import SECRET, WIRE, examples, parts, read, request, response

ANTHROPIC = "https://api.anthropic.com/v1/messages"


def interaction(sent: Any, got: Any, uri: str = ANTHROPIC) -> dict[str, Any]:
    body = got if isinstance(got, str) else json.dumps(got)
    return {
        "request": {"method": "POST", "uri": uri, "body": json.dumps(sent), "headers": {}},
        "response": {"status": {"code": 200}, "headers": {}, "body": {"string": body}},
    }


def test_python_cassette_with_streams_and_equal_ids() -> None:
    calls, problems = read(SOURCE, WIRE / "cassette-python.yaml")
    assert [parts(c) for c in calls] == [
        (4, 0, None, None, 1167, 289),
        (4, 1167, None, None, 0, 256),
        (3, 1111, 418, 0, None, 33),
        (11, 0, None, None, 1028, 264),
    ]
    assert {c.dedupe_key for c in calls} == {None}
    assert [c.surface for c in calls] == ["claude_api"] * 3 + ["bedrock"]
    assert calls[3].model == "us.anthropic.claude-haiku-4-5-20251001-v1:0"
    assert calls[3].usage is not None
    assert calls[3].usage.total_input == 1303 - 264
    answered = 1_790_848_805.0
    assert calls[0].start_span == Span(answered - 600, answered + 1)
    assert problems == {"write_ttl_assumed": 2}


def test_ruby_cassette_with_packed_bodies() -> None:
    calls, problems = read(SOURCE, WIRE / "cassette-ruby.yml")
    assert [parts(c) for c in calls] == [
        (6165, 0, None, None, None, 5),
        (149, 6016, None, None, None, 5),
        (103, 256, None, None, None, 25),
    ]
    assert [c.usage.total_input for c in calls if c.usage] == [6165, 6165, 359]
    assert [(c.provider, c.surface) for c in calls] == [
        ("openai", "openai"),
        ("openai", "openai"),
        ("deepseek", "deepseek"),
    ]
    assert problems == {}


def test_json_cassette_with_a_binary_event_stream() -> None:
    calls, problems = read(SOURCE, WIRE / "cassette.json")
    assert [parts(c) for c in calls] == [
        (17, 0, 0, 2056, None, 100),
        (12, 1028, None, None, 0, 185),
    ]
    assert calls[1].stop_reason == "end_turn"
    assert problems == {}


def test_duplicate_field_names_are_not_added(tmp_path: Path) -> None:
    usage = {
        "inputTokens": 10,
        "outputTokens": 4,
        "totalTokens": 7365,
        "cacheReadInputTokens": 0,
        "cacheReadInputTokenCount": 0,
        "cacheWriteInputTokens": 7351,
        "cacheWriteInputTokenCount": 7351,
        "cacheDetails": [{"inputTokens": 7351, "ttl": "5m"}],
    }
    uri = (
        "https://bedrock-runtime.us-east-1.amazonaws.com/model/anthropic.claude-haiku-4-5/converse"
    )
    sent = {"messages": [{"role": "user", "content": [{"text": "A"}]}]}
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"interactions": [interaction(sent, {"usage": usage}, uri)]}))
    calls, problems = read(SOURCE, path)
    assert parts(calls[0]) == (10, 0, 7351, None, None, 4)
    assert calls[0].usage is not None
    assert calls[0].usage.total_input == 7361
    assert problems == {}


def test_no_credential_leaves_the_reader() -> None:
    for name in ("cassette-python.yaml", "cassette-ruby.yml"):
        assert SECRET in (WIRE / name).read_text()
        calls, _ = read(SOURCE, WIRE / name)
        assert all(SECRET not in repr(call) for call in calls)


def test_counts_in_headers_stand_in_for_an_elided_body(tmp_path: Path) -> None:
    uri = "https://bedrock-runtime.us-east-1.amazonaws.com/model/anthropic.claude-haiku-4-5/invoke"
    one = interaction(request("One?"), "", uri)
    one["response"]["headers"] = {
        "x-amzn-bedrock-input-token-count": ["4"],
        "x-amzn-bedrock-cache-write-input-token-count": ["18131"],
        "x-amzn-bedrock-cache-read-input-token-count": ["0"],
        "x-amzn-bedrock-output-token-count": ["50"],
    }
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"interactions": [one]}))
    calls, _ = read(SOURCE, path)
    assert parts(calls[0]) == (4, 0, None, None, 18131, 50)


def test_a_missing_yaml_package_is_said_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.import_module

    def without_yaml(name: str, package: str | None = None) -> Any:
        if name == "yaml":
            raise ModuleNotFoundError("No module named 'yaml'", name="yaml")
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", without_yaml)
    path = WIRE / "cassette-python.yaml"
    assert read(SOURCE, path) == ([], {"missing_extra": 1})
    assert "pip install 'cacheaudit[yaml]'" in examples(SOURCE, path, "missing_extra")[0]
    calls, _ = read(SOURCE, WIRE / "cassette.json")
    assert len(calls) == 2


def test_whole_interactions_of_a_truncated_cassette_are_read(tmp_path: Path) -> None:
    text = (WIRE / "cassette-python.yaml").read_text()
    path = tmp_path / "cut.yaml"
    path.write_text(text[: text.rindex('"toolUse"') if '"toolUse"' in text else len(text) - 400])
    calls, problems = read(SOURCE, path)
    assert [parts(c) for c in calls[:3]] == [
        (4, 0, None, None, 1167, 289),
        (4, 1167, None, None, 0, 256),
        (3, 1111, 418, 0, None, 33),
    ]
    assert problems


def test_damage_is_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    good = interaction(request("One?"), response("m1"))
    document = {
        "interactions": [
            good,
            "text",
            {"request": {}, "response": {}},
            interaction(request("One?"), "no json at all"),
            interaction({"messages": 1}, response("m2")),
            interaction(request("One?"), response("m3", input_tokens=-2)),
            interaction(request("One?"), response("m4", input_tokens=[2])),
            good,
        ]
    }
    path = tmp_path / "c.json"
    path.write_text(json.dumps(document))
    calls, problems = read(SOURCE, path)
    assert [c.id for c in calls] == ["m1", "c#4", "m2", "m3", "m4", "m1"]
    assert parts(calls[-1]) == (3, 0, None, None, 0, 9)
    assert problems == {
        "wrong_type": 3,
        "missing_usage": 1,
        "bad_body": 1,
        "negative_part": 1,
    }


def test_foreign_tags_and_bad_bytes(tmp_path: Path) -> None:
    text = (WIRE / "cassette-ruby.yml").read_text()
    tagged = tmp_path / "tagged.yml"
    tagged.write_text(text.replace("message: OK", "message: !ruby/symbol ok"))
    assert len(read(SOURCE, tagged)[0]) == 3
    mixed = tmp_path / "mixed.yml"
    mixed.write_bytes(text.replace("message: OK", "message: 'na\xefve'").encode("latin-1"))
    calls, problems = read(SOURCE, mixed)
    assert len(calls) == 3
    assert problems == {"encoding": 1}


def test_other_yaml_is_not_claimed(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("services:\n  web:\n    image: x\n")
    assert SOURCE.detect(head_of(path)) == 0


@pytest.mark.parametrize(
    "date", ["Mon, 05 Oct 99999999999999999999 10:00:00 GMT", "Mon, 05 Oct 9999 10:00:00 GMT", "?"]
)
def test_a_date_beyond_any_calendar_is_not_known(tmp_path: Path, date: str) -> None:
    interaction = {
        "request": {"method": "POST", "uri": "https://api.anthropic.com/v1/messages", "body": "{}"},
        "response": {
            "status": {"code": 200},
            "headers": {"date": [date]},
            "body": {"string": json.dumps(response("msg_1"))},
        },
        "recorded_at": date,
    }
    path = tmp_path / "cassette.json"
    path.write_text(json.dumps({"interactions": [interaction], "version": 1}))
    (call,), _ = read(SOURCE, path)
    assert call.start_span is None
    assert call.usage is not None
