"""Keeps the KV of prompts in pages, and finds it again. Loads no numeric library."""

from __future__ import annotations

from local_backend.kvcache.admission import AdmissionQueue
from local_backend.kvcache.coordinator import make_groups
from local_backend.kvcache.keys import Namespace, Span, TokenKey
from local_backend.kvcache.manager import CacheManager
from local_backend.kvcache.offload import Offload, WriteMode
from local_backend.kvcache.pages import NULL_PAGE, SizeInfo
from local_backend.kvcache.sequence import CacheUsage, Container, Sequence
from local_backend.kvcache.specs import FullKV, GroupSpec, LayerSpec, WindowKV, group_layers
from local_backend.kvcache.store import BytesStore, PageStore

__all__ = [
    "NULL_PAGE",
    "AdmissionQueue",
    "BytesStore",
    "CacheManager",
    "CacheUsage",
    "Container",
    "FullKV",
    "GroupSpec",
    "LayerSpec",
    "Namespace",
    "Offload",
    "PageStore",
    "Sequence",
    "SizeInfo",
    "Span",
    "TokenKey",
    "WindowKV",
    "WriteMode",
    "group_layers",
    "make_groups",
]
