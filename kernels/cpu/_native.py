"""The compiled kernels: loaded at first use, or a reason why there are none."""

from __future__ import annotations

import ctypes
import functools
import os
from array import array
from collections.abc import Mapping
from contextvars import ContextVar
from ctypes import c_double, c_int, c_int64, c_long, c_void_p
from dataclasses import dataclass, field
from typing import Any, Final

from local_backend.kernels.cpu._build import BuildError, build
from local_backend.kernels.errors import IndexRangeError, KernelError

MODE = "CACHEAUDIT_NATIVE"
THREADS = "CACHEAUDIT_THREADS"
SPIN = "CACHEAUDIT_SPIN_US"
MODES = ("auto", "no-amx", "portable", "off")
FLOAT32: Final = 0
BFLOAT16: Final = 1
_BAD_INDEX = 1
_NO_MEMORY = 2
_SPIN_US = 50


def _pointers(names: str) -> list[tuple[str, Any]]:
    return [(name, c_void_p) for name in names.split()]


def _numbers(names: str) -> list[tuple[str, Any]]:
    return [(name, c_int64) for name in names.split()]


class AttentionArguments(ctypes.Structure):
    """``attention_args`` of ``attention.h``."""

    _fields_ = (
        *_pointers("query key value out tables lengths offsets"),
        *_numbers("query_token query_head out_token out_head key_page key_token key_head"),
        *_numbers("value_page value_token value_head table_row batch heads kv_heads dim"),
        *_numbers("pages page_size tables_width window causal type"),
        ("scale", c_double),
    )


class LinearArguments(ctypes.Structure):
    """``linear_args`` of ``linear.c``."""

    _fields_ = (
        *_pointers("x packed residual out"),
        *_numbers("x_row residual_row out_row m n k type end"),
    )


class PackArguments(ctypes.Structure):
    """``pack_args`` of ``linear.c``."""

    _fields_ = (*_pointers("weight packed"), *_numbers("row n k type unpack"))


class NormArguments(ctypes.Structure):
    """``norm_args`` of ``fused.c``."""

    _fields_ = (
        *_pointers("x weight residual out"),
        *_numbers("x_row residual_row out_row rows width type"),
        ("epsilon", c_double),
        ("offset", c_double),
        ("step", c_int64),
    )


class GateArguments(ctypes.Structure):
    """``gate_args`` of ``fused.c``."""

    _fields_ = (*_pointers("x out"), *_numbers("x_row out_row rows width type kind step"))


class RopeArguments(ctypes.Structure):
    """``rope_args`` of ``fused.c``."""

    _fields_ = (
        *_pointers("x positions cosines sines"),
        *_numbers("token head tokens heads turned places type is_interleaved step"),
    )


class StoreArguments(ctypes.Structure):
    """``store_args`` of ``fused.c``."""

    _fields_ = (
        *_pointers("key value key_pages value_pages slots"),
        *_numbers("key_token key_head value_token value_head"),
        *_numbers("key_page key_slot key_page_head value_page value_slot value_page_head"),
        *_numbers("tokens heads row pages page_size step"),
    )


class CopyArguments(ctypes.Structure):
    """``copy_args`` of ``fused.c``."""

    _fields_ = (
        *_pointers("key_pages value_pages pairs"),
        *_numbers("key_page value_page page_bytes pages count"),
    )


_CALLS: Final[Mapping[str, type[ctypes.Structure]]] = {
    "ck_attention": AttentionArguments,
    "ck_linear": LinearArguments,
    "ck_pack": PackArguments,
    "ck_rms_norm": NormArguments,
    "ck_gate": GateArguments,
    "ck_rope": RopeArguments,
    "ck_store": StoreArguments,
    "ck_copy_pages": CopyArguments,
}


