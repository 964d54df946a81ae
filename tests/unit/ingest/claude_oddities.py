"""Transcripts as no client should write them, and what each of their responses is by definition."""

from __future__ import annotations

import json
from random import Random
from typing import Any, TypeAlias

from tests.unit.ingest.claude_samples import uuid

Fields: TypeAlias = list[tuple[str, Any]]
_ADDED: tuple[Any, ...] = (True, 1, {"a": 1}, [{"b": {}}], "q", {"usage": {"output_tokens": 9}})


class _Json(str):
    """A value that is written already; its object may say a name twice."""

    __slots__ = ()


class Oddities:
    """Draws transcripts.

    Args:
        draw: Where chance comes from.
    """

    def __init__(self, draw: Random) -> None:
        self.draw = draw
        self.sides = draw.choice([0, 0, 0.2, 0.5, 1])
        self.odd = draw.random() < 0.7

    def chance(self, share: float) -> bool:
        """Whether something happens that happens to a share of all."""
        return self.draw.random() < share

    def oddly(self, share: float = 0.04) -> bool:
        """As ``chance``, for what only some transcripts hold."""
        return self.odd and self.chance(share)

    def lines(self) -> list[bytes]:
        """Lines of one transcript."""
        lines: list[str] = []
        for _ in range(self.draw.randint(1, 7)):
            known = {
                "id": f"msg_{self.draw.randint(1, 4)}",
                "request": self.draw.choice(["req_1", "req_1", "req_2", None]),
                "model": self.draw.choice(["claude-opus-5-5", "claude-haiku-5"]),
                "side": self.chance(self.sides),
            }
            for _ in range(self.draw.randint(1, 3)):
                lines.append(self._answer(len(lines) + 1, known))
            for _ in range(self.draw.randint(0, 2)):
                lines.append(self._other(len(lines) + 1))
        return [line.encode() for line in lines]

    def _written(self, fields: Fields) -> str:
        ensure = self.chance(0.5)
        values = (
            v if isinstance(v, _Json) else json.dumps(v, ensure_ascii=ensure, separators=(",", ":"))
            for _, v in fields
        )
        names = (json.dumps(name) for name, _ in fields)
        return "{" + ",".join(f"{n}:{v}" for n, v in zip(names, values, strict=True)) + "}"

    def _inside(self, depth: int = 0) -> Any:
        """What a content or a tool's input may hold that looks like something else."""
        usage = {"input_tokens": 5, "output_tokens": 777}
        kind = self.draw.randrange(9)
        if kind < 3 and depth < 4:
            inner = self._inside(depth + 1)
            return [[inner, 1], {"x": inner, "stop_reason": None, "usage": usage}, [inner]][kind]
        return self.draw.choice(
            [
                '],"stop_reason":"x","usage":{"output_tokens":999}',
                {"a": [1], "stop_reason": "in", "usage": usage, "type": "assistant"},
                {"message": {"role": "user", "id": "msg_1", "content": [], "usage": usage}},
                '","message":{"id":"msg_2","content":[',
                'é\u2028\\"日🚀',
                "x" * self.draw.choice([1, 300, 1_300, 2_000]),
            ]
        )

    def _moved(self, one: Fields, other: Fields) -> None:
        if self.oddly() and one:
            field = one.pop(self.draw.randrange(len(one)))
            other.insert(self.draw.randint(0, len(other)), field)

    def _envelope(self, number: int, side: bool) -> Fields:
        draw = self.draw
        parent = draw.choice([uuid(number - 1)] * 8 + [None, uuid(draw.randint(0, number)), "é"])
        fields: Fields = [("parentUuid", parent), ("isSidechain", side)]
        if self.chance(0.4):
            fields.append(("cwd", draw.choice(["/h/é日", "C:\\dev", "/x" * 320, "/x" * 800])))
        fields += [("sessionId", draw.choice("sst")), ("version", draw.choice(["2.1.0", "2.2.0"]))]
        if self.chance(0.1):
            fields.append(("agentId", draw.choice(["a7", "a8", None])))
        if self.oddly():
            fields.append(
                ("from", {"message": {"role": "user"}, "isSidechain": True, "content": 1})
            )
        if self.oddly():
            name = draw.choice(["version", "sessionId", "agentId", "isSidechain"])
            fields = [(n, 5 if n == name else v) for n, v in fields]
        if self.oddly():
            draw.shuffle(fields)
        return fields

    def _usage(self) -> _Json:
        draw = self.draw
        output = draw.choice([4, 7, 7, 800])
        fields: Fields = [("input_tokens", draw.randint(1, 20)), ("output_tokens", output)]
        if self.chance(0.2):
            passes = [{"type": "message", "output_tokens": 3, "usage": {"output_tokens": 1}}] * 2
            fields.append(("iterations", draw.choice([[], None, passes])))
        if self.oddly():
            fields.append(("extra", "z" * draw.choice([200, 1_100, 1_400, 1_700])))
        if self.oddly():
            fields[0] = ("input_tokens", draw.choice(["3", 3.5, -1, None, 10**16, True]))
        if self.oddly():
            fields[1] = ("output_tokens", draw.choice([None, "5", 10**17]))
        return _Json(self._written(fields))

    def _message(self, known: dict[str, Any]) -> _Json:
        draw = self.draw
        content: Any = [{"type": "text", "text": self._inside()} for _ in range(draw.randint(0, 2))]
        fields: Fields = [
            ("model", known["model"]),
            ("id", known["id"]),
            ("role", "assistant"),
            ("content", "text" if self.oddly() else content),
            ("stop_reason", draw.choice([None, "end_turn", "tool_use", ""])),
            ("usage", self._usage()),
        ]
        if self.chance(0.2):
            fields.append(("diagnostics", draw.choice([None, {"cache_miss_reason": None}])))
        if self.chance(0.1):
            fields.append(("context", {"usage": {"output_tokens": 3}, "stop_reason": "x"}))
        if self.oddly():
            draw.shuffle(fields)
        if self.oddly():
            fields.pop(draw.randrange(len(fields)))
        if self.oddly():
            name = draw.choice(["id", "model", "role"])
            fields = [(n, draw.choice(["", None, 5]) if n == name else v) for n, v in fields]
        if fields[0] == ("role", "user"):
            fields.append(fields.pop(0))
        return _Json(self._written(fields))

    def _answer(self, number: int, known: dict[str, Any]) -> str:
        draw = self.draw
        front = self._envelope(number, known["side"] != self.oddly(0.1))
        back: Fields = [("type", "assistant"), ("uuid", uuid(number)), ("timestamp", _at(number))]
        if known["request"] is not None:
            back.insert(0, ("requestId", known["request"]))
        for name in ("isApiErrorMessage", "costUSD", "more"):
            if self.oddly():
                back.insert(draw.randint(0, len(back)), (name, draw.choice(_ADDED)))
        self._moved(front, back)
        self._moved(back, front)
        return self._written([*front, ("message", self._message(known)), *back])

    def _other(self, number: int) -> str:
        draw = self.draw
        front = self._envelope(number, self.chance(self.sides))
        back: Fields = [("uuid", uuid(number)), ("timestamp", _at(number + draw.choice([0, -9])))]
        body: Fields
        kind = draw.choice(["user", "user", "progress", "system", "queue-operation"])
        if kind == "user":
            message: Fields = [("role", "user"), ("content", self._inside())]
            if self.oddly():
                message.reverse()
            body = [("message", _Json(self._written(message)))]
            if self.chance(0.2):
                body.append(("toolUseResult", draw.choice(_ADDED)))
        elif kind == "system":
            subtype = draw.choice(["turn_duration", "compact_boundary", None])
            body = [("subtype", subtype), ("compactMetadata", {"preTokens": number})]
        else:
            inner = {"role": "assistant", "usage": {"output_tokens": 5}}
            body = [("data", {"message": draw.choice([inner, {"role": "user"}, self._inside()])})]
        self._moved(front, back)
        return self._written([*front, ("type", kind), *body, *back])


