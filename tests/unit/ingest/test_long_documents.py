"""Long documents are read record by record, and give what they give when decoded at once."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheaudit.ingest import documents, long_documents
from cacheaudit.ingest.detect import recognise
from cacheaudit.ingest.problems import Problems
from tests.unit.ingest.wire_samples import WIRE

TEXTS = st.text(st.sampled_from('ab"\\{}[],: é\n'), max_size=8)
VALUES = st.recursive(
    TEXTS | st.integers() | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)
RECORDS = st.lists(st.dictionaries(TEXTS, VALUES, max_size=3) | st.lists(VALUES, max_size=2))
SMALL = st.integers(1, 9)


def elements(document: str, keys: tuple[str, ...], chunk: int) -> list[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_documents, "_CHUNK", chunk)
        stream = io.BytesIO(document.encode())
        return [json.loads(raw) for raw in long_documents.listed(stream, keys)]


@settings(deadline=None)
@given(records=RECORDS, front=VALUES, behind=VALUES, indent=st.sampled_from([None, 1]), chunk=SMALL)
def test_every_record_is_found_whatever_stands_around_it(
    records: list[Any], front: Any, behind: Any, indent: int | None, chunk: int
) -> None:
    inner = {"front": front, "entries": records, "log": behind}
    for document, keys in (
        (records, ()),
        (records, ("log", "entries")),
        ({"front": front, "log": inner}, ("log", "entries")),
        (inner, ("entries",)),
    ):
        text = json.dumps(document, indent=indent, ensure_ascii=False)
        assert elements(text, keys, chunk) == records


@settings(deadline=None)
@given(records=RECORDS.filter(bool), cut=st.integers(1, 400), chunk=SMALL)
def test_a_document_that_is_cut_off_gives_the_records_that_are_whole(
    records: list[Any], cut: int, chunk: int
) -> None:
    text = json.dumps({"entries": records})
    text = text[: max(text.index("[") + 1, len(text) - 1 - cut)]
    found: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_documents, "_CHUNK", chunk)
        pieces = long_documents.listed(io.BytesIO(text.encode()), ("entries",))
        with pytest.raises(long_documents.CutOffError):
            found.extend(map(json.loads, pieces))
    assert found == records[: len(found)]
    whole = [json.dumps(record) for record in records]
    assert len(found) == sum(
        len(text) >= len('{"entries": [') + len(", ".join(whole[: n + 1]))
        for n in range(len(whole))
    )


@pytest.mark.parametrize(
    "document", ['{"a": [1]}', "{}", '"entries"', '{"x": {"entries": []}}', ""]
)
def test_a_document_without_the_list_says_so(document: str) -> None:
    with pytest.raises(long_documents.NoListError):
        elements(document, ("entries",), 4)


def test_samples_read_in_pieces_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("browser.har", "capture-records.json", "cassette.json", "langfuse-trace.json")
    for path in [WIRE / name for name in (*names, "spans-console.json")]:
        source = recognise(path)
        assert source is not None
        at_once = list(source.read(path, Problems()))
        with monkeypatch.context() as patch:
            patch.setattr(documents, "LONG", 0)
            in_pieces = list(source.read(path, Problems()))
        assert at_once
        assert [(c.id, c.usage, c.at) for c in in_pieces] == [
            (c.id, c.usage, c.at) for c in at_once
        ], path


def test_what_is_broken_in_a_long_document_is_counted_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "LONG", 0)
    path = tmp_path / "x.json"
    path.write_bytes(
        b'{\n"records": [\n{"a": 1}, [2], {"a": }, {"a": "\xff"}, "five",\n{"a": 6}, {"a": 7'
    )
    problems = Problems()
    found = list(documents.json_records(path, problems, "records"))
    assert found == [(1, {"a": 1}), (4, {"a": "\ufffd"}), (6, {"a": 6})]
    counted = {kind: examples for kind, _, examples in problems.items()}
    assert [e.partition(": ")[0] for e in counted["wrong_type"]] == [f"{path}:2", f"{path}:5"]
    assert counted["invalid_json"][0].startswith(f"{path}:3")
    assert counted["encoding"][0].startswith(f"{path}:4")
    assert counted["truncated_document"] == (f"{path}: ends behind record 6",)
