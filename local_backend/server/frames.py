"""What stands around the content of a conversation, so that a model knows who speaks.

A frame never adds anything behind a content block: what ends a turn belongs to the next one. So
the prompt up to a content block is the same whatever follows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from local_backend.errors import TemplateError
from local_backend.tokenizer.base import Tokenizer
from local_backend.tokenizer.byte_level import ByteTokenizer
from local_backend.tokenizer.template import ChatTemplate

SYSTEM, USER, ASSISTANT = "system", "user", "assistant"
_MARKS = ("Qx0Zq", "Qx1Zq", "Qx2Zq")


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Texts that name control tokens, by the roles on both sides.

    Attributes:
        begin: Before the first turn, by its role.
        between: Between two turns, by their roles. A pair that is missing has nothing between.
        answer: Behind the last turn, by its role, so that the model answers.
        block: Between two content blocks of one turn.
        late_system: Role that a system message in the middle of a conversation takes.
        media: Name of the token that stands for a picture; None for one of the ordinary ones.
    """

    begin: Mapping[str, str]
    between: Mapping[tuple[str, str], str]
    answer: Mapping[str, str]
    block: str = ""
    late_system: str = USER
    media: str | None = None

    @property
    def drifts(self) -> bool:
        """Whether an answer stands behind another text in later turns than when it was given.

        What the engine keeps of an answer is then never found by the turn that follows it.
        """
        return self.answer.get(USER, "") != self.between.get((USER, ASSISTANT), "")


def _byte_frame() -> Frame:
    """One token where the speaker changes, and nothing else."""
    names = {role: f"<|{role}|>" for role in (SYSTEM, USER, ASSISTANT)}
    return Frame(
        begin=names,
        between={(a, b): names[b] for a in names for b in names if a != b},
        answer={SYSTEM: names[ASSISTANT], USER: names[ASSISTANT]},
        late_system=SYSTEM,
        media="<|image|>",
    )


def _plain_frame() -> Frame:
    """For a model without a template: names of speakers as text."""
    names = {SYSTEM: "", USER: "User: ", ASSISTANT: "Assistant: "}
    return Frame(
        begin=names,
        between={(a, b): f"\n\n{names[b]}" for a in names for b in names},
        answer={SYSTEM: "\n\nAssistant:", USER: "\n\nAssistant:"},
    )


def frame_of(tokenizer: Tokenizer, template: ChatTemplate | None) -> Frame:
    """The frame of a model.

    Where there is a chat template, it is asked what it writes around short conversations.

    Raises:
        TemplateError: The template drops or rewrites what it is given.
    """
    if isinstance(tokenizer, ByteTokenizer):
        return _byte_frame()
    if template is None:
        return _plain_frame()
    return _from_template(template)


def _from_template(template: ChatTemplate) -> Frame:
    turns = _pieces(template, (USER, ASSISTANT, USER))
    to_assistant, to_user, answer = turns[1], turns[2], turns[3]
    begin = {USER: turns[0], ASSISTANT: turns[0] + to_assistant}
    between = {
        (USER, ASSISTANT): to_assistant,
        (ASSISTANT, USER): to_user,
        (USER, USER): "\n\n",
        (ASSISTANT, ASSISTANT): "\n\n",
    }
    try:
        first, to_first, _ = _pieces(template, (SYSTEM, USER))
    except TemplateError:  # no system turn: it opens the user's
        first, to_first = turns[0], "\n\n"
    begin[SYSTEM] = first
    between[SYSTEM, USER] = to_first
    between[SYSTEM, ASSISTANT] = to_first + to_assistant
    return Frame(begin=begin, between=between, answer={USER: answer}, block="\n")


def _pieces(template: ChatTemplate, roles: Sequence[str]) -> list[str]:
    """What a template writes before, between and behind the contents of a conversation."""
    marks = _MARKS[: len(roles)]
    messages = [{"role": r, "content": m} for r, m in zip(roles, marks, strict=True)]
    rest, found = template.render(messages), []
    for mark in marks:
        before, seen, rest = rest.partition(mark)
        if not seen:
            raise TemplateError("the chat template does not show a message as it is")
        found.append(before)
    return [*found, rest]
