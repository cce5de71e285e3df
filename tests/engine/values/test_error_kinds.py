"""What torch's exceptions mean, by real ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pytest_msprobe.engine.values.error_kinds import is_out_of_memory, is_unsupported

X = torch.ones(3, 4)


def error_of(function: Any, *args: Any, **kwargs: Any) -> Exception:
    with pytest.raises(Exception) as caught:
        function(*args, **kwargs)
    return caught.value


@pytest.mark.parametrize(
    "error",
    [
        error_of(torch.add, X.to(torch.float8_e4m3fn), X.to(torch.float8_e4m3fn)),
        error_of(torch.linalg.cholesky, torch.eye(3, dtype=torch.float16)),
        error_of(torch.add, torch.ones(2, dtype=torch.uint16), torch.ones(2, dtype=torch.uint16)),
        error_of(torch.ones(3, 4).to_sparse().cumsum, 0),
        RuntimeError("Could not run 'npu::op' with arguments from the 'CPU' backend."),
        RuntimeError("aclnnSwiGlu or aclnnSwiGluGetWorkspaceSize not in libopapi.so, or libopapi.so not found."),
        NotImplementedError(),
    ],
    ids=lambda error: str(error)[:40],
)
def test_a_missing_kernel_is_recognised(error: Exception) -> None:
    assert is_unsupported(error)
    assert not is_out_of_memory(error)


@pytest.mark.parametrize(
    "error",
    [
        error_of(torch.mm, X, X),
        error_of(torch.add, X, "two"),
        error_of(torch.embedding, X, torch.tensor([99])),
        error_of(torch.reshape, X, (5, 5)),
    ],
    ids=lambda error: str(error)[:40],
)
def test_wrong_arguments_are_not_a_missing_kernel(error: Exception) -> None:
    assert not is_unsupported(error)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.cuda.OutOfMemoryError("CUDA out of memory."),
        RuntimeError("NPU out of memory. Tried to allocate 2.00 GiB (NPU 0; 32.00 GiB total capacity)"),
        error_of(torch.empty, 2**60, dtype=torch.uint8),
    ],
    ids=lambda error: type(error).__name__,
)
def test_memory_that_ran_out_is_recognised(error: Exception) -> None:
    assert is_out_of_memory(error)


def test_words_of_memory_in_the_error_of_an_argument_are_not_memory_that_ran_out() -> None:
    assert not is_out_of_memory(ValueError("mode 'out of memory' is unknown"))
