"""Turns recorded calls into what a cache machine is fed.

Calls must come in order of their start. Sizes are kept by prefix: what two prompts share has one
size, whichever call it was learnt from, and the work of a call is proportional to what is new.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from cacheaudit.model.call import Call, Session
from cacheaudit.model.prompt import ContentBlock, Parameter, Prompt, chain
from cacheaudit.model.tokens import estimate
from cacheaudit.providers.facts import Rules, rules
from cacheaudit.simulate.betas import betas_of
from cacheaudit.simulate.request import Field, Mark, SimRequest, Sums, is_sketch, known_prefix
from cacheaudit.simulate.switches import Switches

_MOMENT: Final = 1e-3
_LONGEST_BLANK: Final = 4_096
# Where a call says whose cache it used; what lies inside an organisation may share one.
_OWNERS: Final = ("account", "account_id", "organization", "organization_id")
_PARTS: Final = ("workspace", "workspace_id", "project_id", "namespace", "api_key_id")
_THINKING: Final = frozenset({"thinking", "redacted_thinking"})
_SERVER_RESULTS: Final = frozenset(
    {
        "web_search_tool_result", "web_fetch_tool_result", "code_execution_tool_result",
        "bash_code_execution_tool_result", "text_editor_code_execution_tool_result",
        "tool_search_tool_result",
    }
)  # fmt: skip
_TOOL_CHOICE: Final = frozenset(
    {"tool_choice", "tool_choice.disable_parallel_tool_use", "toolConfig.toolChoice"}
)
# Switch, parameters that it is about.
_LEVELLED: Final = (
    ("tool_choice", _TOOL_CHOICE),
    ("thinking", frozenset({"thinking", "additionalModelRequestFields"})),
    ("effort", frozenset({"output_config.effort"})),
    ("speed", frozenset({"speed"})),
)
_OBJECTS: Final = frozenset({"cachedContent", "cached_content"})


class Refusal(msgspec.Struct, frozen=True):
    """A call that cannot be simulated.

    Attributes:
        id: Call id.
        reason: ``no_body``, ``no_start_time``, ``unknown_rules``, ``failed``, ``many_requests`` …
        detail: What exactly is missing.
    """

    id: str
    reason: str
    detail: str = ""


class Built(msgspec.Struct, frozen=True):
    """A request and the rules that its cache follows.

    Attributes:
        request: What the machine is fed.
        rules: Facts in force.
        sized: ``recorded``, ``calibrated`` on the recorded total, or ``estimated``.
        gap: Recorded total minus the sum of the sizes; ``None`` where no total is recorded.
        doubt: Why the machine has to be fed but its answer says nothing.
    """

    request: SimRequest
    rules: Rules
    sized: str
    gap: int | None
    doubt: Refusal | None = None


def in_order(calls: Session | Iterable[Session] | Iterable[Call]) -> list[Call]:
    """Merge the calls of any number of sessions and lanes in order of their start."""
    flat = list(_flat(calls))
    return [flat[i] for i in sorted(range(len(flat)), key=lambda i: (_start(flat[i]), i))]


def _flat(calls: Session | Iterable[Session] | Iterable[Call]) -> Iterator[Call]:
    if isinstance(calls, Session):
        yield from calls.calls
        return
    for item in calls:
        if isinstance(item, Session):
            yield from item.calls
        else:
            yield item


def _start(call: Call) -> float:
    return call.at if call.at is not None else 0.0


def rules_of(call: Call) -> Rules | None:
    """Return the facts in force for a call; those of today where its times are not dates."""
    moment = None if call.relative_time else call.at
    return rules(call.provider, call.model, moment, call.surface)


def assumed_rules(call: Call) -> Rules | None:
    """Take usage that counts writes but names neither provider nor model for Anthropic's."""
    if call.provider is not None or call.model is not None:
        return None
    return rules_of(msgspec.structs.replace(call, provider="anthropic", surface="claude_api"))


def requests(
    calls: Session | Iterable[Session] | Iterable[Call], switches: Switches | None = None
) -> list[SimRequest | Refusal]:
    """Build the requests of all calls that have a body, in order of their start."""
    builder = Builder(switches or Switches())
    made = (builder.build(call) for call in in_order(calls))
    return [item.request if isinstance(item, Built) else item for item in made]