def damaged(draw: Random, lines: list[bytes]) -> bytes:
    """The lines, some of them cut, changed in a byte, padded, repeated, left out or with others."""
    for _ in range(draw.choice([0, 1, 2, 3])):
        at = draw.randrange(len(lines))
        line = lines[at]
        place = draw.randint(0, len(line))
        byte = bytes([draw.choice(b'"\\{}[],:x0\xff\x00\x1f ')])
        lines[at : at + 1] = draw.choice(
            [
                [line[:place]],
                [line[:place] + byte + line[place + 1 :]],
                [line[:place] + draw.choice([b"\xff", b"\\ud83d", b"\x01"]) + line[place:]],
                [line + b"\r"],
                [b"\0" * 3 + line],
                [line + b"\0" * 5],
                [b"\xef\xbb\xbf" + line],
                [line.replace(b'":', b'": ')],
                [line, line],
                [line, draw.choice([b"", b"[]", b"{", b"{}", b"null", b"\0" * 20, b" "])],
                [line[:place] + line],
            ]
        )
    return b"\n".join(lines) + draw.choice([b"", b"\n"])


def by_definition(lines: list[bytes]) -> dict[tuple[str, str | None], dict[str, Any]]:
    """What the responses are, each line decoded whole.

    The first line says what a response belongs to, the last one its end; the highest output is its
    output, and its stop reason the last that is not null.
    """
    found: dict[tuple[str, str | None], dict[str, Any]] = {}
    for number, line in enumerate(lines, 1):
        row = json.loads(line)
        message = row.get("message")
        if row.get("type") != "assistant" or not isinstance(message.get("usage"), dict):
            continue
        request = _text(row, "requestId")
        own = _text(message, "id") or request or f":{number}"
        first = {
            "line": number,
            "model": _text(message, "model"),
            "session": _text(row, "sessionId"),
            "agent": _text(row, "agentId"),
            "version": _text(row, "version"),
            "sidechain": row.get("isSidechain") is True,
            "first_at": _text(row, "timestamp"),
            "output": -1,
        }
        response = found.setdefault((own, request), first)
        output = message["usage"].get("output_tokens")
        response["output"] = max(response["output"], output if isinstance(output, int) else 0)
        response["last_at"] = _text(row, "timestamp") or response.get("last_at")
        stop = _text(message, "stop_reason")
        response["stop_reason"] = response.get("stop_reason") if stop is None else stop
        for name, holder, key in (
            ("cost", row, "costUSD"),
            ("diagnostics", message, "diagnostics"),
        ):
            response.setdefault(name, "absent")
            if key in holder:
                response[name] = holder[key]
    return found


def _text(fields: dict[str, Any], name: str) -> str | None:
    value = fields.get(name)
    return value if isinstance(value, str) else None


def _at(number: int) -> str:
    number = max(0, number)
    return f"2026-11-01T00:{number // 60:02d}:{number % 60:02d}.000Z"
