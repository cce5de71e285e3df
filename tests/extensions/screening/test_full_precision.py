"""Screens compute float32 as float32 where the process allows less, as golden does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pytest_msprobe.devices.math_modes import is_full_precision
from pytest_msprobe.extensions.screening.attention_sketches import Attention, drawn_sketches, summed
from pytest_msprobe.extensions.screening.config import examine
from pytest_msprobe.extensions.screening.tile_sums import Product


class _Products(TorchDispatchMode):
    """Notes of each matrix product within whether it was computed in full precision."""

    def __init__(self) -> None:
        super().__init__()
        self.in_full: list[bool] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "mm" in str(func):
            self.in_full.append(is_full_precision())
        return func(*args, **(kwargs or {}))


@pytest.fixture
def reduced() -> Iterator[None]:
    former = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    yield
    torch.set_float32_matmul_precision(former)


def _examine_a_product() -> None:
    left, right = torch.randn(200, 60).bfloat16(), torch.randn(60, 200).bfloat16()
    examine([Product(left, right, torch.ones(200, 200).bfloat16())], 0)


def _sum_attention() -> None:
    operand = torch.randn(1, 2, 64, 16)
    attention = Attention(operand, operand, operand, ("args.0", "args.1", "args.2"), None, False, 0.25)
    for place in attention.groups():
        summed(attention, place, drawn_sketches(attention, torch.Generator().manual_seed(0)), None)


@pytest.mark.usefixtures("reduced")
@pytest.mark.parametrize("screen", [_examine_a_product, _sum_attention])
def test_a_screen_computes_in_full_precision_whatever_the_process_allows(screen: Callable[[], None]) -> None:
    products = _Products()
    with products:
        screen()
    assert products.in_full
    assert all(products.in_full)
    assert torch.get_float32_matmul_precision() == "medium"
