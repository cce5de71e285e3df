"""A golden definition compared with an independent one of the same operator."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from pytest_msprobe.engine.replay.ops.op_info import accept_implementation_defined, op_info
from pytest_msprobe.engine.replay.references import ReferenceRegistry
from tests.support.cann.example_call import Call

# Relative to the largest value of a result: some units in the last place of its dtype.
_TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def assert_agrees(independent: Callable[..., Any], call: Call, tolerance: float | None = None) -> None:
    """Assert that the golden definition, in float64, returns and writes what the independent one does in its dtypes.

    What an operator leaves open is taken as the judge takes it, and then quantized numbers are the same. Other bytes
    may differ by one, for a rounding that falls to either side. ``tolerance`` is in relation to the largest
    value of a result; without it some units in the last place of its dtype.
    """
    name = independent.__name__
    golden = ReferenceRegistry().get(f"NPU.{name}") or ReferenceRegistry().get(f"Aten.{name}")
    assert golden is not None, f"{name} has no golden definition"
    wide_args, wide_kwargs = tree_map_only(Tensor, _raised, (call.args, call.kwargs))
    args, kwargs = tree_map_only(Tensor, torch.clone, copy.copy((call.args, call.kwargs)))
    wanted, found = golden(*wide_args, **wide_kwargs), independent(*args, **kwargs)
    target, right = ({"output": list(each) if isinstance(each, tuple) else [each]} for each in (found, wanted))
    accept_implementation_defined(name, (call.args, call.kwargs), target, right)
    pairs = _pairs((right["output"], wide_args, wide_kwargs), (target["output"], args, kwargs))
    for number, (expected, actual) in enumerate(pairs):
        assert expected.shape == actual.shape, f"{name}: tensor {number} is {actual.shape}, golden {expected.shape}"
        is_narrow = actual.dtype.itemsize == 1 and op_info(name).quantized is not None
        _assert_close(f"{name}: tensor {number}", expected, actual, 0.0 if is_narrow else tolerance)


def _raised(x: Tensor) -> Tensor:
    return x.to(torch.float64) if x.is_floating_point() else x.clone()


def _pairs(wanted: object, found: object) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the tensors at the same places; nothing is promised of a result that is None in golden."""
    if isinstance(wanted, Tensor):
        assert isinstance(found, Tensor), f"golden has a tensor where there is {found!r}"
        yield wanted, found
    elif isinstance(wanted, list | tuple):
        assert isinstance(found, list | tuple), f"golden has several results where there is {found!r}"
        for one, other in zip(wanted, found, strict=True):
            yield from _pairs(one, other)
    elif isinstance(wanted, dict) and isinstance(found, dict):
        yield from _pairs(list(wanted.values()), list(found.values()))


def _assert_close(label: str, expected: Tensor, actual: Tensor, tolerance: float | None) -> None:
    if actual.is_floating_point():
        scale = expected.to(torch.float64).nan_to_num(0, 0, 0).abs().amax() if expected.numel() else 0.0
        relative = _TOLERANCES.get(actual.dtype, 0.13) if tolerance is None else tolerance
        limit = relative * max(float(scale), 1e-30)
    else:
        limit = 1.0 if actual.dtype in {torch.int8, torch.uint8} and tolerance is None else 0.0
    torch.testing.assert_close(
        actual.to(torch.float64), expected.to(torch.float64), rtol=0, atol=limit, equal_nan=True, msg=label
    )
