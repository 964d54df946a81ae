"""Places that pages go to when they leave the working memory: host memory, disk, a process."""

from __future__ import annotations

from local_backend.kvcache.tiers.disk import DiskTier
from local_backend.kvcache.tiers.host import HostTier
from local_backend.kvcache.tiers.peer import PeerTier
from local_backend.kvcache.tiers.stack import TierStack

__all__ = ["DiskTier", "HostTier", "PeerTier", "TierStack"]