class Builder:
    """Builds requests one by one and remembers the sizes of prefixes.

    Args:
        switches: Disputed rules.
    """

    def __init__(self, switches: Switches) -> None:
        self._switches = switches
        self._sizes: dict[str, dict[bytes, int]] = {}
        self._ratios: dict[str, tuple[int, int]] = {}
        self._lanes: dict[tuple[str, str], Prompt] = {}
        self._objects: dict[tuple[str, str], int] = {}

    def build(self, call: Call) -> Built | Refusal:
        """Build one request; its call must not start before those built already."""
        if call.prompt is None:
            return Refusal(call.id, "no_body", "the request was not recorded")
        reason = unusable(call)
        if reason is not None:
            return reason
        facts = rules_of(call) or (assumed_rules(call) if is_sketch(call.prompt) else None)
        if facts is None or facts.machine is None:
            what = f"{call.provider or 'unknown provider'}, {call.model or 'unknown model'}"
            return Refusal(call.id, "unknown_rules", f"no cache rules are known of {what}")
        start = call.start_bounds
        if start is None:
            return Refusal(call.id, "no_start_time", "the start of the request is not known")
        return self._request(call, call.prompt, facts, start.high)

    def _request(self, call: Call, sent: Prompt, facts: Rules, at: float) -> Built:
        prompt = self._adjusted(call, sent, facts)
        family = f"{facts.provider}/{facts.model}"
        total = call.usage.prompt_size if call.usage is not None else None
        name = _object_name(sent)
        held = None if name is None else self._objects.get((family, name))
        visible = total if held is None or total is None else total - held
        sizes, sized, gap = self._sized(prompt, family, visible, facts)
        doubt = _cleared(call, prompt, gap)
        if name is not None and held is None:
            held = self._learn(call, (family, name), gap if sized == "recorded" else None)
            if held is None:
                doubt = Refusal(call.id, "object_size_unknown", "size of the cache object")
        first = call.first_token_at
        readable = first if first is not None else call.ended_at
        readable = at + _MOMENT if readable is None else max(readable, at)
        marks, invalid = _marks(prompt, facts, self._switches)
        blocks = prompt.blocks
        return Built(
            SimRequest(
                id=call.id,
                at=at,
                readable_at=readable,
                ended_at=readable if call.ended_at is None else max(call.ended_at, readable),
                model=facts.model,
                scope=scope_of(call, facts),
                digests=prompt.prefix_digests,
                sizes=sizes,
                kinds=Field(blocks, "kind"),
                marks=marks,
                variant=_variant(call, sent, facts, self._switches),
                is_prewarm=call.purpose in ("warm_up", "keep_alive"),
                roles=Field(blocks, "role"),
                messages=Field(blocks, "message"),
                only_marked=prompt.only_explicit,
                ttl=_ttl(prompt),
                cached_object=name,
                object_tokens=held,
                invalid=invalid,
            ),
            facts,
            sized,
            gap,
            doubt,
        )

    def _learn(self, call: Call, name: tuple[str, str], gap: int | None) -> int | None:
        """Find the size of a cache object: what recorded sizes leave of the total.

        Else later calls take what this one reports as read; of this one nothing is predicted.
        """
        if gap is not None and gap > 0:
            self._objects[name] = gap
            return gap
        if call.usage is not None and call.usage.cache_read:
            self._objects[name] = call.usage.cache_read
        return None

    # ── what is part of the prefix ───────────────────────────────────────────────────────────────

    def _adjusted(self, call: Call, prompt: Prompt, facts: Rules) -> Prompt:
        """Chain the prompt anew where its rules differ from those that it was expanded by."""
        parameters = _parameters(prompt, facts, self._switches)
        blocks = prompt.blocks
        if facts.text("thinking_retention") == "last_turn":
            blocks = _without_old_thinking(blocks)
        if blocks is prompt.blocks and parameters is prompt.parameters:
            return prompt
        lane = (call.session, call.lane)
        digests = chain(prompt.level_order, parameters, blocks, self._lanes.get(lane))
        adjusted = msgspec.structs.replace(
            prompt, parameters=parameters, blocks=blocks, prefix_digests=digests
        )
        self._lanes[lane] = adjusted
        return adjusted

    # ── sizes ────────────────────────────────────────────────────────────────────────────────────

    def _sized(
        self, prompt: Prompt, family: str, total: int | None, facts: Rules
    ) -> tuple[Sums, str, int | None]:
        known = self._sizes.setdefault(family, {})
        digests = prompt.prefix_digests
        shared = known_prefix(digests, known)
        running = known[digests[shared - 1]] if shared else 0
        new = prompt.blocks[shared:]
        recorded = all(map(_is_known, new))
        if recorded and not shared and total is not None:
            new, running = _with_hidden(new, running, total, facts)
        if recorded:
            for digest, block in zip(digests[shared:], new, strict=True):
                running += block.tokens or 0
                known[digest] = running
            gap = None if total is None else total - running
            estimated = prompt.blocks and prompt.blocks[-1].tokens_origin == "estimated"
            return Sums(digests, known), "calibrated" if estimated else "recorded", gap
        how = self._spread(known, digests[shared:], new, running, total, family)
        gap = None if total is None or not digests else total - known[digests[-1]]
        return Sums(digests, known), how, gap

    def _spread(
        self,
        known: dict[bytes, int],
        digests: tuple[bytes, ...],
        new: tuple[ContentBlock, ...],
        running: int,
        total: int | None,
        family: str,
    ) -> str:
        """Share out what the recorded total leaves for content blocks of unknown size."""
        fixed = sum(block.tokens or 0 for block in new if _is_known(block))
        weights = [0 if _is_known(block) else estimate(block) for block in new]
        whole = sum(weights)
        rest = -1 if total is None else total - running - fixed
        how = "calibrated"
        if rest < 0:
            told, guessed = self._ratios.get(family, (1, 1))
            rest, how = whole * told // guessed, "estimated"
        elif whole:
            told, guessed = self._ratios.get(family, (0, 0))
            self._ratios[family] = (told + rest, guessed + whole)
        passed = given = 0
        for digest, block, weight in zip(digests, new, weights, strict=True):
            if weight:
                passed += weight
                upto = rest * passed // whole
                running += upto - given
                given = upto
            else:
                running += block.tokens or 0
            known[digest] = running
        return how


