"""The engine's own tree of exceptions."""

from __future__ import annotations

import pickle

import local_backend
from cacheaudit._version import __version__
from local_backend.errors import LocalBackendError
from local_backend.kernels import KernelError, UnsupportedKernelError


def test_message_hint_and_code_survive_pickling() -> None:
    error = LocalBackendError("No block is free.", "Raise the budget.")
    copy = pickle.loads(pickle.dumps(error))
    for one in (error, copy):
        assert str(one) == "No block is free."
        assert one.hint == "Raise the budget."
        assert one.__notes__ == ["Raise the budget."]
        assert one.error_code == "local_backend_error"


def test_without_hint_there_is_no_note() -> None:
    error = LocalBackendError("No block is free.")
    assert error.hint is None
    assert not hasattr(error, "__notes__")


def test_kernels_have_a_root_of_their_own() -> None:
    assert issubclass(UnsupportedKernelError, KernelError)
    assert not issubclass(KernelError, LocalBackendError)
    assert UnsupportedKernelError.error_code == "unsupported_kernel"


def test_version_is_that_of_the_auditor() -> None:
    assert local_backend.__version__ == __version__
