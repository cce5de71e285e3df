"""From which size on calls are cut, and into blocks of which size."""

from __future__ import annotations

import pytest
import torch

from pytest_msprobe.engine.replay import partition
from pytest_msprobe.engine.replay.calls.arguments import Arguments
from pytest_msprobe.engine.replay.partition import plan_of

MIB = 2**20


@pytest.fixture(autouse=True)
def blocks_of_64_mib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "_BLOCK", 64 * MIB)
    monkeypatch.setattr(partition, "_LESS", 8)


def given(*shapes: tuple[int, int]) -> Arguments:
    tensors = [torch.empty(shape, dtype=torch.bfloat16, device="meta") for shape in shapes]
    return Arguments(tuple(tensors), {}, frozenset({"args.0"}))


def test_a_block_of_an_elementwise_operation_is_an_eighth_of_that_of_a_product() -> None:
    # Raised, a slice of the sum has 3 x 16 KiB, one of the product, whose weight stays whole, 2 x 16 KiB.
    of_sum = plan_of("add", given((8192, 4096), (8192, 4096)), differentiates=False)
    of_product = plan_of("linear", given((8192, 4096), (4096, 4096)), differentiates=False)
    assert of_sum is not None
    assert of_product is not None
    assert (of_sum.size, of_product.size) == (8 * MIB // (3 * 16384), 64 * MIB // (2 * 16384))


def test_sums_are_cut_from_32_mib_of_raised_copies_on_and_products_from_256() -> None:
    # Raised, a sum of so many rows has 48 KiB for each, a product 48 KiB and a weight of 128 MiB.
    of_sums = [plan_of("add", given((rows, 4096), (rows, 4096)), differentiates=False) for rows in (682, 683)]
    of_products = [plan_of("linear", given((rows, 4096), (8192, 4096)), differentiates=False) for rows in (2730, 2731)]
    assert [each is None for each in of_sums] == [each is None for each in of_products] == [True, False]


def test_attention_is_cut_from_a_gibibyte_on() -> None:
    def planned(rows: int) -> bool:
        tensors = [torch.empty(1, 32, rows, 128, dtype=torch.bfloat16, device="meta") for _ in range(3)]
        arguments = Arguments(tuple(tensors), {"is_causal": True}, frozenset())
        return plan_of("scaled_dot_product_attention", arguments, differentiates=True) is not None

    # Raised, four tensors of 16 KiB a row, in both directions.
    assert [planned(rows) for rows in (8192, 8193)] == [False, True]


def test_windows_count_in_float64_alone() -> None:
    def planned(dtype: torch.dtype, samples: int) -> int | None:
        shapes = [(samples, 8, 64, 64), (8, 8, 3, 3)]
        tensors = [torch.empty(shape, dtype=dtype, device="meta") for shape in shapes]
        plan = plan_of("conv2d", Arguments(tuple(tensors), {"padding": 1}, frozenset()), differentiates=False)
        return None if plan is None else plan.size

    # Raised to float64 a sample and its result have 256 KiB each, its windows nine times as much, and the kernels 5.
    assert [planned(torch.float32, samples) for samples in (93, 94)] == [None, 64 * 1024 // (11 * 256)]
    assert planned(torch.bfloat16, 94) is None
