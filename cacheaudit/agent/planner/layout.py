"""Cuts a Messages API request into content blocks, and does again only what is new.

Of a request that repeats the tools, the system prompt or the messages of an earlier one, the bytes
are compared and nothing is digested. Markers are left out of everything that is compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from operator import is_
from typing import Any, Final

import msgspec

from cacheaudit.agent.planner.marks import OwnMark, bare, own_marks
from cacheaudit.agent.planner.order import encode, inputs_of, reordered
from cacheaudit.model.prompt import ContentBlock, Level
from cacheaudit.model.tokens import estimate
from cacheaudit.providers.anthropic import LEVEL_ORDER, PROVIDER
from cacheaudit.providers.facts import Rules

_TOKEN: Final = b'"cache_control"'
_BULK: Final = frozenset({"messages", "tools", "system"})
_KEY_BYTES: Final = 16
_THINKING: Final = frozenset({"thinking", "redacted_thinking"})
_MARKABLE: Final = frozenset(
    {
        "text", "image", "document", "search_result", "tool_use", "tool_result", "tool_reference",
        "server_tool_use", "web_search_tool_result", "web_fetch_tool_result",
        "code_execution_tool_result", "bash_code_execution_tool_result",
        "text_editor_code_execution_tool_result", "tool_search_tool_result", "container_upload",
        "compaction",
    }
)  # fmt: skip
SERVER_RESULTS: Final = frozenset(
    {
        "web_search_tool_result", "web_fetch_tool_result", "code_execution_tool_result",
        "bash_code_execution_tool_result", "text_editor_code_execution_tool_result",
        "tool_search_tool_result",
    }
)  # fmt: skip


class Block(msgspec.Struct, frozen=True, gc=False):
    """One content block.

    Attributes:
        level: Part of the prompt.
        outer: Index of the tool, of the system block, or of the message.
        inner: Index inside the message; -1 elsewhere.
        kind: Its type.
        digest: Identity of its content.
        tokens: Estimated size in tokens.
        markable: It may carry a marker.
    """

    level: Level
    outer: int
    inner: int
    kind: str
    digest: bytes
    tokens: int
    markable: bool


class Layout(msgspec.Struct, frozen=True):
    """A request in pieces.

    Attributes:
        blocks: Content blocks in render order.
        keys: Identity of the prefix that ends with each block.
        sizes: Its estimated size in tokens.
        tools: Each tool as JSON without markers.
        system: Each system block likewise.
        messages: Each message likewise.
        said: The messages as they were given.
        marked: Indices of messages in which the name of the marker occurs.
        given: Tools and system prompt as they were given.
        roles: Role of each message.
        ends: Number of blocks up to the end of each message.
        front: Number of blocks before the messages.
        tool_count: Number of blocks that are tools.
        seeds: Settings of the cache key at each level.
        settings: These settings by name, as JSON.
        marks: The caller's markers on content blocks.
        automatic: Lifetime of the caller's automatic marker, ``""`` for the default; ``None``:
            there is none.
        markers: All markers of the caller, wherever they stand.
        weight: Bytes that it holds on to.
        inputs: Arguments of all tool calls, in the key order that they were given in.
    """

    blocks: list[Block]
    keys: list[bytes]
    sizes: list[int]
    tools: list[bytes]
    system: list[bytes]
    messages: list[bytes]
    said: list[Any]
    marked: list[int]
    given: tuple[Texts, Texts]
    roles: list[str]
    ends: list[int]
    front: int
    tool_count: int
    seeds: tuple[bytes, ...]
    settings: dict[str, bytes]
    marks: tuple[OwnMark, ...]
    automatic: str | None
    markers: int
    weight: int
    inputs: bytes = b""

    def index_of(self, level: str, outer: int, inner: int) -> int | None:
        """Find a block by its place."""
        if level == "messages":
            if not 0 <= outer < len(self.ends):
                return None
            start = self.ends[outer - 1] if outer else self.front
            span = range(start, self.ends[outer])
        else:
            span = (
                range(self.tool_count) if level == "tools" else range(self.tool_count, self.front)
            )
        for index in span:
            block = self.blocks[index]
            if block.outer == outer and block.inner == inner:
                return index
        return None


class Texts(msgspec.Struct, frozen=True):
    """The messages of a request.

    Attributes:
        items: As they were given.
        plain: Each as JSON, without markers and with one plain text as a string.
        marked: Indices of those in which the name of the marker occurs.
        whole: All of them as one JSON, where the order of keys in them counts.
        inputs: Arguments of all tool calls, as JSON.
        reordered: Path of what an earlier request wrote in another key order; empty: nothing.
    """

    items: list[Any]
    plain: list[bytes]
    marked: list[int]
    inputs: bytes = b""
    reordered: str = ""
    whole: bytes = b""


def texts_of(body: Mapping[str, Any], known: Iterable[Layout] = ()) -> Texts:
    """Write each message as JSON; what an earlier request said is not written again.

    Args:
        body: The request.
        known: Earlier requests that it may go on from, the likeliest first.
    """
    messages = body.get("messages")
    if not isinstance(messages, list):
        return Texts([], [], [])
    count, best, moved = 0, None, ""
    for layout in known:
        same = _repeated(messages, layout.said)
        if same > count:
            count, best = same, layout
        if same and same == len(layout.said):
            break
    known_inputs = best.inputs if best is not None and count == len(best.said) else None
    if (
        best is not None
        and (found := reordered(messages, best.said, count, known_inputs)) is not None
    ):
        (count, moved), known_inputs = found, None
    if known_inputs is None:
        inputs = inputs_of(messages)
    else:
        inputs = b",".join(filter(None, (known_inputs, inputs_of(messages[count:]))))
    plain = [] if best is None else best.messages[:count]
    marked = [] if best is None else [index for index in best.marked if index < count]
    for index, message in enumerate(messages[count:], count):
        text = encode(message)
        if _TOKEN in text:
            marked.append(index)
            message = bare(message)
            text = encode(message)
        plain.append(encode({**message, "content": one}) if (one := _one(message)) else text)
    return Texts(messages, plain, marked, inputs, moved)


def _one(message: Any) -> str | None:
    """Return the text of a message that holds nothing else, given as a list."""
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list) or len(content) != 1 or not isinstance(content[0], dict):
        return None
    block = content[0]
    text = block.get("text")
    is_plain = block.keys() == {"type", "text"} and block["type"] == "text"
    return text if is_plain and isinstance(text, str) else None


def _repeated(messages: list[Any], said: list[Any]) -> int:
    """Count the leading messages that are equal to earlier ones.

    Objects that are the very same may have been changed since; they prove nothing.
    """
    count = min(len(messages), len(said))
    if any(map(is_, messages, said)):
        return 0
    if messages[:count] == said[:count]:
        return count
    for index in range(count):
        if messages[index] != said[index]:
            return index
    return count


def common(one: Sequence[bytes], other: Sequence[bytes]) -> int:
    """Count the leading pieces that two requests share."""
    count = min(len(one), len(other))
    if one[:count] == other[:count]:
        return count
    return next(index for index in range(count) if one[index] != other[index])


def _front_texts(items: Any, before: Texts | None, *, keys_count: bool = False) -> Texts:
    """Write each tool or system block as JSON without markers, unless all were written before.

    Args:
        items: Tools or system prompt as they were given.
        before: Those of an earlier request.
        keys_count: Another order of keys makes another text.
    """
    if isinstance(items, str):
        items = [{"type": "text", "text": items}] if items else []
    if not isinstance(items, list):
        items = []
    count = len(items)
    whole = encode(items) if keys_count else b""
    if (
        before is not None
        and whole == before.whole
        and count == len(before.items) == _repeated(items, before.items)
    ):
        return before
    plain = list(map(encode, items))
    marked = [index for index, text in enumerate(plain) if _TOKEN in text]
    for index in marked:
        plain[index] = encode(bare(items[index]))
    return Texts(items, plain, marked, whole=whole)


class _Pieces:
    """The parts of a level, each as JSON without markers; and how many of them are known."""

    def __init__(self, texts: Texts, known: list[bytes]) -> None:
        self.texts = texts
        self.items = texts.items
        self.marked = [(index, texts.items[index]) for index in texts.marked]
        self.same = count = common(texts.plain, known)
        # One copy of what both hold.
        self.raw = known if count == len(texts.plain) == len(known) else [*known[:count]]
        if self.raw is not known:
            self.raw += texts.plain[count:]

    def new(self) -> list[Any]:
        """Return the parts behind those that are known, without markers."""
        marked = {index for index, _ in self.marked}
        return [
            bare(item) if index in marked else item
            for index, item in enumerate(self.items[self.same :], self.same)
        ]


def lay_out(
    body: Mapping[str, Any],
    facts: Rules,
    home: bytes,
    previous: Layout | None = None,
    texts: Texts | None = None,
) -> Layout:
    """Cut a request into content blocks.

    Args:
        body: The request; never changed.
        facts: Rules of the model's cache.
        home: What keeps this cache apart from others: host and key.
        previous: A request that this one may repeat.
        texts: Its messages as JSON, where that was done.

    Raises:
        PromptError: The body has not the shape of the Messages API.
        TypeError: It holds what JSON cannot hold.
    """
    if facts.text("thinking_retention") == "last_turn":
        previous = None  # thinking leaves the prompt as the conversation goes on
    before = previous.given if previous else (None, None)
    tools = _Pieces(
        _front_texts(body.get("tools"), before[0], keys_count=True),
        previous.tools if previous else [],
    )
    system = _Pieces(
        _front_texts(body.get("system"), before[1]), previous.system if previous else []
    )
    texts = texts_of(body) if texts is None else texts
    messages = _Pieces(texts, previous.messages if previous else [])
    part: dict[str, Any] = {name: body[name] for name in body if name not in _BULK}
    same_tools = previous is not None and tools.raw == previous.tools
    same_system = previous is not None and system.raw == previous.system
    if not same_tools:
        part["tools"] = [bare(item) for item in tools.items]
    if not same_system:
        part["system"] = [bare(item) for item in system.items]
    part["messages"] = messages.new()
    prompt = PROVIDER.expand(part)
    seeds = _seeds(prompt.parameters, facts, home)
    parts = _blocks(prompt.blocks, messages.same)
    if previous is not None and same_tools:
        parts["tools"] = previous.blocks[: previous.tool_count]
    if previous is not None and same_system:
        parts["system"] = previous.blocks[previous.tool_count : previous.front]
    kept: list[Block] = []
    if previous is not None and messages.same:
        kept = previous.blocks[previous.front : previous.ends[messages.same - 1]]
    blocks = [*parts["tools"], *parts["system"], *kept, *parts["messages"]]
    front = len(parts["tools"]) + len(parts["system"])
    if facts.text("thinking_retention") == "last_turn":
        blocks = _without_old_thinking(blocks, messages.items)
    keys, sizes = _chained(blocks, seeds, previous, len(parts["tools"]), front, len(kept))
    return Layout(
        blocks=blocks,
        keys=keys,
        sizes=sizes,
        tools=tools.raw,
        system=system.raw,
        messages=messages.raw,
        said=messages.items,
        marked=texts.marked,
        given=(tools.texts, system.texts),
        roles=[
            *(previous.roles[: messages.same] if previous else ()),
            *map(_role, messages.items[messages.same :]),
        ],
        ends=_ends(blocks, front, len(messages.items), previous, messages.same),
        front=front,
        tool_count=len(parts["tools"]),
        seeds=seeds,
        settings={item.name: item.value for item in prompt.parameters},
        inputs=texts.inputs,
        weight=len(texts.inputs) + sum(map(len, (*tools.raw, *system.raw, *messages.raw))),
        **own_marks(body, tools.marked, system.marked, messages.marked),
    )


def _role(message: Any) -> str:
    role = message.get("role") if isinstance(message, dict) else None
    return role if isinstance(role, str) else ""


def _blocks(blocks: Iterable[ContentBlock], shift: int) -> dict[str, list[Block]]:
    found: dict[str, list[Block]] = {"tools": [], "system": [], "messages": []}
    closed: set[int] = set()
    for block in blocks:
        outer, inner = _place(block)
        if block.kind == "settings":
            closed.add(outer)
        found[block.level].append(
            Block(
                block.level,
                outer + (shift if block.level == "messages" else 0),
                inner,
                block.kind,
                block.digest,
                estimate(block),
                _may_carry(block) and outer not in closed,
            )
        )
    return found


def _place(block: ContentBlock) -> tuple[int, int]:
    numbers = [int(text.partition("]")[0]) for text in block.path.split("[")[1:]]
    return numbers[0], numbers[1] if block.level == "messages" and len(numbers) > 1 else -1


def _may_carry(block: ContentBlock) -> bool:
    if block.level == "tools":
        return b'"defer_loading":true' not in block.canonical
    if block.kind not in _MARKABLE or block.role == "system":
        return False
    if block.kind == "text" and len(block.canonical) < 400:
        text = msgspec.json.decode(block.canonical).get("text")
        return isinstance(text, str) and bool(text.strip())
    return True


def _seeds(parameters: Iterable[Any], facts: Rules, home: bytes) -> tuple[bytes, ...]:
    """Digest the settings of each level; those that may be rendered first count from the start."""
    parts: dict[str, list[bytes]] = {level: [] for level in LEVEL_ORDER}
    ahead = {
        "thinking": facts.text("drops.thinking"),
        "output_config.effort": facts.text("drops.effort"),
    }
    for item in parameters:
        level = "tools" if ahead.get(item.name) == "tools" else item.level
        parts[level].append(item.name.encode() + b"\1" + item.value)
    seeds = [_digest(b"\0".join(sorted(parts[level]))) for level in LEVEL_ORDER]
    seeds[0] = _digest(home + seeds[0])
    return tuple(seeds)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_KEY_BYTES).digest()


def _chained(
    blocks: list[Block],
    seeds: tuple[bytes, ...],
    previous: Layout | None,
    tools: int,
    front: int,
    kept: int,
) -> tuple[list[bytes], list[int]]:
    """Work out the identity and the size of every prefix, taking over what is known."""
    reach = 0
    if previous is not None and seeds[0] == previous.seeds[0]:
        reach = _shared(blocks, previous, tools, front, kept, seeds)
    keys = previous.keys[:reach] if previous is not None else []
    sizes = previous.sizes[:reach] if previous is not None else []
    state = keys[-1] if keys else b""
    total = sizes[-1] if sizes else 0
    level = LEVEL_ORDER.index(blocks[reach - 1].level) if reach else -1
    for block in blocks[reach:]:
        mine = LEVEL_ORDER.index(block.level)
        while level < mine:
            level += 1
            state = _digest(state + seeds[level])
        state = _digest(state + block.digest)
        total += block.tokens
        keys.append(state)
        sizes.append(total)
    return keys, sizes


def _shared(
    blocks: list[Block],
    previous: Layout,
    tools: int,
    front: int,
    kept: int,
    seeds: tuple[bytes, ...],
) -> int:
    """Count the leading blocks whose prefixes both requests share."""
    if blocks[:tools] != previous.blocks[: previous.tool_count]:
        return 0
    if seeds[1] != previous.seeds[1]:
        return tools
    if blocks[tools:front] != previous.blocks[previous.tool_count : previous.front]:
        return tools
    return front + kept if seeds[2] == previous.seeds[2] else front


def _ends(
    blocks: list[Block], front: int, messages: int, previous: Layout | None, same: int
) -> list[int]:
    ends: list[int] = []
    if previous is not None and same:
        shift = front - previous.front
        ends = previous.ends[:same]
        if shift:
            ends = [end + shift for end in ends]
    index = ends[-1] if ends else front
    for message in range(same if ends else 0, messages):
        while index < len(blocks) and blocks[index].outer == message:
            index += 1
        ends.append(index)
    return ends


def _without_old_thinking(blocks: list[Block], messages: list[Any]) -> list[Block]:
    """Leave out the thinking of turns that a plain user message has ended."""
    last = -1
    for block in reversed(blocks):
        is_plain = block.level == "messages" and block.kind != "tool_result"
        if is_plain and _role(messages[block.outer]) == "user":
            last = block.outer
            break
    return [b for b in blocks if b.kind not in _THINKING or b.outer > last]
