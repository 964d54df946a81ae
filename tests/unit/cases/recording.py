"""Builds recorded sessions as users have them, and asks the command line what it makes of them.

A content block carries its size under ``_t`` while a body is put together; `Recording` takes the
sizes out again and writes them as ``content_tokens``. Every figure of usage is given by the case,
none comes from a simulation.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.unit.cli.helpers import run

START = 1_792_000_000.0  # 2026-10-14T17:46:40Z
MARK: dict[str, Any] = {"cache_control": {"type": "ephemeral"}}
HOUR: dict[str, Any] = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
Json = dict[str, Any]


def text(content: str, tokens: int, **more: Any) -> Json:
    """A text block."""
    return {"type": "text", "text": content, "_t": tokens, **more}


def tool(name: str, tokens: int, description: str | None = None, **more: Any) -> Json:
    """A tool definition with one argument."""
    schema = {"type": "object", "properties": {"x": {"type": "string"}}}
    about = description or f"The tool {name}."
    return {"name": name, "description": about, "input_schema": schema, "_t": tokens, **more}


def use(number: int, tokens: int, name: str = "run", **arguments: Any) -> Json:
    """A tool call."""
    given = arguments or {"x": f"value {number}"}
    return {"type": "tool_use", "id": f"t{number}", "name": name, "input": given, "_t": tokens}


def result(number: int, tokens: int, **more: Any) -> Json:
    """What a tool returned."""
    about = f"result {number}"
    return {"type": "tool_result", "tool_use_id": f"t{number}", "content": about, "_t": tokens} | (
        more
    )


def user(*blocks: Json) -> Json:
    """A user message."""
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Json) -> Json:
    """An assistant message."""
    return {"role": "assistant", "content": list(blocks)}


def body(
    messages: Sequence[Json],
    *,
    tools: Sequence[Json] = (),
    system: Sequence[Json] = (),
    last: bool = True,
    **settings: Any,
) -> Json:
    """A Messages body; ``last`` marks its last content block."""
    made: Json = {"max_tokens": 4_000, **settings}
    if tools:
        made["tools"] = list(tools)
    if system:
        made["system"] = list(system)
    made["messages"] = list(messages)
    made = copy.deepcopy(made)
    if last:
        made["messages"][-1]["content"][-1].update(MARK)
    return made


def anthropic_usage(
    read: int, written: int, uncached: int = 0, output: int = 100, ttl: str = "5m"
) -> Json:
    """Usage as the Messages API sends it."""
    return {
        "input_tokens": uncached,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        "cache_creation": {
            "ephemeral_5m_input_tokens": written if ttl == "5m" else 0,
            "ephemeral_1h_input_tokens": written if ttl == "1h" else 0,
        },
        "output_tokens": output,
    }


def openai_usage(total: int, cached: int, output: int = 100) -> Json:
    """Usage as Chat Completions sends it."""
    return {
        "prompt_tokens": total,
        "completion_tokens": output,
        "total_tokens": total + output,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


class Recording:
    """Calls of one file, in the order in which they are added."""

    def __init__(
        self,
        *,
        provider: str = "anthropic",
        surface: str = "claude_api",
        model: str = "claude-opus-5",
        session: str = "case",
    ) -> None:
        self._common = {"provider": provider, "surface": surface, "model": model}
        self._session = session
        self.lines: list[Json] = []

    def call(
        self,
        at: float,
        usage: Json | None,
        request: Json | None = None,
        *,
        seconds: float = 8.0,
        **fields: Any,
    ) -> Recording:
        """Add a call that started ``at`` seconds after the first moment."""
        number = len(self.lines) + 1
        line: Json = {
            "schema": "cacheaudit.call/1",
            "id": f"call-{number}",
            "session": self._session,
            "lane": "main",
            "purpose": "main",
            **self._common,
            "started_at": START + at,
            "first_token_at": START + at + min(1.0, seconds),
            "ended_at": START + at + seconds,
            "attempt": 0,
        }
        if request is not None:
            sizes: list[int] = []
            model = fields.get("model", self._common["model"])
            line["request"] = {"model": model, **_taken(request, sizes)}
            line["content_tokens"] = sizes
        if usage is not None:
            line["response"] = {"id": f"msg_{number}", "usage": usage}
        line.update(fields)
        self.lines.append(line)
        return self

    def save(self, folder: Path, name: str = "case") -> Path:
        """Write the file."""
        file = folder / f"{name}.session.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in self.lines), "utf-8")
        return file


def _taken(request: Mapping[str, Any], sizes: list[int]) -> Json:
    """Copy a body without its sizes; they are collected in render order."""
    made = copy.deepcopy(dict(request))
    system = made.get("system")
    sizes.extend(block.pop("_t") for block in made.get("tools", ()))
    sizes.extend(block.pop("_t") for block in (system if isinstance(system, list) else ()))
    for message in made["messages"]:
        content = message.get("content")
        parts = [message] if isinstance(content, str) else content
        sizes.extend(part.pop("_t") for part in parts)
    return made


class Found:
    """A finding, with short names."""

    def __init__(self, row: Json) -> None:
        self.row = row
        self.name: str = row["name"]
        self.verdict: str = row["verdict"]
        self.evidence: str = row["evidence"]
        self.calls: list[str] = row["calls"]
        self.tokens: int = row["tokens_lost"]
        self.rivals = {rival["rule"] for rival in row["rivals"]}
        self.place: Json = row["first_change"] or {}
        self.path: str | None = self.place.get("path")
        self.fix: Json = row["fix"] or {}

    @property
    def said(self) -> str:
        """Everything that is stated as established."""
        return " ".join((self.row["title"], *self.row["established"]))

    @property
    def to_check(self) -> str:
        """Everything that remains to be checked."""
        return " ".join(self.row["to_check"])

    def __repr__(self) -> str:
        return f"{self.name}/{self.verdict}/{self.evidence} {self.calls} {self.tokens}"


class Audit:
    """The JSON of `cacheaudit audit`."""

    def __init__(self, document: Json) -> None:
        self.document = document
        self.findings = [Found(row) for row in document["findings"]]
        self.losses = [found for found in self.findings if found.row["kind"] == "loss"]
        self.notes = [found for found in self.findings if found.row["kind"] == "note"]
        assert not [found for found in self.findings if found.row["kind"] == "error"]

    def only(self) -> Found:
        """The only loss."""
        assert len(self.losses) == 1, self.losses
        return self.losses[0]

    def loss(self, name: str) -> Found:
        """The loss with that name."""
        (found,) = [one for one in self.losses if one.name == name]
        return found

    def note(self, name: str) -> Found:
        """The note with that name."""
        (found,) = [one for one in self.notes if one.name == name]
        return found

    @property
    def names(self) -> list[str]:
        """Names of the losses, dearest first."""
        return [found.name for found in self.losses]

    @property
    def reads(self) -> list[int | None]:
        """Predicted reads, call by call."""
        rows = self.document["calls"]
        return [row["predicted"] and row["predicted"]["cache_read"] for row in rows]


def command(folder: Path, *args: str, code: int = 0) -> Json:
    """Run a command with ``--json``."""
    result = run(folder, *args, "--json", "--quiet")
    assert result.exit_code == code, (result.exit_code, result.output[-2_000:])
    return json.loads(result.stdout)  # type: ignore[no-any-return]


def audit(folder: Path, *files: Recording | Path, **options: Any) -> Audit:
    """Audit recordings."""
    paths = [
        str(file if isinstance(file, Path) else file.save(folder, f"case-{number}"))
        for number, file in enumerate(files)
    ]
    return Audit(command(folder, "audit", *paths, **options))


def diff(folder: Path, file: Recording, first: int = 1, second: int = 2) -> Json:
    """Compare two requests of a recording."""
    path = file.save(folder)
    return command(folder, "diff", f"{path}#call-{first}", f"{path}#call-{second}")


def simulated(folder: Path, file: Recording | Path, *options: str) -> Json:
    """Simulate a recording."""
    path = file if isinstance(file, Path) else file.save(folder)
    return command(folder, "simulate", str(path), *options)


def money(value: str | None) -> Decimal:
    """An amount of a result."""
    assert value is not None
    return Decimal(value)
