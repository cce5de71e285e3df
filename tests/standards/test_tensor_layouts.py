"""Every dtype in every layout through every standard and metric: no exception, and what is wrong is found."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from functools import partial

import pytest
import torch

from msprobe_standards import in_parts, judge, measure, standard_names
from msprobe_standards.tensor_layouts import is_plain

DTYPES = sorted({value for value in vars(torch).values() if isinstance(value, torch.dtype)}, key=str)
LAYOUTS = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
VALUES = [[1.0, 2.0, 0.0, 4.0], [0.0, 1.0, 2.0, 8.0]]
WRONG = [[64.0, 2.0, 0.0, 4.0], [0.0, 1.0, 2.0, 0.0]]
# They hold numbers of which nothing is known but the bytes: torch neither converts nor compares them.
OPAQUE = {
    torch.bits16, torch.bits1x8, torch.bits2x4, torch.bits4x2, torch.bits8,
    # Torch 2.7 has none.
    *(dtype for dtype in DTYPES if str(dtype) == "torch.float4_e2m1fn_x2"),
    torch.qint8, torch.qint32, torch.quint8, torch.quint2x4, torch.quint4x2,
    *(dtype for dtype in DTYPES if str(dtype)[6:].lstrip("u") in {f"int{bits}" for bits in range(1, 8)}),
}  # fmt: skip


def made(dtype: torch.dtype, rows: list[list[float]]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield a tensor in every layout that torch has for its dtype."""
    dense = torch.tensor(rows, dtype=torch.float64).to(dtype)
    yield "strided", dense
    yield "transposed", dense.t()
    makers = {str(layout): partial(dense.to_sparse, layout=layout) for layout in LAYOUTS[:3]}
    makers |= {str(layout): partial(dense.to_sparse, layout=layout, blocksize=(1, 2)) for layout in LAYOUTS[3:]}
    for name, make in {**makers, "nested": partial(torch.nested.nested_tensor, list(dense))}.items():
        with contextlib.suppress(RuntimeError, TypeError):
            yield name, make()


def quantized(rows: list[list[float]]) -> Iterator[tuple[str, torch.Tensor]]:
    floats = torch.tensor(rows)
    yield "per tensor", torch.quantize_per_tensor(floats, 0.1, 3, torch.quint8)
    scales, zeros = torch.tensor([0.1, 0.2]), torch.tensor([0, 1])
    yield "per channel", torch.quantize_per_channel(floats, scales, zeros, 0, torch.qint8)


def pairs(dtype: torch.dtype | None) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        make = quantized if dtype is None else lambda rows: made(dtype, rows)
        yield from ((right, wrong) for (_, right), (_, wrong) in zip(make(VALUES), make(WRONG), strict=True))


@pytest.mark.parametrize("dtype", [*(dtype for dtype in DTYPES if dtype not in OPAQUE), None], ids=str)
def test_every_standard_passes_what_is_equal_and_finds_what_is_not(dtype: torch.dtype | None) -> None:
    for right, wrong in pairs(dtype):
        for name in standard_names():
            assert judge(right, right, standard=name, baseline=right).outcome != "fail"
            assert judge(wrong, right, standard=name, baseline=right).outcome in ("fail", "warn", "skip")


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype not in OPAQUE], ids=str)
def test_every_metric_is_measured_of_plain_tensors_and_asked_of_the_parts_of_others(dtype: torch.dtype) -> None:
    for right, wrong in pairs(dtype):
        if is_plain(right):
            assert measure(wrong, right)["max_abs_err"] > 0
        else:
            with pytest.raises(ValueError, match="measure its parts"):
                measure(wrong, right)


def test_sparse_tensors_are_compared_by_indices_and_values() -> None:
    right = torch.tensor(VALUES).to_sparse()
    elsewhere = right.indices().index_fill(1, torch.tensor([1]), 0) + torch.tensor([[0], [2]]) * (torch.arange(6) == 1)
    moved = torch.sparse_coo_tensor(elsewhere, right.values(), right.shape, check_invariants=True)
    assert judge(moved, right, standard="ulp").reason.startswith("indices: ")
    assert judge(right * 2, right, standard="ulp").reason.startswith("values: ")


def test_another_layout_and_another_size_fail_in_words() -> None:
    dense = torch.tensor(VALUES)
    assert judge(dense.to_sparse(), dense, standard="ulp").reason == "output is torch.sparse_coo, golden is strided"
    sparse = dense.to_sparse()
    larger = torch.sparse_coo_tensor(sparse.indices(), sparse.values(), (2, 9), check_invariants=True)
    assert judge(larger, sparse, standard="ulp").reason.startswith("size: ")


def test_plain_tensors_are_their_own_part() -> None:
    plain = torch.ones(3)
    assert in_parts(plain) is plain
