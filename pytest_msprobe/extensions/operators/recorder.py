"""Dumps of operators: calls and their gradients, recorded on the CPU."""

from __future__ import annotations

import random
import sys
import warnings
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
from torch._ops import OpOverload, OpOverloadPacket
from torch.utils._pytree import tree_leaves

from msprobe_hooks import record
from msprobe_hooks.torch import api_lists
from msprobe_hooks.torch.recorder import TorchRecorder
from pytest_msprobe.extensions.operators.database import Operator, Sample
from pytest_msprobe.extensions.operators.sweep import FILE, Recorded, Sweep, Task
from pytest_msprobe.storage.atomic_write import atomic_write


class _Call(NamedTuple):
    operator: Operator
    sample: Sample


def record_operators(folder: Path, operators: Iterable[Operator], dtype: str, task: Task, samples: int) -> Sweep:
    """Record up to ``samples`` calls of each operator that has the dtype, forward and backward, into a folder.

    A sample that raises, when it is drawn or called, is counted with what torch said. Raises ConfigError and
    RecordingError as `msprobe_hooks.record` does.
    """
    sweep = Sweep(str(torch.__version__), dtype, task, {})
    calls = list[_Call]()
    for operator in operators:
        if dtype not in operator.dtypes:
            continue
        counts = sweep.operators[operator.label] = Recorded()
        try:
            drawn = operator.draw(getattr(torch, dtype), samples)
        except Exception as error:
            # An operator of this version and build may lack anything that its samples are made with.
            _refuse(counts, error)
            continue
        calls += (_Call(operator, sample) for sample in drawn)
    torch.manual_seed(0)
    random.seed(0)
    with record(folder, task=task) as session, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        recorder: Any = session.recorder
        for call in calls:
            counts, before = sweep.operators[call.operator.label], recorder.calls
            try:
                _run(recorder, call)
                counts.calls += 1
            except Exception as error:
                # As a kernel that this build lacks, or a sample that is meant to be refused.
                _refuse(counts, error)
            counts.recorded += recorder.calls - before
    with atomic_write(folder / FILE) as part:
        part.write_bytes(msgspec.json.format(msgspec.json.encode(sweep), indent=1))
    return sweep


def _refuse(counts: Recorded, error: Exception) -> None:
    why = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
    counts.refused = Counter(counts.refused) + Counter([why])


def _run(recorder: TorchRecorder, call: _Call) -> None:
    """Call an operator, and compute the gradients of all its results."""
    before = recorder.calls
    result = call.operator.function(*call.sample.args, **call.sample.kwargs)
    tensors = _tensors(result)
    if tensors and recorder.calls == before:
        tensors = _tensors(_run_unlisted(recorder, call, result))
    tensors = [tensor for tensor in tensors if tensor.requires_grad]
    if tensors:
        torch.autograd.backward(tensors, [torch.randn_like(tensor) for tensor in tensors])


def _tensors(result: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def _run_unlisted(recorder: TorchRecorder, call: _Call, result: Any) -> Any:
    """Call an operator that recordings do not list once more, recorded as a whole; one without a name is left alone."""
    name = recorded_name(call.operator)
    if not name:
        return result
    recording = recorder.api_call(f"{name}.{recorder.number(name)}.forward", sys._getframe(1))
    recording.begin(tuple(call.sample.args), dict(call.sample.kwargs))
    return recording.run_as_a_whole(call.operator.function, tuple(call.sample.args), dict(call.sample.kwargs))


def recorded_name(operator: Operator) -> str:
    """Return the name under which a check finds the operator's function; empty for one that computes no numbers.

    Such are views and new memory, and functions of the database that spell a method or a property out.
    """
    if operator.name.rpartition(".")[2] in api_lists.IDLE:
        return ""
    if isinstance(operator.function, (OpOverload, OpOverloadPacket)):
        return f"torch.ops.{operator.function}"
    found: Any = torch
    for attribute in operator.name.split("."):
        found = getattr(found, attribute, None)
    return f"Torch.{operator.name}" if found is operator.function else ""
