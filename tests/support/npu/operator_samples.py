"""Samples of torch_npu's operators, drawn like the inputs of a dump: what the examples of operators are made of.

``python -m tests.support.npu.process python -m tests.support.npu.operator_samples`` writes them, on a simulated card,
whose torch_npu says which arguments have gradients.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from pytest_msprobe.extensions.npu_operators.operator_samples import FILE, HALVES, OF_SAVED, Arguments
from pytest_msprobe.extensions.npu_operators.operator_table import DEFINED
from tests.support.cann.example_call import Call
from tests.support.cann.examples import all_examples

_APIS = {api for apis in DEFINED.values() for api in apis}
#: Digits of the ends of a range, a choice: what is drawn in between has all.
_DIGITS = 4


def main() -> None:
    """Write the samples of each operator that has examples."""
    from tests.support.cann.record_examples import run

    samples: dict[str, list[Arguments]] = {}
    for operator, _, make in all_examples():
        api = api_of(operator)
        if api in OF_SAVED:
            continue
        call = make(torch.Generator().manual_seed(0))
        # Those of ATB are elsewhere.
        is_there = hasattr(torch.ops.npu, operator)
        results, gradients = run(operator, call) if is_there else ((), [])
        made = arguments(call, results, gradients)
        if is_there and made.dtype in HALVES:
            other = HALVES[made.dtype == HALVES[0]]
            found, _ = run(operator, _in_dtype(call, getattr(torch, made.dtype), getattr(torch, other)))
            made.fixed = _dtypes(found) != [made.swept(name, other) for name in made.results]
        samples.setdefault(api, []).append(made)
    FILE.write_text(text_of(samples), encoding="utf-8")


def _in_dtype(call: Call, former: torch.dtype, dtype: torch.dtype) -> Call:
    """Return a call with one dtype in place of another."""

    def changed(leaf: Any) -> Any:
        if isinstance(leaf, Tensor) and leaf.dtype == former:
            return leaf.to(dtype)
        return dtype if leaf is former else leaf

    args, kwargs = tree_map(changed, (call.args, call.kwargs))
    return Call(args, kwargs, call.differentiate)


def _dtypes(results: Any) -> list[str]:
    return [_name(leaf.dtype) if isinstance(leaf, Tensor) else "" for leaf in tree_leaves(results)]


def text_of(samples: Mapping[str, Sequence[Arguments]]) -> str:
    """Return what the file has of samples by API: a line each."""
    apis = (
        f"{json.dumps(api)}: [\n" + ",\n".join(msgspec.json.encode(each).decode() for each in samples[api]) + "\n]"
        for api in sorted(samples)
    )
    return "{\n" + ",\n".join(apis) + "\n}\n"


def api_of(operator: str) -> str:
    """Return the API that has the golden definition of an operator."""
    return next(api for kind in ("NPU.", "Aten.", "NPU.atb.") if (api := f"{kind}{operator}") in _APIS)


def arguments(call: Call, results: Any, gradients: Iterable[bool]) -> Arguments:
    """Return a call's arguments as the file has them, given its results and which of its tensors have a gradient."""
    wanted = iter(gradients)

    def written(value: Any) -> Any:
        if isinstance(value, Tensor):
            return _tensor(value) + (" grad" if next(wanted, False) else "")
        if isinstance(value, (list, tuple)):
            return [written(one) for one in value]
        if isinstance(value, torch.dtype):
            return {"torch.dtype": _name(value)}
        if isinstance(value, float) and not math.isfinite(value):
            return {"float": str(value)}
        return {"str": value} if isinstance(value, str) else value

    args = [written(value) for value in call.args]
    kwargs = {name: written(value) for name, value in call.kwargs.items()}
    return Arguments(args, kwargs, _dtypes(results))


def _tensor(value: Tensor) -> str:
    numbers = value.detach()
    if value.is_floating_point():
        numbers = numbers.double()[numbers.double().isfinite()]
    ends = f" {_end(numbers.min())}..{_end(numbers.max())}" if numbers.numel() else ""
    return f"{_name(value.dtype)}[{','.join(map(str, value.shape))}]{ends}"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _end(number: Tensor) -> int | float:
    exact = number.item()
    if isinstance(exact, float) and not exact.is_integer():
        return float(f"{exact:.{_DIGITS}g}")
    return int(exact)


if __name__ == "__main__":
    main()
