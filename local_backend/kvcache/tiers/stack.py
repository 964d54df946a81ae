"""Several tiers as one: the longest match over all of them, each page from the fastest."""

from __future__ import annotations

from collections.abc import Sequence

from local_backend.kvcache.specs import GroupSpec
from local_backend.kvcache.tiers.base import Tier
from local_backend.kvcache.tiers.record import tier_key


class TierStack:
    """Tiers in order, the fastest first.

    Args:
        tiers: Each is looked at for every page; a page is stored in all that take it.
    """

    def __init__(self, tiers: Sequence[Tier]) -> None:
        self.tiers = tuple(tiers)
        # Pages that a tier has and that are of no use, such as those of another memory layout.
        self._useless: set[tuple[int, bytes]] = set()

    def held(self, group: GroupSpec, keys: Sequence[bytes]) -> set[bytes]:
        """Those of a group's pages that any tier has."""
        names = {tier_key(group.name, key): key for key in keys}
        found: set[bytes] = set()
        for tier in self.tiers:
            missing = [name for name in names if name not in found]
            if not missing:
                break
            found |= tier.held(missing)
        return {names[name] for name in found}

    def load(self, group: GroupSpec, key: bytes) -> tuple[bytes, str] | None:
        """The bytes of a page and the name of the tier that had it; None where none has it whole.

        A page that a slower tier had is put into the faster ones.
        """
        name = tier_key(group.name, key)
        for index, tier in enumerate(self.tiers):
            payload = tier.load(name, group.layout)
            if payload is None:
                if tier.held([name]):
                    self._useless.add((index, name))
                continue
            if len(payload) != group.page_bytes:
                tier.counters.refuse("size")
                continue
            for faster in self.tiers[:index]:
                faster.store(name, group.layout, payload)
            return payload, tier.name
        return None

    def store(self, group: GroupSpec, key: bytes, payload: bytes) -> int:
        """Keep a page in every tier that lacks it; how many have it now."""
        name = tier_key(group.name, key)
        kept = 0
        for index, tier in enumerate(self.tiers):
            place = (index, name)
            is_there = place not in self._useless and tier.held([name])
            if is_there or tier.store(name, group.layout, payload):
                self._useless.discard(place)
                kept += 1
        return kept

    def close(self) -> None:
        """Close every tier."""
        for tier in self.tiers:
            tier.close()