def unusable(call: Call) -> Refusal | None:
    """Say why a call tells nothing of the cache, if it does not."""
    if call.error is not None and (call.usage is None or not call.usage.prompt_size):
        return Refusal(call.id, "failed", "the call failed and reports no input")
    if call.requests != 1:
        return Refusal(call.id, "many_requests", "the record sums up several requests")
    return None


def _is_known(block: ContentBlock) -> bool:
    return block.tokens is not None and block.tokens_origin != "estimated"


def _with_hidden(
    new: tuple[ContentBlock, ...], running: int, total: int, facts: Rules
) -> tuple[tuple[ContentBlock, ...], int]:
    """Count the provider's own text on tools where it explains the difference to the total."""
    gap = total - sum(block.tokens or 0 for block in new)
    hidden = facts.value("hidden_tool_tokens", [])
    if gap <= 0 or gap not in hidden or not new or new[0].level != "tools":
        return new, running
    return new, running + gap


def is_clearing(parameter: Parameter) -> bool:
    """Whether a setting asks the provider to clear parts of the conversation."""
    return parameter.name == "context_management" and b"clear_" in parameter.value


def _cleared(call: Call, prompt: Prompt, gap: int | None) -> Refusal | None:
    """Say so where the provider counted less than what stands in front of what is new."""
    if gap is None or gap >= 0 or not any(map(is_clearing, prompt.parameters)):
        return None
    return Refusal(call.id, "context_cleared", "part of the prompt was cleared by the provider")


def scope_of(call: Call, facts: Rules) -> str:
    """Name the cache that a call used: requests of different scopes share nothing."""
    scope = f"{facts.provider}/{facts.surface or ''}/{facts.model}"
    if not call.extra:
        return scope
    return scope + "".join(f"/{name}={value}" for name, value in owners_of(call, facts).items())


def owners_of(call: Call, facts: Rules) -> dict[str, str]:
    """Return whose cache the record says that a call used, by the name of the field."""
    extra = call.extra
    names = _OWNERS if facts.text("isolation") == "organization" else (*_OWNERS, *_PARTS)
    return {name: str(extra[name]) for name in names if extra.get(name) is not None}


