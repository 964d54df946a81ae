"""What stands around content: what a chat template writes, and nothing that depends on the rest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_backend.errors import TemplateError
from local_backend.server.frames import Frame, frame_of
from local_backend.server.render import Renderer
from local_backend.server.request import parse_request
from local_backend.tokenizer.byte_level import ByteTokenizer
from local_backend.tokenizer.special import NameFinder
from local_backend.tokenizer.template import ChatTemplate

CONTROL = ("<|im_start|>", "<|im_end|>", "<bos>", "<turn>", "<end>")


class Letters:
    """A tokenizer with a token a character, and control tokens by name."""

    vocab_size = 2_000_000
    bos: int | None = 1_500_002
    adds_bos = False
    stops = frozenset({1_500_001})
    special = frozenset(range(1_500_000, 1_500_005))

    def __init__(self) -> None:
        self._names = {name: 1_500_000 + n for n, name in enumerate(CONTROL)}
        self._finder = NameFinder(self._names)

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        if not special:
            return list(map(ord, text))
        parts = self._finder(text)
        return [i for p in parts for i in ([p] if isinstance(p, int) else map(ord, p))]

    def id_of(self, name: str) -> int | None:
        return self._names.get(name)

    def name_of(self, token: int) -> str:
        return CONTROL[token - 1_500_000] if token in self.special else chr(token)

    def piece(self, token: int) -> bytes:
        return b"" if token in self.special else chr(token).encode()

    def decode(self, tokens: Iterable[int]) -> str:
        return b"".join(map(self.piece, tokens)).decode()


LETTERS = Letters()
SPOKEN = (
    "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nBe kind<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
NO_SYSTEM = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('turns') }}{% endif %}"
    "<turn>{{ 'model' if m['role'] == 'assistant' else m['role'] }}\n"
    "{{ m['content'] | trim }}<end>\n"
    "{% endfor %}{% if add_generation_prompt %}<turn>model\n{% endif %}"
)
TEMPLATES = {"spoken": SPOKEN, "no system": NO_SYSTEM}


def template(name: str) -> ChatTemplate:
    return ChatTemplate(TEMPLATES[name], LETTERS)


def tokens(frame: Frame, body: dict[str, Any]) -> tuple[tuple[int, ...], int]:
    """All tokens, and how many of them stand behind the last content block."""
    tokenizer = ByteTokenizer() if frame.media else LETTERS
    rendered = Renderer(tokenizer, frame).render(parse_request(body), "m")
    return rendered.prompt.tokens, rendered.tail


def body(*messages: tuple[str, str], **more: Any) -> dict[str, Any]:
    turns = [{"role": role, "content": content} for role, content in messages]
    return {"model": "m", "max_tokens": 1, "messages": turns, **more}


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("count", [1, 3, 5])
def test_conversations_look_as_the_template_makes_them(name: str, count: int) -> None:
    made = template(name)
    turns = [("assistant" if n % 2 else "user", f"text {n}") for n in range(count)]
    wanted = made.encode([{"role": r, "content": c} for r, c in turns])
    assert tokens(frame_of(LETTERS, made), body(*turns))[0] == tuple(wanted)


def test_a_system_prompt_has_its_turn() -> None:
    made = template("spoken")
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    found, _ = tokens(frame_of(LETTERS, made), body(("user", "u"), system="s"))
    assert found == tuple(made.encode(messages))


def test_without_such_a_turn_it_opens_the_users() -> None:
    found, _ = tokens(frame_of(LETTERS, template("no system")), body(("user", "u"), system="s"))
    assert found == tuple(LETTERS.encode("<bos><turn>user\ns\n\nu<end>\n<turn>model\n"))


def test_a_conversation_that_ends_with_the_assistant_goes_on() -> None:
    asked = body(("user", "u"), ("assistant", "so"))
    found, tail = tokens(frame_of(LETTERS, template("no system")), asked)
    assert found == tuple(LETTERS.encode("<bos><turn>user\nu<end>\n<turn>model\nso"))
    assert tail == 0


def test_without_a_template_there_are_names() -> None:
    found, _ = tokens(frame_of(LETTERS, None), body(("user", "u"), system="s"))
    assert LETTERS.decode(found) == "s\n\nUser: u\n\nAssistant:"


def test_a_template_that_hides_messages_is_refused() -> None:
    with pytest.raises(TemplateError, match="does not show a message as it is"):
        frame_of(LETTERS, ChatTemplate("{{ messages | length }}", LETTERS))


FRAMES = {
    "bytes": frame_of(ByteTokenizer(), None),
    "names": frame_of(LETTERS, None),
    **{name: frame_of(LETTERS, template(name)) for name in TEMPLATES},
}
_turns = st.lists(
    st.tuples(
        st.sampled_from(["user", "assistant", "system"]),
        st.lists(st.text("ab<|", min_size=1, max_size=3), min_size=1, max_size=3),
    ),
    min_size=2,
    max_size=6,
)


@pytest.mark.parametrize("name", FRAMES)
@given(turns=_turns, system=st.booleans(), cut=st.integers(1, 5))
def test_a_prefix_does_not_depend_on_what_follows(
    name: str, turns: list[tuple[str, list[str]]], system: bool, cut: int
) -> None:
    def asked(count: int, last: int | None = None) -> dict[str, Any]:
        messages = []
        for number, (role, texts) in enumerate(turns[:count], 1):
            kept = texts[:last] if number == count else texts
            blocks = [{"type": "text", "text": text} for text in kept]
            messages.append({"role": role, "content": blocks})
        more = {"system": "sys"} if system else {}
        return {"model": "m", "max_tokens": 1, "messages": messages, **more}

    whole, _ = tokens(FRAMES[name], asked(len(turns)))
    for last in (1, None):
        part, tail = tokens(FRAMES[name], asked(min(cut, len(turns)), last))
        kept = part[: len(part) - tail]
        assert whole[: len(kept)] == kept
