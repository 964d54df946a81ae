"""The joint hit: the longest prefix that every group of layers can continue from."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from local_backend.errors import UnsupportedSpecError
from local_backend.kvcache.base import PrefixCache
from local_backend.kvcache.caches import make_cache, policy_named
from local_backend.kvcache.evict import Lru
from local_backend.kvcache.groups import NOTHING, CacheGroup, Plan
from local_backend.kvcache.keys import TokenKey
from local_backend.kvcache.paged import PagedGroup
from local_backend.kvcache.pages import PagePool
from local_backend.kvcache.specs import GroupSpec, Needs
from local_backend.kvcache.store import PageStore
from local_backend.kvcache.tiers.stack import TierStack
from local_backend.kvcache.windowed import WindowGroup


@dataclass(slots=True)
class JointPlan:
    """What all groups can restore together.

    Attributes:
        length: Tokens in whole pages.
        plans: Of each group, for that length.
        limited_by: The group that allowed least; empty where all allowed as much.
        alone: What each group would allow by itself; None for a single group.
    """

    length: int
    plans: list[Plan]
    limited_by: str = ""
    alone: dict[str, int] | None = None


def make_groups(
    specs: Sequence[GroupSpec],
    pages: Mapping[str, int],
    *,
    cache: str = "radix",
    policy: str = "lru",
    tails: bool = True,
    stores: Mapping[str, PageStore] | None = None,
) -> tuple[CacheGroup, ...]:
    """A pool and a cache for each group.

    Args:
        specs: The groups.
        pages: How many pages each may have.
        cache: Prefix cache of groups that need the whole prefix.
        policy: Order of eviction.
        tails: Whether parts of pages are reused by copying; only where there is a single group.
        stores: The bytes, by group.

    Raises:
        UnsupportedSpecError: A group needs states at boundaries, which are not managed yet.
        ValueError: A name is unknown, or the page sizes differ.
    """
    if len({spec.page_size for spec in specs}) > 1:
        raise ValueError("all groups of a model need the same page size")
    found: list[CacheGroup] = []
    for spec in specs:
        pool = PagePool(pages[spec.name])
        store = None if stores is None else stores.get(spec.name)
        if spec.needs is Needs.PREFIX:
            index: PrefixCache = make_cache(
                cache, pool, spec.page_size, policy=policy, tails=tails and len(specs) == 1
            )
            found.append(PagedGroup(spec, pool, store, index))
        elif spec.needs is Needs.WINDOW:
            order = policy_named(policy)
            # Pages of a window are no chains, so there is nothing to learn from their ends.
            found.append(WindowGroup(spec, pool, store, order if order.is_ranked else Lru()))
        else:
            raise UnsupportedSpecError(
                f"group {spec.name} keeps recurrent states, which this version does not cache"
            )
    return tuple(found)


def plan_jointly(
    groups: Sequence[CacheGroup],
    key: TokenKey,
    limit: int,
    tiers: TierStack | None = None,
    without: Collection[bytes] = NOTHING,
) -> JointPlan:
    """The longest prefix that all groups can restore.

    Each group shortens what the others offered until none objects. A group may object to a
    shorter prefix although it accepted a longer one, hence the repetition; it ends, since every
    round is shorter.

    Args:
        groups: Of one model.
        key: The prompt.
        limit: Most tokens, usually one less than the prompt has, so that something is computed.
        tiers: Where pages may be besides the memory.
        without: Identities that a tier claimed to have and did not give.
    """
    if len(groups) == 1:
        plan = groups[0].plan(key, limit, tiers, without)
        return JointPlan(plan.length, [plan])
    plans = [group.plan(key, limit, tiers, without) for group in groups]
    alone = {g.spec.name: plan.length for g, plan in zip(groups, plans, strict=True)}
    align = math.lcm(*(group.page_size for group in groups))
    least = min(groups, key=lambda group: alone[group.spec.name]).spec.name
    limited_by = least if len(set(alone.values())) > 1 else ""
    length = alone[least] // align * align
    while True:
        plans = [group.plan(key, length, tiers, without) for group in groups]
        shortest = min(range(len(groups)), key=lambda index: plans[index].length)
        if plans[shortest].length == length:
            return JointPlan(length, plans, limited_by, alone)
        length = plans[shortest].length // align * align
        limited_by = groups[shortest].spec.name