def _parameters(prompt: Prompt, facts: Rules, switches: Switches) -> tuple[Parameter, ...]:
    """Leave out settings that are no part of the key; the same object where all of them are."""
    out: set[str] = set(facts.value("ignored_parameters", ()))
    for name, about in _LEVELLED:
        if switches.choice(name, facts.text(f"drops.{name}") or "") == "nothing":
            out |= about
    kept = tuple(p for p in prompt.parameters if p.name not in out)
    if switches.choice("images", facts.text("drops.images") or "nothing") == "messages":
        shown = any(block.kind == "image" for block in prompt.blocks)
        kept += (Parameter("images", "messages", b"true"),) if shown else ()
    return prompt.parameters if kept == prompt.parameters else kept


def _variant(call: Call, prompt: Prompt, facts: Rules, switches: Switches) -> str:
    """Write down the settings that are rendered ahead of the tools."""
    parts: list[str] = []
    for name, about in _LEVELLED:
        if switches.choice(name, facts.text(f"drops.{name}") or "") == "tools":
            parts += [f"{p.name}={p.value!r}" for p in prompt.parameters if p.name in about]
    if switches.choice("beta_headers", facts.text("drops.beta_headers") or "") == "tools":
        features = betas_of(call)
        parts += [] if features is None else [f"betas={sorted(set(features))}"]
    return ";".join(parts)


def _without_old_thinking(blocks: tuple[ContentBlock, ...]) -> tuple[ContentBlock, ...]:
    """Drop the thinking of turns that a plain user message has ended."""
    if not any(block.kind in _THINKING for block in blocks):
        return blocks
    last = -1
    for block in reversed(blocks):
        if block.role == "user" and block.kind != "tool_result":
            last = block.message
            break
    kept = tuple(b for b in blocks if b.kind not in _THINKING or b.message > last)
    return blocks if len(kept) == len(blocks) else kept


def _marks(prompt: Prompt, facts: Rules, switches: Switches) -> tuple[tuple[Mark, ...], str | None]:
    """List the markers, and say if one stands where none is allowed."""
    blocks = prompt.blocks
    found = [
        Mark(index, marker.ttl)
        for index in prompt.marked
        if (marker := blocks[index].marker) is not None
    ]
    invalid = next(filter(None, (_forbidden(blocks[mark.index]) for mark in found)), None)
    if prompt.automatic_marker is not None and blocks:
        index = len(blocks) - 1
        while index > 0 and _forbidden(blocks[index]) is not None:
            index -= 1
        found.append(Mark(index, prompt.automatic_marker.ttl, automatic=True))
    writes = "write" if facts.flag("server_tool_writes") else "ignore"
    if found and switches.choice("server_tools", writes) == "write":
        behind = max(mark.index for mark in found)
        for index in range(len(blocks) - 1, behind, -1):
            if blocks[index].kind in _SERVER_RESULTS:
                found.append(Mark(index, "5m", own=True))
                break
    return tuple(found), invalid


def _forbidden(block: ContentBlock) -> str | None:
    """Say why a content block cannot bear a marker."""
    if block.kind in _THINKING:
        return f"{block.path}: a {block.kind} content block cannot be marked"
    if block.kind == "text" and _is_blank(block):
        return f"{block.path}: empty text cannot be marked"
    if block.level == "tools" and b'"defer_loading":true' in block.canonical:
        return f"{block.path}: a tool with defer_loading cannot be marked"
    return None


def _is_blank(block: ContentBlock) -> bool:
    """Whether a text has nothing but blanks; where only a digest was kept, it has not."""
    if not block.canonical or len(block.canonical) > _LONGEST_BLANK:
        return False
    text = msgspec.json.decode(block.canonical).get("text")
    return isinstance(text, str) and not text.strip()


def _ttl(prompt: Prompt) -> str | None:
    """Lifetime that a request asks for outside its markers."""
    return None if prompt.automatic_marker is None else prompt.automatic_marker.ttl


def _object_name(prompt: Prompt) -> str | None:
    for parameter in prompt.parameters:
        if parameter.name in _OBJECTS:
            return parameter.value.decode()
    return None
