"""Five accidents of page management, each with the rule that prevents it.

``python -m local_backend.kvcache.lab`` runs them. A toy decoder stands for the model: the KV of a
token is a digest of the token and of all KV that its table shows, and so is the next token. One
wrong byte in one page therefore changes everything after it, as it does in a model.
"""

from __future__ import annotations

import hashlib
import sys
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field

from local_backend.kvcache.admission import AdmissionQueue
from local_backend.kvcache.caches import make_cache
from local_backend.kvcache.coordinator import make_groups
from local_backend.kvcache.keys import Namespace, TokenKey
from local_backend.kvcache.manager import CacheManager
from local_backend.kvcache.offload import Offload
from local_backend.kvcache.pages import PagePool
from local_backend.kvcache.sequence import Container, Sequence
from local_backend.kvcache.specs import simple_group
from local_backend.kvcache.store import BytesStore
from local_backend.kvcache.tiers.host import HostTier
from local_backend.kvcache.tiers.stack import TierStack
from local_backend.kvcache.writeback import StepCarrier

PAGE = 16
KV = 8
VOCABULARY = 50_000
_SPACE = Namespace("lab")
_SPEC = simple_group(PAGE, PAGE * KV)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one variant of a scenario did.

    Attributes:
        scenario: What happens.
        variant: How pages are managed.
        is_safe: Whether that is the right way.
        changed: Tokens that came out differently than alone.
        of: Out of how many.
        hit: Tokens found in the cache afterwards, where the scenario is about that.
        note: What became of the other request.
    """

    scenario: str
    variant: str
    is_safe: bool
    changed: int
    of: int
    hit: int | None = None
    note: str = ""


@dataclass(slots=True)
class Run:
    """A request as the toy decoder sees it."""

    tokens: list[int]
    table: list[int]
    answer: list[int] = field(default_factory=list)


class Toy:
    """Reads and writes KV through page tables, as attention does."""

    def __init__(self, pages: int) -> None:
        self.store = BytesStore(pages, PAGE * KV)

    def _read(self, run: Run, length: int) -> bytes:
        pages = b"".join(self.store.read_page(page) for page in run.table)
        return pages[: length * KV]

    def write(self, run: Run, position: int) -> None:
        """Compute the KV of one position from everything before it."""
        seen = self._read(run, position) + run.tokens[position].to_bytes(4, "little")
        kv = hashlib.blake2b(seen, digest_size=KV).digest()
        self.store.write_at(run.table[position // PAGE], position % PAGE * KV, kv)

    def prefill(self, run: Run, start: int = 0) -> None:
        """Compute the KV of the prompt from a position on."""
        for position in range(start, len(run.tokens)):
            self.write(run, position)

    def decode(self, run: Run, steps: int, page: Callable[[int], int]) -> None:
        """Answer some tokens; ``page`` names the page of a new position."""
        for _ in range(steps):
            seen = self._read(run, len(run.tokens))
            token = int.from_bytes(hashlib.blake2b(seen, digest_size=4).digest(), "little")
            run.tokens.append(token % VOCABULARY)
            run.answer.append(token % VOCABULARY)
            position = len(run.tokens) - 1
            place = page(position)
            if position // PAGE == len(run.table):
                run.table.append(place)
            run.table[position // PAGE] = place
            self.write(run, position)


def prompt(seed: int, length: int) -> list[int]:
    """A prompt that no other seed begins with."""
    return [(seed * 7919 + position * 31) % VOCABULARY for position in range(length)]


def alone(tokens: list[int], steps: int, then: list[int] | None = None) -> list[int]:
    """The answer of a request that has the memory to itself."""
    toy = Toy(64)
    fresh = iter(range(1, 65))
    run = Run([*tokens, *(then or [])], [next(fresh) for _ in range(-(-len(tokens) // PAGE))])
    while len(run.table) * PAGE < len(run.tokens):
        run.table.append(next(fresh))
    toy.prefill(run)
    toy.decode(run, steps, _pages_from(run, fresh.__next__))
    return run.answer


def _pages_from(run: Run, take: Callable[[], int]) -> Callable[[int], int]:
    return lambda position: (
        run.table[position // PAGE] if position // PAGE < len(run.table) else take()
    )


def differing(one: list[int], other: list[int]) -> int:
    """Positions at which two answers differ."""
    return sum(a != b for a, b in zip(one, other, strict=True))


class Recency:
    """The accident waiting to happen: pages are chosen by their last use, whoever uses them.

    Args:
        pages: How many.
        knows_use: Whether at least a flag says that a page is in use.
    """

    def __init__(self, pages: int, *, knows_use: bool) -> None:
        self.order = list(range(1, pages + 1))
        self.in_use: set[int] = set()
        self.knows_use = knows_use

    def take(self) -> int:
        """The page used longest ago, of those that count as unused."""
        for page in self.order:
            if not (self.knows_use and page in self.in_use):
                self.order.remove(page)
                self.order.append(page)
                self.in_use.add(page)
                return page
        raise RuntimeError("no page is unused")

    def end(self, pages: list[int]) -> None:
        """A request ends: its pages count as unused, also those that somebody else reads."""
        self.in_use.difference_update(pages)


def _manager(toy: Toy, pages: int, offload: Offload | None = None) -> CacheManager:
    groups = make_groups([_SPEC], {"full": pages}, tails=False, stores={"full": toy.store})
    return CacheManager(groups, offload=offload)


def _admitted(manager: CacheManager, toy: Toy, name: str, tokens: list[int]) -> Sequence:
    """Admit a request that must fit, and compute what is missing."""
    sequence = manager.admit(name, TokenKey(_SPACE, tokens))
    if sequence is None:
        raise RuntimeError(f"{name} was refused")
    toy.prefill(Run(tokens, list(sequence.pages())), sequence.computed)
    manager.commit(sequence, len(tokens))
    return sequence


def _decode(manager: CacheManager, toy: Toy, sequence: Sequence, steps: int) -> list[int]:
    run = Run(sequence.key.tokens(), list(sequence.pages()))

    def page(position: int) -> int:
        manager.append(sequence, run.tokens[position:])
        manager.prepare_write(sequence, position, position + 1)
        manager.run_copies()
        return sequence.pages()[position // PAGE]

    toy.decode(run, steps, page)
    manager.commit(sequence, len(run.tokens))
    return run.answer


def arrival_unsafe() -> Outcome:
    """B arrives while A answers; pages are taken by recency alone."""
    a, b = prompt(1, 100), prompt(2, 90)
    toy, pool = Toy(9), Recency(9, knows_use=False)
    run = Run(a[:], [pool.take() for _ in range(7)])
    toy.prefill(run)
    toy.decode(run, 8, _pages_from(run, pool.take))
    other = Run(b, [pool.take() for _ in range(6)])
    toy.prefill(other)
    toy.decode(run, 16, _pages_from(run, pool.take))
    changed = differing(run.answer[8:], alone(a, 24)[8:])
    return Outcome("B arrives while A answers", "recency only", False, changed, 16)


def arrival_safe() -> Outcome:
    """B arrives while A answers; it waits."""
    a, b = prompt(1, 100), prompt(2, 90)
    toy = Toy(9)
    manager = _manager(toy, 9)
    queue = AdmissionQueue(manager, 4)
    first = _admitted(manager, toy, "A", a)
    answer = _decode(manager, toy, first, 8)
    waits = queue.submit("B", TokenKey(_SPACE, b)) is None
    answer += _decode(manager, toy, first, 16)
    manager.release(first)
    came = [sequence.name for sequence in queue.admit_waiting()]
    note = f"B {'waits' if waits else 'runs'}, then {came[0] if came else 'nobody'} is admitted"
    changed = differing(answer[8:], alone(a, 24)[8:])
    return Outcome("B arrives while A answers", "owners counted", True, changed, 16, note=note)


def shared_unsafe() -> Outcome:
    """A1 and A2 share pages, A1 ends, B arrives; a flag says whether a page is in use."""
    a = prompt(3, 11 * PAGE)
    toy, pool = Toy(17), Recency(17, knows_use=True)
    first = Run(a[:], [pool.take() for _ in range(11)])
    toy.prefill(first)
    second = Run([*a, 7], [*first.table, pool.take()])
    toy.prefill(second, len(a))
    pool.end(first.table)
    other = Run(prompt(4, 90), [pool.take() for _ in range(6)])
    toy.prefill(other)
    toy.decode(second, 20, _pages_from(second, pool.take))
    changed = differing(second.answer, alone([*a, 7], 20))
    return Outcome("A1 of A1 and A2 ends, B arrives", "a flag for use", False, changed, 20)


def shared_safe() -> Outcome:
    """A1 and A2 share pages, A1 ends, B arrives; pins are counted."""
    a = prompt(3, 11 * PAGE)
    toy = Toy(17)
    manager = _manager(toy, 17)
    first = _admitted(manager, toy, "A1", a)
    second = _admitted(manager, toy, "A2", [*a, 7])
    manager.release(first)
    refused = manager.admit("B", TokenKey(_SPACE, prompt(4, 90))) is None
    answer = _decode(manager, toy, second, 20)
    changed = differing(answer, alone([*a, 7], 20))
    shared = second.resident // PAGE
    note = f"{shared} pages shared, B {'refused' if refused else 'admitted'}"
    return Outcome("A1 of A1 and A2 ends, B arrives", "pins counted", True, changed, 20, note=note)


def order_unsafe() -> Outcome:
    """One page of a chain of 195 tokens is evicted, its head first."""
    key = TokenKey(_SPACE, prompt(5, 195))
    chain = dict(zip(key.chain(PAGE, 12), range(1, 13), strict=False))
    del chain[next(iter(chain))]
    found = 0
    for identity in key.chain(PAGE, 12):
        if identity not in chain:
            break
        found += PAGE
    note = f"{len(chain)} pages remain and cannot be reached"
    return Outcome("one page of a chain is evicted", "head first", False, 0, 0, found, note)


def order_safe() -> Outcome:
    """One page of a chain of 195 tokens is evicted, its tail first."""
    key = TokenKey(_SPACE, prompt(5, 195))
    pool = PagePool(12)
    cache = make_cache("radix", pool, PAGE)
    pin = cache.pin(cache.match(key, 0))
    cache.extend(pin, key, pool.allocate(12))
    cache.unpin(pin)
    cache.evict(1)
    found = cache.match(key, len(key) - 1).length
    return Outcome("one page of a chain is evicted", "tail first", True, 0, 0, found)


def branch_unsafe() -> Outcome:
    """Two answers grow out of one prompt whose last page is half full; both write into it."""
    a = prompt(6, 40)
    toy = Toy(8)
    first = Run(a[:], [1, 2, 3])
    toy.prefill(first)
    second = Run([*a, 9], first.table[:])
    toy.decode(first, 4, _pages_from(first, iter((4, 5)).__next__))
    toy.write(second, len(a))
    toy.decode(second, 4, _pages_from(second, iter((6, 7)).__next__))
    toy.decode(first, 12, _pages_from(first, iter((4, 5)).__next__))
    changed = differing(first.answer[4:], alone(a, 16)[4:])
    return Outcome("two answers share their last page", "both write it", False, changed, 12)


def branch_safe() -> Outcome:
    """Two answers grow out of one prompt whose last page is half full; it is copied first."""
    a = prompt(6, 40)
    toy = Toy(8)
    manager = _manager(toy, 8)
    first = _admitted(manager, toy, "A", a)
    second = manager.fork(first, "B")
    answer = _decode(manager, toy, first, 4)
    manager.append(second, [9])
    manager.prepare_write(second, len(a), len(a) + 1)
    manager.run_copies()
    toy.write(Run(second.key.tokens(), list(second.pages())), len(a))
    other = _decode(manager, toy, second, 4)
    answer += _decode(manager, toy, first, 12)
    changed = differing(answer[4:], alone(a, 16)[4:]) + differing(other, alone(a, 4, [9]))
    return Outcome("two answers share their last page", "copied first", True, changed, 12)


def _offload_scene(*, holds: bool) -> Outcome:
    """A's pages are under way to a tier when B needs room; then A comes back."""
    a, b = prompt(7, 64), prompt(8, 60)
    toy = Toy(5)
    tiers = TierStack([HostTier(1 << 20)])
    carrier = StepCarrier(tiers)
    offload = Offload(tiers, carrier=carrier)
    manager = _manager(toy, 5, offload if holds else None)
    first = _admitted(manager, toy, "A", a)
    pages = array("i", first.pages()[:4])
    manager.release(first)
    other = manager.admit("B", TokenKey(_SPACE, b))
    note = "B waits for the copy" if other is None else "B overwrites the page"
    if other is not None:
        toy.prefill(Run(b, list(other.pages())))
        manager.commit(other, len(b))
        manager.release(other)
        for page, key in zip(pages, TokenKey(_SPACE, a).chain(PAGE, 4), strict=True):
            tiers.store(_SPEC, key, toy.store.read_page(page))
    carrier.flush()
    manager = _manager(toy, 5, Offload(tiers, carrier=carrier))
    again = manager.admit("A", TokenKey(_SPACE, a), reserve=16, container=Container.STATIC)
    if again is None:
        raise RuntimeError("A was refused")
    toy.prefill(Run(a, list(again.pages())), again.computed)
    answer = _decode(manager, toy, again, 16)
    variant = "pinned until written" if holds else "written whenever"
    changed = differing(answer, alone(a, 16))
    return Outcome(
        "A is on its way to a tier, B needs room", variant, holds, changed, 16, again.restored, note
    )


def offload_unsafe() -> Outcome:
    """Pages under way are not protected."""
    return _offload_scene(holds=False)


def offload_safe() -> Outcome:
    """Pages under way are pinned."""
    return _offload_scene(holds=True)


SCENARIOS: tuple[Callable[[], Outcome], ...] = (
    arrival_unsafe,
    arrival_safe,
    shared_unsafe,
    shared_safe,
    order_unsafe,
    order_safe,
    branch_unsafe,
    branch_safe,
    offload_unsafe,
    offload_safe,
)


def main() -> int:
    """Run all, and print one line each."""
    for scenario in SCENARIOS:
        outcome = scenario()
        what = f"{outcome.changed} of {outcome.of} tokens changed" if outcome.of else ""
        found = "" if outcome.hit is None else f"{outcome.hit} tokens found"
        told = "; ".join(part for part in (what, found, outcome.note) if part)
        sys.stdout.write(f"{outcome.scenario:40} {outcome.variant:22} {told}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
