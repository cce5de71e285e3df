"""Torch's own operators, recorded: the samples of the database that torch tests itself by, one dump a dtype and task.

    python benchmarks/torch_operators.py FOLDER [--dtypes float32 ...] [--tasks statistics tensor] [--samples N]

Operators are called on the CPU, and their gradients where they have any. Needs expecttest, which the database imports.
"""

from __future__ import annotations

import argparse
import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves

from msprobe_hooks import record

DTYPES = ("float32", "bfloat16", "float16", "float64", "complex64", "int64", "bool")
TASKS = ("statistics", "tensor")


class Call(NamedTuple):
    """An operator of the database with one of its samples."""

    operator: Any
    sample: Any
    has_gradient: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dtypes", nargs="+", default=list(DTYPES), choices=DTYPES)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--samples", type=int, default=4, metavar="N", help="of each operator, at most")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for dtype in options.dtypes:
        for task in options.tasks:
            called, refused = record_operators(options.folder / f"{dtype}-{task}", dtype, task, options.samples)
            print(f"{dtype}, {task}: {called} calls recorded, {refused} refused by torch", flush=True)


def record_operators(folder: Path, dtype: str, task: Any, samples: int) -> tuple[int, int]:
    """Record up to ``samples`` calls of each operator that has the dtype; return how many ran and how many raised."""
    calls, refused = list(calls_of(getattr(torch, dtype), samples)), 0
    with record(folder, task=task), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call in calls:
            # What torch itself does not take, a sample that is meant to be refused or lacks a kernel, is no operator.
            try:
                run(call)
            except (AssertionError, RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
                refused += 1
    return len(calls) - refused, refused


def calls_of(dtype: torch.dtype, samples: int) -> Iterator[Call]:
    """Yield calls of all operators that the CPU has in a dtype, of each the same on every machine."""
    has_gradients = dtype.is_floating_point or dtype.is_complex
    for operator in op_db:
        if dtype not in operator.supported_dtypes("cpu"):
            continue
        has_gradient = (
            operator.supports_autograd and has_gradients and dtype in operator.supported_backward_dtypes("cpu")
        )
        torch.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = list(operator.sample_inputs("cpu", dtype, requires_grad=has_gradient))
        random.Random(0).shuffle(made)
        yield from (Call(operator, sample, has_gradient) for sample in made[:samples])


def run(call: Call) -> None:
    """Call an operator, and compute the gradients of all its results."""
    result = call.operator.op(call.sample.input, *call.sample.args, **call.sample.kwargs)
    tensors = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if call.has_gradient and tensors:
        torch.autograd.backward(tensors, [torch.randn_like(tensor) for tensor in tensors])


if __name__ == "__main__":
    main()
