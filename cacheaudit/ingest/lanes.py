"""Remembers the last prompt of each line of conversation, and tells the lines of a session apart.

Formats that record requests one by one do not say which request continues which. A request belongs
to the line whose messages it shares the beginning of; a request that shares nothing (a title, a
summary, a subagent) begins a line of its own, so that two lines are never compared as one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container

from cacheaudit.model.prompt import ContentBlock, Level, Prompt

MAIN = "main"
_KEPT = 48
_COMPARED_BYTES = 8192
_ALIKE = 0.5
_TEXT_OPENS = b'{"text":"'
_TEXT_CLOSES = b'","type":"text"}'


class Lanes:
    """The last prompt of each lane; the longest unused one is forgotten when there are too many.

    Forgetting costs speed, and in a session of very many lanes the link to an old one.

    Args:
        kept: How many prompts to keep.
    """

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept = kept
        self._last: OrderedDict[tuple[str, str], Prompt] = OrderedDict()
        self._newest: dict[str, str] = {}
        self._count: dict[str, int] = {}

    def previous(self, session: str, lane: str | None = None) -> Prompt | None:
        """Return the last prompt of a lane, or the session's newest where no lane is named."""
        if lane is None:
            lane = self._newest.get(session, MAIN)
        return self._last.get((session, lane))

    def remember(self, session: str, lane: str, prompt: Prompt) -> None:
        """Make a prompt the last one of its lane."""
        key = (session, lane)
        self._last[key] = prompt
        self._last.move_to_end(key)
        self._newest[session] = lane
        while len(self._last) > self._kept:
            (old_session, old_lane), _ = self._last.popitem(last=False)
            if self._newest.get(old_session) == old_lane:
                del self._newest[old_session]

    def guess(self, session: str, prompt: Prompt, without: Container[tuple[str, str]] = ()) -> str:
        """Name the lane that a prompt continues, or a new one.

        Args:
            session: Its session.
            prompt: The prompt.
            without: Sessions and lanes that it cannot belong to.
        """
        lanes = [
            (lane, last)
            for (owner, lane), last in self._last.items()
            if owner == session and (owner, lane) not in without
        ]
        best, best_shared = None, 0
        for lane, last in reversed(lanes):
            shared = _shared(prompt, last)
            if shared > best_shared and (_opening(prompt, last) <= shared or _is_kin(prompt, last)):
                best, best_shared = lane, shared
        if best is not None:
            return best
        for lane, last in reversed(lanes):
            if _is_kin(prompt, last):
                return lane
        number = self._count.get(session, 0)
        self._count[session] = number + 1
        return MAIN if number == 0 else f"side-{number}"


def _shared(one: Prompt, other: Prompt) -> int:
    """Count the leading message blocks that are equal in content."""
    count = 0
    for mine, theirs in zip(one.at_level("messages"), other.at_level("messages"), strict=False):
        if mine.digest != theirs.digest:
            break
        count += 1
    return count


def _opening(one: Prompt, other: Prompt) -> int:
    """Count the blocks of the first message, of the prompt in which it is shorter.

    Agents often begin every line with the same reminder block; only a shared whole message tells.
    """
    return min(
        sum(block.message == 0 for block in one.at_level("messages")),
        sum(block.message == 0 for block in other.at_level("messages")),
    )


def _is_kin(one: Prompt, other: Prompt) -> bool:
    """Whether two prompts without a common message come from the same line nevertheless.

    They do where tools or instructions are the same, or nearly: a new topic in the same agent, an
    edited first message, a clock in the system prompt.
    """
    tools, other_tools = one.at_level("tools"), other.at_level("tools")
    if bool(tools) != bool(other_tools):
        return False
    if tools and {t.name for t in tools} & {t.name for t in other_tools}:
        return _level_alike(one, other, "system")
    return not tools and _level_alike(one, other, "system")


def _level_alike(one: Prompt, other: Prompt, level: Level) -> bool:
    mine, theirs = one.at_level(level), other.at_level(level)
    if [b.digest for b in mine] == [b.digest for b in theirs]:
        return True
    return _alike(_bytes_of(mine), _bytes_of(theirs))


def _bytes_of(blocks: tuple[ContentBlock, ...]) -> bytes:
    """Join the texts themselves: the JSON around them would make short ones look alike."""
    return b"".join(
        block.canonical.removeprefix(_TEXT_OPENS).removesuffix(_TEXT_CLOSES) for block in blocks
    )


def _alike(one: bytes, other: bytes) -> bool:
    """Whether two texts share half of their bytes at the beginning and the end."""
    if not one or not other:
        return False
    limit = min(len(one), len(other), _COMPARED_BYTES)
    longest = min(max(len(one), len(other)), 2 * _COMPARED_BYTES)
    front = _common(one[:limit], other[:limit])
    back = _common(one[-limit:][::-1], other[-limit:][::-1])
    return min(front + back, limit) >= _ALIKE * longest


def _common(one: bytes, other: bytes) -> int:
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return index
    return min(len(one), len(other))
