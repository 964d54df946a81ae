"""Which implementations there are, and which of them a call goes to.

An operation is one file in ``ops`` that defines ``OPERATION``; an implementation is one file in
``cpu``, ``torch_`` or ``triton_`` that defines ``IMPLEMENTATION``. Dropping a file in is all it
takes; a name with an underscore in front is a helper.
"""

from __future__ import annotations

import importlib
import importlib.util
import operator
import os
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from local_backend.kernels.errors import UnsupportedKernelError

SWITCH = "CACHEAUDIT_KERNELS"
REFERENCE = "reference"
_FOLDERS = ("cpu", "torch_", "triton_")


def _always(*_: Any, **__: Any) -> bool:
    return True


@dataclass(frozen=True, kw_only=True)
class Implementation:
    """One way to compute an operation.

    Attributes:
        operation: Name of the operation.
        backend: Name that ``CACHEAUDIT_KERNELS`` selects it by.
        function: Same signature as the operation.
        requires: Modules that must be importable. They are not imported to find out.
        priority: The highest that supports the arguments is called; the reference has 0.
        supports: Whether it can take these arguments.
    """

    operation: str
    backend: str
    function: Callable[..., Any]
    requires: tuple[str, ...] = ()
    priority: int = 10
    supports: Callable[..., bool] = _always

    @property
    def is_importable(self) -> bool:
        """Whether everything that it requires is installed."""
        return are_installed(self.requires)


def are_installed(modules: tuple[str, ...]) -> bool:
    """Whether the modules could be imported; none is imported to find out."""
    return all(importlib.util.find_spec(name) is not None for name in modules)


@dataclass(frozen=True, kw_only=True)
class Operation:
    """What is computed, whatever computes it.

    Attributes:
        name: Name of the operation.
        contract: What goes in and what comes out.
        reference: The plainest correct implementation; decides what is right.
        cases: Arguments that every implementation is tested with, each with the right answer. They
            are made anew for each pass, since operations that work in place change them.
        requires: Modules that the reference and the cases import.
        agrees: Whether an answer is as good as the right one; equal, where not said otherwise.
    """

    name: str
    contract: str
    reference: Callable[..., Any]
    cases: Callable[[], Iterator[tuple[tuple[Any, ...], Any]]]
    requires: tuple[str, ...] = ()
    agrees: Callable[[Any, Any], bool] = operator.eq


class Kernel(Protocol):
    """What :func:`get` returns: called like the operation."""

    def __call__(self, *arguments: Any) -> Any:
        """Compute."""
        ...


@cache
def operations() -> Mapping[str, Operation]:
    """Return every operation under its name."""
    found = (module.OPERATION for module in _modules("ops"))
    return {operation.name: operation for operation in found}


def available(
    name: str, environment: Mapping[str, str] | None = None
) -> tuple[Implementation, ...]:
    """Return the implementations of an operation that can run here, the preferred one first.

    Args:
        name: The operation.
        environment: Where ``CACHEAUDIT_KERNELS`` is looked up; the process's own where not given.
            A comma list of backends, such as ``cpu,reference``, allows only these.

    Raises:
        UnsupportedKernelError: There is no such operation, or a listed backend does not exist.
    """
    operation = _operation(name)
    reference = Implementation(
        operation=name,
        backend=REFERENCE,
        function=operation.reference,
        requires=operation.requires,
        priority=0,
    )
    every = [reference, *(found for found in _implementations() if found.operation == name)]
    wanted = _wanted(os.environ if environment is None else environment)
    chosen = [
        found
        for found in every
        if found.is_importable and (wanted is None or found.backend in wanted)
    ]
    return tuple(sorted(chosen, key=lambda found: -found.priority))


def get(name: str, environment: Mapping[str, str] | None = None) -> Kernel:
    """Return a function that computes an operation by the best implementation for its arguments.

    Raises:
        UnsupportedKernelError: Now, where nothing is available at all; later, where no available
            implementation takes the arguments of a call.
    """
    choices = available(name, environment)
    if not choices:
        raise UnsupportedKernelError(f"{SWITCH} leaves no implementation of {name!r}.")

    def kernel(*arguments: Any) -> Any:
        for choice in choices:
            if choice.supports(*arguments):
                return choice.function(*arguments)
        kinds = ", ".join(type(argument).__name__ for argument in arguments)
        backends = ", ".join(choice.backend for choice in choices)
        raise UnsupportedKernelError(f"{name!r} for ({kinds}) is not supported by: {backends}.")

    return kernel


def run(name: str, *arguments: Any) -> Any:
    """Compute an operation by the best implementation; for callers that call often."""
    return _kernel(name, os.environ.get(SWITCH, ""))(*arguments)


def bind(name: str, *arguments: Any) -> Kernel:
    """Return the implementation that a call with such arguments goes to, without any checks.

    For callers that call often with arguments of one kind: of the same types, on the same device,
    contiguous where these are, and right. It is called with all arguments by position.

    Args:
        name: The operation.
        arguments: Of one call that went well.

    Raises:
        UnsupportedKernelError: No available implementation takes them.
    """
    for choice in available(name):
        if choice.supports(*arguments):
            return choice.function
    raise UnsupportedKernelError(f"no available implementation of {name!r} takes such arguments")


@cache
def _kernel(name: str, switch: str) -> Kernel:
    return get(name, {SWITCH: switch})


def _operation(name: str) -> Operation:
    known = operations()
    if name not in known:
        raise UnsupportedKernelError(f"No operation {name!r}; there are: {', '.join(known)}.")
    return known[name]


def _wanted(environment: Mapping[str, str]) -> frozenset[str] | None:
    text = environment.get(SWITCH, "").strip()
    if not text:
        return None
    wanted = frozenset(part.strip() for part in text.split(","))
    known = {REFERENCE, *(found.backend for found in _implementations())}
    if unknown := sorted(wanted - known):
        raise UnsupportedKernelError(
            f"{SWITCH} names {', '.join(unknown)}; backends are: {', '.join(sorted(known))}."
        )
    return wanted


@cache
def _implementations() -> tuple[Implementation, ...]:
    return tuple(module.IMPLEMENTATION for folder in _FOLDERS for module in _modules(folder))


def _modules(folder: str) -> Iterator[Any]:
    package = importlib.import_module(f".{folder}", __package__)
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda info: info.name):
        if not info.name.startswith("_"):
            yield importlib.import_module(f"{package.__name__}.{info.name}")