@dataclass(frozen=True)
class Native:
    """The compiled library, or why it is missing.

    Attributes:
        library: The library; ``None`` where there is none.
        reason: Why there is none; empty where there is one.
        uses_amx: Whether bf16 goes to the matrix unit of the processor.
        addresses: Where its functions are, by name.
    """

    library: ctypes.CDLL | None
    reason: str = ""
    uses_amx: bool = False
    addresses: Mapping[str, int] = field(default_factory=dict)

    def call(self, name: str, arguments: ctypes.Structure) -> None:
        """Run a function of the library on the arguments, or note it down to be run later.

        Raises:
            IndexRangeError: A page, slot or position does not exist.
            KernelError: No memory, or no library.
        """
        if self.library is None:
            raise KernelError(f"The compiled kernels are missing: {self.reason}.")
        later = LATER.get()
        if later is None:
            _check(getattr(self.library, name)(ctypes.byref(arguments)), name)
        else:
            later.add(name, arguments)

    def run(self, calls: list[tuple[str, ctypes.Structure]]) -> None:
        """Run functions of the library one after the other, up to the first that fails.

        Raises:
            IndexRangeError: A page, slot or position does not exist.
            KernelError: No memory, or no library.
        """
        if self.library is None:
            raise KernelError(f"The compiled kernels are missing: {self.reason}.")
        table = array("Q")
        for name, arguments in calls:
            table.append(self.addresses[name])
            table.append(ctypes.addressof(arguments))
        failed = c_int64(0)
        start, _ = table.buffer_info()
        code = self.library.ck_run(start, len(calls), ctypes.byref(failed))
        if code:
            _check(code, calls[failed.value][0])

    def packed_bytes(self, rows: int, columns: int, kind: int) -> int:
        """Bytes of the packed form of a weight."""
        if self.library is None:
            raise KernelError(f"The compiled kernels are missing: {self.reason}.")
        return int(self.library.ck_packed_bytes(rows, columns, kind))

    def ask_for_large_pages(self, start: int, size: int) -> None:
        """Ask the system to back fresh memory by large pages; it may not."""
        if self.library is not None:
            self.library.ck_ask_for_large_pages(start, size)

    def set_threads(self, threads: int, spin_us: int) -> None:
        """See :func:`local_backend.kernels.threads.set_threads`."""
        if self.library is not None:
            self.library.ck_set_threads(threads, spin_us * 1000)

    def threads(self) -> int:
        """Threads that a call may use."""
        return 1 if self.library is None else int(self.library.ck_threads())


def _check(code: int, name: str) -> None:
    if code == _BAD_INDEX:
        raise IndexRangeError(f"{name[3:]}: a page, slot or position does not exist.")
    if code == _NO_MEMORY:
        raise KernelError(f"{name[3:]}: out of memory.")


class Later:
    """Calls that were noted down; see ``kernels.deferred``.

    Args:
        library: What they are calls of.
    """

    def __init__(self, library: Native) -> None:
        self._library = library
        self._calls: list[tuple[str, ctypes.Structure]] = []
        self._kept: list[object] = []

    def add(self, name: str, arguments: ctypes.Structure) -> None:
        """Note a call down."""
        self._calls.append((name, arguments))

    def keep(self, *tensors: object) -> None:
        """Keep what the calls have addresses of until they have run."""
        self._kept.append(tensors)

    def run(self) -> None:
        """Run what was noted down so far."""
        calls, self._calls = self._calls, []
        try:
            if calls:
                self._library.run(calls)
        finally:
            self._kept.clear()


LATER: Final[ContextVar[Later | None]] = ContextVar("kernels_later", default=None)


@functools.cache
def native() -> Native:
    """Return the library that the environment asks for; compiled at the first call ever."""
    return load(os.environ)


def load(environment: Mapping[str, str]) -> Native:
    """Build and load a library by the given environment."""
    mode = environment.get(MODE, "").strip() or "auto"
    if mode not in MODES:
        raise KernelError(f"{MODE} is {mode!r}; it may be: {', '.join(MODES)}.")
    if mode == "off":
        return Native(None, f"{MODE} is off")
    try:
        library = ctypes.CDLL(str(build(environment, portable=mode == "portable")))
    except (BuildError, OSError) as error:
        return Native(None, str(error))
    return _declared(library, environment, allow_amx=mode == "auto")


def _declared(library: ctypes.CDLL, environment: Mapping[str, str], *, allow_amx: bool) -> Native:
    for name, structure in _CALLS.items():
        function = getattr(library, name)
        function.argtypes = [ctypes.POINTER(structure)]
        function.restype = c_int
    library.ck_pack.restype = None
    library.ck_run.argtypes = [c_void_p, c_int64, ctypes.POINTER(c_int64)]
    library.ck_run.restype = c_int
    addresses = {name: ctypes.cast(getattr(library, name), c_void_p).value or 0 for name in _CALLS}
    library.ck_packed_bytes.argtypes = [c_int64, c_int64, c_int64]
    library.ck_packed_bytes.restype = c_int64
    library.ck_ask_for_large_pages.argtypes = [c_void_p, c_int64]
    library.ck_ask_for_large_pages.restype = None
    library.ck_set_threads.argtypes = [c_int, c_long]
    library.ck_set_threads.restype = None
    uses_amx = bool(library.ck_allow_amx(int(allow_amx)))
    found = Native(library, uses_amx=uses_amx, addresses=addresses)
    found.set_threads(
        _count(environment, THREADS, _processors()), _count(environment, SPIN, _SPIN_US)
    )
    return found


def _processors() -> int:
    """Processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _count(environment: Mapping[str, str], name: str, otherwise: int) -> int:
    text = environment.get(name, "").strip()
    if not text:
        return otherwise
    if not text.isdecimal():
        raise KernelError(f"{name} is {text!r}; it must be a whole number.")
    return int(text)
