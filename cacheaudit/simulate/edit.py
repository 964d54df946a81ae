"""What a counterfactual is: a pure change of recorded calls that the simulator can run.

Dropping a file into ``simulate/edits`` adds an edit; nothing else has to change. An edit returns
new calls and never touches the ones it was given. Where the record lacks what it needs, it refuses
and says why; it never guesses.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Protocol, get_origin, get_type_hints

import msgspec

from cacheaudit.errors import CacheAuditError, UsageError
from cacheaudit.model.call import Call

# Edits are applied in this order, whatever order they were asked in: what is sent, then how, then
# where it is marked, when it is sent, for how long it is kept, and what is sent in addition.
CONTENT = 10
COMPACTION = 15
PARAMETERS = 20
MODEL = 25
ROUTE = 27
MARKERS = 30
ORDER = 40
LIFETIMES = 45
ADDED_CALLS = 50


class EditRefused(CacheAuditError):  # noqa: N818 - no fault: the record does not allow the edit
    """The record lacks what the edit needs, or the edit could not have been sent."""

    code = "edit_refused"


class NothingToEdit(EditRefused):
    """The edit would change nothing."""

    code = "nothing_to_edit"


class Edit(Protocol):
    """One counterfactual.

    Attributes:
        name: In kebab case; unique.
        title: Imperative, one line.
        stage: Place in the order in which several edits are applied.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    stage: ClassVar[int]

    def apply(self, calls: Sequence[Call]) -> Sequence[Call]:
        """Return the calls as they would have been; those that do not change may be the same.

        Raises:
            EditRefused: The record lacks what is needed, or nothing can be changed.
        """
        ...


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of edits that take options.

    Attributes:
        calls: Ids of the calls that the edit is limited to; empty: all of them.
    """

    calls: tuple[str, ...] = ()

    def concerns(self, call: Call) -> bool:
        """Whether the edit may change a call."""
        return not self.calls or call.id in self.calls


def apply_all(edits: Iterable[Edit], calls: Sequence[Call]) -> Sequence[Call]:
    """Apply several edits in order of their stage.

    Raises:
        EditRefused: One of them cannot be applied.
    """
    for edit in sorted(edits, key=lambda edit: edit.stage):
        calls = edit.apply(calls)
    return calls


def apply_possible(
    edits: Iterable[Edit], calls: Sequence[Call]
) -> tuple[Sequence[Call], dict[str, str]]:
    """Apply several edits in order of their stage, leaving out those that are refused.

    Returns:
        The calls, and why edits were left out, by their text.
    """
    refused: dict[str, str] = {}
    for edit in sorted(edits, key=lambda edit: edit.stage):
        try:
            calls = edit.apply(calls)
        except EditRefused as reason:
            refused[edit_text(edit)] = str(reason)
    return calls, refused


@cache
def edit_types() -> Mapping[str, type[Any]]:
    """Return every edit's class by name."""
    package = importlib.import_module("cacheaudit.simulate.edits")
    found: dict[str, type[Any]] = {}
    for info in pkgutil.iter_modules(package.__path__):
        if info.name.startswith("_"):
            continue
        kind: type[Any] = importlib.import_module(f"{package.__name__}.{info.name}").EDIT
        if kind.name in found:
            raise TypeError(f"two edits are named {kind.name!r}")
        found[kind.name] = kind
    return dict(sorted(found.items()))


def parse_edit(text: str) -> Edit:
    """Read an edit as people write it: ``keep-alive:every=240,idle=yes``.

    Several values of one option are joined by ``+``.

    Raises:
        UsageError: There is no such edit or option, or a value is wrong.
    """
    name, _, options = text.partition(":")
    kind = edit_types().get(name.strip())
    if kind is None:
        raise UsageError(
            f"There is no edit {name.strip()!r}.", f"Choose one of: {', '.join(edit_types())}."
        )
    values: dict[str, Any] = {}
    hints = get_type_hints(kind)
    for part in filter(None, options.split(",")):
        key, found, value = part.partition("=")
        key = key.strip().replace("-", "_")
        if not found or key not in hints:
            raise UsageError(f"{name} has no option {part!r}.", _options(kind))
        values[key] = _value(value.strip(), hints[key])
    try:
        made: Edit = msgspec.convert(values, kind, strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        raise UsageError(f"{text!r}: {error}.", _options(kind)) from error
    return made


def edit_text(edit: Edit) -> str:
    """Write an edit as :func:`parse_edit` reads it; options at their defaults are left out."""
    parts: list[str] = []
    defaults = type(edit)()
    for name in getattr(edit, "__struct_fields__", ()):
        value = getattr(edit, name)
        if value == getattr(defaults, name) or not isinstance(
            value, str | int | float | tuple | None
        ):
            continue
        if isinstance(value, bool):
            text = "yes" if value else "no"
        elif isinstance(value, tuple):
            text = "+".join(str(item) for item in value)
        else:
            text = str(value)
        parts.append(f"{name.replace('_', '-')}={text}")
    return ":".join(filter(None, (edit.name, ",".join(parts))))


def _options(kind: type[Any]) -> str:
    names = ", ".join(field.replace("_", "-") for field in kind.__struct_fields__)
    return f"Options of {kind.name}: {names}."


_WORDS: Mapping[str, str] = {"yes": "true", "no": "false", "on": "true", "off": "false"}


def _value(text: str, hint: Any) -> Any:
    if get_origin(hint) is tuple:
        return tuple(text.split("+"))
    return _WORDS.get(text, text) if hint is bool else text
