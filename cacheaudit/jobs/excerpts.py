"""What stood at a change and what stands there now, cut to its surroundings and masked."""

from __future__ import annotations

import msgspec

from cacheaudit.model.change import Change, equal_bytes
from cacheaudit.model.prompt import ContentBlock, Prompt

_AROUND = 40
_LONGEST = 120


def surroundings(
    a: Prompt, b: Prompt, change: Change, *, show_text: bool
) -> tuple[str | None, str | None]:
    """Show both sides of a change.

    Args:
        a: The earlier prompt.
        b: The later one.
        change: Their first change.
        show_text: Show the text; otherwise letters and digits are masked.

    Returns:
        Before and after; ``None`` where nothing stood there or the record kept no text.
    """
    before, after = excerpts(*_texts(a, b, change))
    if show_text:
        return before, after
    return _hidden(before), _hidden(after)


def _hidden(text: str | None) -> str | None:
    return None if text is None else mask(text)


def _texts(a: Prompt, b: Prompt, change: Change) -> tuple[str | None, str | None]:
    """Return what stood at the change and what stands there now."""
    if change.kind == "parameter":
        return _parameter(a, change.path), _parameter(b, change.path)
    place = change.blocks_before
    old = _block_at(a, place, change) if change.kind != "added" else None
    new = _block_at(b, place, change) if change.kind != "removed" else None
    return _content(old), _content(new)


def _parameter(prompt: Prompt, name: str) -> str | None:
    for parameter in prompt.parameters:
        if parameter.name == name:
            return parameter.value.decode(errors="replace")
    return None


def _block_at(prompt: Prompt, place: int, change: Change) -> ContentBlock | None:
    if place >= len(prompt.blocks) or prompt.blocks[place].level != change.level:
        return None
    return prompt.blocks[place]


def _content(block: ContentBlock | None) -> str | None:
    """Return a text block's text, any other's JSON; nothing where the record kept no bytes."""
    if block is None or not block.canonical:
        return None
    fields = msgspec.json.decode(block.canonical)
    text = fields.get("text") if isinstance(fields, dict) else None
    if block.kind == "text" and isinstance(text, str):
        return text
    return block.canonical.decode(errors="replace")


def excerpts(old: str | None, new: str | None) -> tuple[str | None, str | None]:
    """Cut two texts down to the surroundings of their first difference.

    ``⟦`` and ``⟧`` enclose what differs, as far as the excerpt reaches.
    """
    if old is None or new is None:
        return _start(old), _start(new)
    start = len(old.encode()[: equal_bytes(old.encode(), new.encode())].decode(errors="ignore"))
    end = _equal_end(old[start:], new[start:])
    return _window(old, start, len(old) - end), _window(new, start, len(new) - end)


def _start(text: str | None) -> str | None:
    if text is None:
        return None
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


def _equal_end(old: str, new: str) -> int:
    limit = min(len(old), len(new), 4 * _LONGEST)
    count = 0
    while count < limit and old[-1 - count] == new[-1 - count]:
        count += 1
    return count


def _window(text: str, start: int, end: int) -> str:
    changed = text[start:end]
    if len(changed) > _LONGEST:
        return f"{_before(text, start)}⟦{changed[:_LONGEST]}…"
    behind = text[end : end + _AROUND] + ("…" if end + _AROUND < len(text) else "")
    return f"{_before(text, start)}⟦{changed}⟧{behind}"


def _before(text: str, start: int) -> str:
    return ("…" if start > _AROUND else "") + text[max(0, start - _AROUND) : start]


def mask(text: str) -> str:
    """Hide what a text says and keep its shape: letters become x or X, digits 9.

    A date that moved into a prompt is still seen to be one: ``9999-99-99X99:99``.
    """
    return "".join(_masked(char) for char in text)


def _masked(char: str) -> str:
    if char.isdecimal():
        return "9"
    if char.isalpha():
        return "X" if char.isupper() else "x"
    return char if char.isascii() or char in "⟦⟧…" else "x"
