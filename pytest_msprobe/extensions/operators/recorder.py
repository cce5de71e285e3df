"""Dumps of operators: calls and their gradients, recorded on the CPU."""

from __future__ import annotations

import random
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
from torch._ops import OpOverload, OpOverloadPacket
from torch.utils._pytree import tree_leaves, tree_map

from msprobe_hooks import record
from msprobe_hooks.torch import api_lists
from msprobe_hooks.torch.recorder import TorchRecorder
from pytest_msprobe.engine.frameworks import framework_named
from pytest_msprobe.errors import CommandError
from pytest_msprobe.extensions.operators.database import NoSampleError, Operator, Sample
from pytest_msprobe.extensions.operators.sweep import FILE, FRAMEWORKS, Recorded, Sweep, Task
from pytest_msprobe.storage.files import atomic_write

_FUNCTIONAL = "nn.functional."
_PLAIN = (torch.Tensor, int, float, complex, str, slice, torch.dtype, torch.device, torch.layout, torch.memory_format)


class _Call(NamedTuple):
    operator: Operator
    sample: Sample


def record_operators(folder: Path, operators: Iterable[Operator], dtype: str, task: Task, samples: int) -> Sweep:
    """Record up to ``samples`` calls of each operator that has the dtype, forward and backward, into a folder.

    A sample that raises, when it is drawn or called, is counted with what the framework said. Raises ConfigError and
    RecordingError as `msprobe_hooks.record` does, CommandError for operators of two frameworks.
    """
    operators = list(operators)
    framework, run = _framework(operators)
    sweep = Sweep(framework, str(sys.modules[framework].__version__), dtype, task, {})
    calls = list[_Call]()
    for operator in operators:
        if dtype not in operator.dtypes:
            continue
        counts = sweep.operators.setdefault(operator.label, Recorded(why_not=operator.why_not))
        try:
            drawn = operator.draw(getattr(torch, dtype), samples)
        except NoSampleError as error:
            counts.refused = {str(error): 1}
            continue
        except Exception as error:
            # An operator of this version and build may lack anything that its samples are made with.
            _refuse(counts, error)
            continue
        calls += (_Call(operator, sample) for sample in drawn)
    torch.manual_seed(0)
    random.seed(0)
    recording = record(folder, task=task, framework="pytorch" if framework == "torch" else "mindspore")
    with recording as session, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        recorder: Any = session.recorder
        for call in calls:
            counts, before = sweep.operators[call.operator.label], recorder.calls
            try:
                run(recorder, call.operator, call.sample)
                counts.calls += 1
            except Exception as error:
                # As a kernel that this build lacks, or a sample that is meant to be refused.
                _refuse(counts, error)
            counts.recorded += recorder.calls - before
    with atomic_write(folder / FILE) as part:
        part.write_bytes(msgspec.json.format(msgspec.json.encode(sweep), indent=1))
    return sweep


def _refuse(counts: Recorded, error: Exception) -> None:
    # MindSpore begins messages with an empty line, or one of dashes.
    lines = (line for line in str(error).splitlines() if any(map(str.isalnum, line)))
    why = f"{type(error).__name__}: {next(lines, '')}"
    counts.refused = Counter(counts.refused) + Counter([why])


def _framework(operators: Iterable[Operator]) -> tuple[str, Callable[[Any, Operator, Sample], None]]:
    """Return the framework of operators, and what runs one on a sample. Raises CommandError where it is not one."""
    frameworks = sorted({operator.framework for operator in operators}) or [FRAMEWORKS[0]]
    if len(frameworks) > 1:
        raise CommandError(f"operators of {' and '.join(frameworks)}: a dump is of one", remedy="record each alone")
    if frameworks == ["mindspore"]:
        framework_named("mindspore")
        from pytest_msprobe.extensions.operators.mindspore_calls import run_mindspore

        return "mindspore", run_mindspore
    return frameworks[0], _run_torch


def _run_torch(recorder: TorchRecorder, operator: Operator, sample: Sample) -> None:
    """Call an operator, and compute the gradients of all its results.

    One that recordings do not list is called once more, and recorded as a whole.
    """
    function, args, kwargs = operator.function, tuple(sample.args), dict(sample.kwargs)
    before, name = recorder.calls, operator.recorded
    results = [] if name else _tensors(function(*args, **kwargs))
    if not name and recorder.calls == before and results and _can_be_recorded((args, kwargs)):
        name = recorded_name(operator)
    if name:
        function = _returning(function, sample.results)
        recording = recorder.api_call(f"{name}.{recorder.number(name)}.forward", sys._getframe())
        recording.begin(args, kwargs)
        results = _tensors(recording.run_as_a_whole(function, args, kwargs))
    results = [tensor for tensor in results if tensor.requires_grad]
    if results:
        torch.autograd.backward(results, [torch.randn_like(tensor) for tensor in results])


def _returning(function: Callable[..., Any], dtypes: Sequence[torch.dtype | None]) -> Callable[..., Any]:
    """Return a function whose results have these dtypes, in their order."""
    if not dtypes:
        return function

    def returning(*args: Any, **kwargs: Any) -> Any:
        left = iter(dtypes)

        def cast(leaf: Any) -> Any:
            dtype = next(left, None)
            return leaf.to(dtype) if isinstance(leaf, torch.Tensor) and dtype is not None else leaf

        return tree_map(cast, function(*args, **kwargs))

    return returning


def recorded_name(operator: Operator) -> str:
    """Return the name under which a check finds the operator's function; empty for one that computes no numbers.

    Such are views and new memory, and functions of the database that spell a method or a property out.
    """
    if operator.name.rpartition(".")[2] in api_lists.IDLE:
        return ""
    if isinstance(operator.function, (OpOverload, OpOverloadPacket)):
        return f"torch.ops.{operator.function}"
    name = operator.name.removeprefix("torch.")
    function: Any = torch
    for attribute in name.split("."):
        function = getattr(function, attribute, None)
    if function is not operator.function:
        return ""
    return f"Functional.{name.removeprefix(_FUNCTIONAL)}" if name.startswith(_FUNCTIONAL) else f"Torch.{name}"


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _can_be_recorded(arguments: Any) -> bool:
    """Return whether a tensor is among the arguments, and nothing that a dump cannot hold."""
    return bool(_tensors(arguments)) and all(
        leaf is None or isinstance(leaf, _PLAIN) for leaf in tree_leaves(arguments)
    )
