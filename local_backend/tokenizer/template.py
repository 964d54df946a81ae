"""Chat templates: messages to the text that a model was tuned on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from local_backend._lazy import need
from local_backend.errors import TemplateError
from local_backend.tokenizer.base import Tokenizer


class ChatTemplate:
    """A template in the language that files bring them in.

    It runs in a sandbox and knows no clock: the same messages give the same text.

    Args:
        source: Its text.
        tokenizer: Whose control tokens it names, and that encodes what comes out.

    Raises:
        TemplateError: It cannot be parsed.
        MissingPackageError: Jinja is not installed.
    """

    def __init__(self, source: str, tokenizer: Tokenizer) -> None:
        self.source = source
        self._tokenizer = tokenizer
        self._jinja = need("jinja2", "a chat template")
        sandbox = need("jinja2.sandbox", "a chat template")
        environment = sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = _refuse
        try:
            self._template = environment.from_string(source)
        except self._jinja.TemplateError as error:
            raise TemplateError(f"the chat template cannot be parsed: {error}") from error
        self._names = {"bos_token": _name(tokenizer, tokenizer.bos)}

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        """The text of messages.

        Args:
            messages: Each with ``role`` and ``content``.
            add_generation_prompt: Whether the beginning of an answer follows.
            **variables: What else the template knows, such as ``tools``.

        Raises:
            TemplateError: The template refuses the messages, or cannot deal with them.
        """
        known = {**self._names, **variables, "add_generation_prompt": add_generation_prompt}
        try:
            return str(self._template.render(messages=list(messages), **known))
        except (self._jinja.TemplateError, TypeError, KeyError) as error:
            raise TemplateError(f"the chat template refuses the messages: {error}") from error

    def encode(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> list[int]:
        """The ids of messages.

        Names of control tokens in the messages become control tokens, as in every engine that
        encodes a rendered template.
        """
        text = self.render(messages, add_generation_prompt=add_generation_prompt, **variables)
        return self._tokenizer.encode(text)


def _name(tokenizer: Tokenizer, token: int | None) -> str:
    return "" if token is None else tokenizer.name_of(token)


def _refuse(reason: str) -> NoReturn:
    raise TemplateError(f"the chat template refuses the messages: {reason}")
