"""Names what differs between two versions of a text: a clock, an id, a counter, a git status.

A difference is judged from the pair, not from one text alone: that a text holds a time of day says
nothing, that two versions agree in everything but a time of day says all. Nothing of a text leaves
this module but the kind of the difference and its place.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from typing import Final, Literal

import msgspec

Kind = Literal[
    "clock", "day", "id", "counter", "git", "workspace", "tool_list", "representation", "other"
]


class Variation(msgspec.Struct, frozen=True):
    """How two versions of a text differ.

    Attributes:
        kind: ``clock``: a time of day, or how much time has passed; ``day``: a date alone; ``id``:
            an identifier or random digits; ``counter``: a number; ``git``: a git status or log;
            ``workspace``: the working folder or a list of files; ``tool_list``: a list of tools;
            ``representation``: blanks, line ends, escapes or the form of characters; ``other``.
        only: Nothing else differs.
        offset: Bytes (UTF-8) that agree at the beginning.
    """

    kind: Kind
    only: bool
    offset: int


_ZONE: Final = r"(?:\s?(?:Z|UTC|GMT|[+-]\d{2}:?\d{2}))?"
_TIME: Final = rf"\b\d{{1,2}}:\d{{2}}(?::\d{{2}})?(?:[.,]\d+)?(?:\s?[AaPp]\.?[Mm]\b\.?)?{_ZONE}"
_MONTH: Final = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}\.?"
_WEEKDAY: Final = r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]{0,6}\b"
_DATE: Final = re.compile(
    rf"\d{{4}}-\d{{2}}-\d{{2}}T?|\d{{1,4}}[/.]\d{{1,2}}[/.]\d{{2,4}}|{_WEEKDAY}"
    rf"|\b\d{{1,2}}\.? {_MONTH},?(?: \d{{4}})?|\b{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?,?(?: \d{{4}})?"
)
_CLOCK: Final = re.compile(
    rf"{_TIME}|\b1[6-9]\d{{8}}(?:\d{{3}}){{0,2}}(?:\.\d+)?\b"
    r"|\b\d+(?:\.\d+)?\s?(?:ms|milliseconds?|s|secs?|seconds?|mins?|minutes?|hours?|hrs?|h)\b"
)
_TOKEN: Final = re.compile(r"[0-9A-Za-z_-]+|\s+|[^0-9A-Za-z_\s-]")
_WORD: Final = re.compile(r"[0-9A-Za-z_-]")
_THOUSANDS: Final = re.compile(r"(?<=\d)[, ](?=\d{3}\b)")
_NUMBER: Final = re.compile(r"\d+(?:[kKmMgG](?:i?[bB])?|[bB])?\Z")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}\Z")
_HEX: Final = re.compile(r"[0-9a-fA-F]{5,}\Z")
_ID_WORD: Final = re.compile(
    r"(?i)\b(?:nonce|seed|salt|uuid|guid|cch|hash|(?:[a-z]+[ _-]?)?id)\W{1,4}\Z"
)
_LONG_ENOUGH: Final = 6

_GIT: Final = re.compile(
    r"(?im)\bgit[ _]?status\b|^On branch\b|^(?:current|main) branch\b|^recent commits\b"
    r"|^untracked files\b|^changes (?:not staged|to be committed)\b"
)
_WORKSPACE: Final = re.compile(
    r"(?im)\b(?:working|current|project|root)\s+(?:director(?:y|ies)|folders?|dir)\b|\bcwd\b|\bpwd\b"
    r"|\b(?:files?|director(?:y|ies)|folders?|project|repo(?:sitory)?)\s+"
    r"(?:structure|tree|list(?:ing)?|layout|map)\b"
    r"|\b(?:open|opened|visible|recent|modified)\s+(?:files|tabs)\b|<environment_details>"
)
_TOOL_LIST: Final = re.compile(
    r"(?im)\b(?:deferred|available|additional|discoverable|loadable|mcp)[\w -]{0,24}tools\b"
    r"|\btools\b[\w -]{0,24}\b(?:available|deferred|searchable|can be loaded|not loaded)\b"
)
_HEADINGS: Final[tuple[tuple[Kind, re.Pattern[str]], ...]] = (
    ("git", _GIT),
    ("workspace", _WORKSPACE),
    ("tool_list", _TOOL_LIST),
)
# A heading speaks for what follows it up to the next heading or tag, and no further than this.
_REACH: Final = 2_000
_BREAK: Final = re.compile(r"\n(?:#|<|\n\n)")
_NAME: Final = re.compile(r"[A-Za-z][\w.-]*")
_PATH: Final = re.compile(r"[/\\]|\w\.\w{1,8}\b")
_ITEM: Final = re.compile(r"\s*(?:[-*•]\s*)?[\w.:-]+(?:\s*(?:[:(]|-\s).*)?\Z")


def explain(old: str, new: str, names: Collection[str] = ()) -> Variation | None:
    """Say how two versions of a text differ; ``None`` where they do not.

    Args:
        old: Earlier version.
        new: Later version.
        names: Names of tools that either request knows of.
    """
    if old == new:
        return None
    head = _common_head(old, new)
    offset = len(old[:head].encode(errors="replace"))
    for kind, found in (
        ("representation", _written_otherwise(old, new)),
        ("clock", _same_but_for_clock(old, new)),
    ):
        if found:
            is_day = kind == "clock" and _DATE.sub("", old) == _DATE.sub("", new)
            return Variation("day" if is_day else kind, True, offset)  # type: ignore[arg-type]
    kinds = _token_kinds(_without_clock(old), _without_clock(new))
    region = _under_heading(old, new, head, names)
    if region == "git" or (region is not None and kinds != {"counter"}):
        return Variation(region, True, offset)
    first = _first_kind(old, new, head)
    if kinds and first == "other":
        first = "id" if "id" in kinds else "counter"
    return Variation(first, bool(kinds), offset)


def _written_otherwise(old: str, new: str) -> bool:
    """Whether only blanks, line ends, escapes or the form of characters differ."""
    return _plain(old) == _plain(new)


def _plain(text: str) -> str:
    text = unicodedata.normalize("NFKC", text)
    for entity, sign in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&#39;", "'")):
        text = text.replace(entity, sign)
    text = text.replace("&amp;", "&").replace("\\n", "\n").replace("\\/", "/")
    text = text.replace("\ufeff", "").replace("\u200b", "")
    return "".join(text.split())


def _same_but_for_clock(old: str, new: str) -> bool:
    return _without_clock(old) == _without_clock(new)


def _without_clock(text: str) -> str:
    return _CLOCK.sub("~", _DATE.sub("", text))


def _common_head(old: str, new: str) -> int:
    limit = min(len(old), len(new))
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if old[:middle] == new[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _common_tail(old: str, new: str, head: int) -> int:
    limit = min(len(old), len(new)) - head
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if old[len(old) - middle :] == new[len(new) - middle :]:
            low = middle
        else:
            high = middle - 1
    return low


def _regions(old: str, new: str) -> tuple[int, str, str]:
    """Return where the texts begin to differ, and what differs, widened to whole words."""
    head = _common_head(old, new)
    while head and _WORD.match(old[head - 1]):
        head -= 1
    tail = _common_tail(old, new, head)
    while tail and _WORD.match(old[len(old) - tail]):
        tail -= 1
    return head, old[head : len(old) - tail], new[head : len(new) - tail]


def _token_kinds(old: str, new: str) -> set[str]:
    """Kinds of all words that differ; empty where one of them is neither number nor id."""
    old, new = _THOUSANDS.sub("", old), _THOUSANDS.sub("", new)
    head, before, after = _regions(old, new)
    mine, theirs = _TOKEN.findall(before), _TOKEN.findall(after)
    if len(mine) != len(theirs):
        return set()
    kinds: set[str] = set()
    ahead = old[max(0, head - 40) : head]
    for a, b in zip(mine, theirs, strict=True):
        if a != b:
            kind = _pair_kind(a, b, ahead)
            if kind is None:
                return set()
            kinds.add(kind)
        ahead = (ahead + a)[-40:]
    return kinds


def _pair_kind(a: str, b: str, ahead: str) -> str | None:
    if not _WORD.match(a) or not _WORD.match(b):
        return None
    if _UUID.match(a) and _UUID.match(b):
        return "id"
    if _ID_WORD.search(ahead) and _has_digit(a + b):
        return "id"
    if _NUMBER.match(a) and _NUMBER.match(b):
        has_zeros = len(a) == len(b) >= _LONG_ENOUGH and (a[0] == "0" or b[0] == "0")
        return "id" if has_zeros else "counter"
    if _HEX.match(a) and _HEX.match(b) and len(a) == len(b) and _has_digit(a + b):
        return "id"
    return "id" if _looks_made(a) and _looks_made(b) and abs(len(a) - len(b)) <= 2 else None


def _looks_made(word: str) -> bool:
    has_letter = any(c.isalpha() for c in word)
    return len(word) >= _LONG_ENOUGH and has_letter and _has_digit(word)


def _has_digit(word: str) -> bool:
    return any(c.isdigit() for c in word)


def _under_heading(old: str, new: str, at: int, names: Collection[str]) -> Kind | None:
    """Kind of the list or section in which the texts differ, by the heading above it."""
    _, before, after = _regions(old, new)
    if names and _names_tools(before, after, names):
        return "tool_list"
    line = old.rfind("\n", 0, at) + 1
    fitting = _fitting(old[line:at] + before + "\n" + old[line:at] + after)
    # Both versions, since the heading itself may have come or gone.
    for text, changed in ((old, before), (new, after)):
        start = max(0, at - _REACH)
        above = text[start : at + len(changed)]
        best: tuple[int, Kind] | None = None
        for kind, pattern in _HEADINGS:
            if kind not in fitting:
                continue
            for match in pattern.finditer(above):
                between = above[match.end() : at - start]
                if not _BREAK.search(between) and (best is None or match.start() > best[0]):
                    best = (match.start(), kind)
        if best is not None:
            return best[1]
    return None


def _fitting(changed: str) -> set[Kind]:
    """Kinds of section that what changed could stand in."""
    found: set[Kind] = {"git"}
    if _PATH.search(changed):
        found.add("workspace")
    lines = [line for line in changed.splitlines() if line.strip()]
    if lines and all(_ITEM.match(line) for line in lines):
        found.add("tool_list")
    return found


def _names_tools(before: str, after: str, names: Collection[str]) -> bool:
    """Whether what came or went are names of tools, one a line or in a list."""
    changed = set(_NAME.findall(before)) ^ set(_NAME.findall(after))
    lines = {word.rstrip(".:") for word in changed}
    return bool(lines) and sum(word in names for word in lines) * 2 > len(lines)


def _first_kind(old: str, new: str, at: int) -> Kind:
    """Kind of the first differing word alone."""
    for kind, pattern in (("clock", _CLOCK), ("day", _DATE)):
        if _covers(pattern, old, at) and _covers(pattern, new, at):
            return kind  # type: ignore[return-value]
    _, before, after = _regions(old, new)
    mine, theirs = _TOKEN.findall(before), _TOKEN.findall(after)
    if mine and theirs:
        kind_of_pair = _pair_kind(mine[0], theirs[0], old[max(0, at - 40) : at])
        if kind_of_pair == "id":
            return "id"
    return "other"


def _covers(pattern: re.Pattern[str], text: str, at: int) -> bool:
    start = max(0, at - 40)
    return any(
        match.start() <= at - start < match.end()
        for match in pattern.finditer(text[start : at + 40])
    )
