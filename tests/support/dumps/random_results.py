"""Results of random calls, judged by what must hold of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pytest_msprobe.engine.replay.ops.op_info import random_property
from pytest_msprobe.engine.replay.random_apis.random_property import RandomProperty

SIZES = [1, 2, 7, 99, 100, 10_000]
SEEDS = range(8)
FLOATS = [torch.float32, torch.bfloat16, torch.float16]


def draw(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """Return normal values, the same for the same seed."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def property_of(api: str, *args: Any, **kwargs: Any) -> RandomProperty:
    """Return what must hold of the results of a call, which is random."""
    found = random_property(api, args, kwargs)
    assert found is not None
    return found


def outcome(api: str, output: Any, *args: Any, **kwargs: Any) -> str:
    """Return the outcome of the verdict on what a call returned; one that failed says why."""
    verdict = property_of(api, *args, **kwargs).check_forward(output)
    assert verdict.standard == "random"
    assert verdict.outcome != "fail" or verdict.reason
    return verdict.outcome
