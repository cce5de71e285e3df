"""Tools that compare results with the CPU's by tolerances: torch's, numpy's and those of torch's own tests."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from benchmarks.tools.cases import Case, Results
from benchmarks.tools.tool import Answer, Tool
from pytest_msprobe.extensions.operators.database import find_operators
from tests.corpus.fault import plain_name

Compare = Callable[[torch.Tensor, torch.Tensor], None]

# What tools raise for tensors that they do not take, such as sparse ones.
_REFUSALS = (TypeError, RuntimeError, NotImplementedError, ValueError)


def answer(result: Results, expected: Results | None, compare: Compare) -> Answer:
    """Return what a comparison that raises AssertionError says of all tensors of a result."""
    if expected is None:
        return "-"
    tensors, others = result.tensors(), expected.tensors()
    try:
        if tensors.keys() != others.keys():
            return "wrong"
        for name, tensor in tensors.items():
            other = others[name]
            if tensor is not None and other is not None:
                compare(tensor, other)
            elif (tensor is None) != (other is None):
                return "wrong"
    except AssertionError:
        return "wrong"
    except _REFUSALS:
        return "-"
    return "right"


def _assert_allclose(tensor: torch.Tensor, other: torch.Tensor) -> None:
    np.testing.assert_allclose(_as_array(tensor), _as_array(other))


def _as_array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    plain = tensor.detach().resolve_conj().resolve_neg()
    # numpy has no bfloat16.
    return (plain.float() if plain.dtype is torch.bfloat16 else plain).numpy()


def _by_op_info(case: Case) -> Answer:
    """Return what torch's tests would say: `TestCase.assertEqual` with the widest tolerance of the operator."""
    tolerances = op_info_tolerances()
    name = plain_name(case.recorded.call.api)
    if name not in tolerances:
        return "-"
    from torch.testing._internal.common_utils import TestCase

    test: Any = TestCase("assertEqual")  # type: ignore[no-untyped-call]

    def compare(tensor: torch.Tensor, other: torch.Tensor) -> None:
        test.precision, test.rel_tol = tolerances[name].get(tensor.dtype, (0.0, 0.0))
        test.assertEqual(tensor, other)  # noqa: PT009 - it is what is measured

    return answer(case.result, case.on_cpu, compare)


@functools.cache
def op_info_tolerances() -> Mapping[str, dict[torch.dtype, tuple[float, float]]]:
    """Return the widest (absolute, relative) tolerances of torch's tests, by an operator's plain name and dtype.

    Of an operator without a tolerance of its own the mapping is empty: `TestCase` has the defaults of
    `torch.testing.assert_close`.
    """
    # Imports the database as it has to be imported, or says what is missing.
    find_operators(["add"], [])
    from torch.testing._internal.common_methods_invocations import op_db

    widest: dict[str, dict[torch.dtype, tuple[float, float]]] = {}
    for entry in op_db:
        for name in (entry.name, *(alias.name for alias in entry.aliases)):
            own = widest.setdefault(plain_name(name), {})
            for dtype, (atol, rtol) in _overrides(entry):
                before = own.get(dtype, (0.0, 0.0))
                own[dtype] = max(atol, before[0]), max(rtol, before[1])
    return widest


def _overrides(entry: Any) -> Iterator[tuple[torch.dtype, tuple[float, float]]]:
    from torch.testing._internal.common_device_type import toleranceOverride

    for decorator in entry.decorators:
        for each in getattr(decorator, "decorators", [decorator]):
            if isinstance(each, toleranceOverride):
                yield from ((dtype, (tolerance.atol, tolerance.rtol)) for dtype, tolerance in each.d.items())


_ONE_RESULT = "the device's one result, and"
TOOLS = (
    Tool(
        "`torch.testing.assert_close`, CPU",
        f"{_ONE_RESULT} the CPU's in the same dtype",
        lambda case: answer(case.result, case.on_cpu, torch.testing.assert_close),
    ),
    Tool(
        "`torch.testing.assert_close`, float64",
        f"{_ONE_RESULT} the CPU's in float64, rounded",
        lambda case: answer(case.result, case.in_float64, torch.testing.assert_close),
    ),
    Tool(
        "`numpy.testing.assert_allclose`, CPU",
        f"{_ONE_RESULT} the CPU's in the same dtype",
        lambda case: answer(case.result, case.on_cpu, _assert_allclose),
    ),
    Tool(
        "tolerances of torch's OpInfo, CPU",
        f"{_ONE_RESULT} the CPU's in the same dtype, of operators with an OpInfo",
        _by_op_info,
    ),
)
