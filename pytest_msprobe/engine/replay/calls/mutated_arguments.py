"""Arguments that a call writes to are results: which of them are judged by their own memory, and what lies around it.

An in-place call may return the right tensor and leave its argument as it was: only its memory shows that. Where
both sides return the very argument, its memory is judged as the result that it is, and not a second time.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from msprobe_standards.tensor_layouts import is_plain
from pytest_msprobe.engine.replay.calls.arguments import Arguments
from pytest_msprobe.engine.replay.calls.laid_out_tensors import surroundings
from pytest_msprobe.engine.replay.calls.side import Run
from pytest_msprobe.engine.values.strides import around, has_gaps, memory_size, overlaps, whole_memory
from pytest_msprobe.results.outcomes import Skip, SkipReason


@dataclass(frozen=True, slots=True)
class JudgedMemory:
    """Memory of arguments, judged with the results; by the arguments' paths.

    ``own`` are the arguments themselves, ``surrounded`` those that have other elements in between, which nothing may
    write to. ``storages`` are such of recorded layouts: the argument as it was before the call, on the CPU, and which
    elements of its storage are no argument's that the call writes to.
    """

    own: tuple[str, ...] = ()
    surrounded: tuple[str, ...] = ()
    storages: Mapping[str, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.own or self.surrounded or self.storages)

    def of(self, run: Run, get: Callable[[torch.Tensor], Any]) -> dict[str, Any]:
        """Return one run's memory by path, as ``get`` brings tensors to the CPU; what the run lacks is left out."""
        arguments = run.arguments
        written = {path: get(arguments[path]) for path in self.own if path in arguments}
        gaps = {f"{path}.around": around(arguments[path], get) for path in self.surrounded if path in arguments}
        for path, (before, others) in self.storages.items():
            if path in arguments:
                gaps[f"{path}.around"] = _memory_of(arguments[path], before, get)[others]
        return {**written, **gaps}


def _memory_of(
    argument: torch.Tensor, before: torch.Tensor, get: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """Return the storage of an argument, that of before the call where this side did not make the layout."""
    is_alike = is_plain(argument) and memory_size(argument) == memory_size(before)
    if is_alike and argument.stride() == before.stride() and argument.storage_offset() == before.storage_offset():
        return get(whole_memory(argument))
    return whole_memory(before)


def judged_memory(
    golden: Run, target: Run, operation: str, arguments: Arguments, *, same_function: bool
) -> JudgedMemory:
    """Return what memory is judged where these two runs of an operation are held against each other.

    An argument that the target alone wrote to is no result where it was returned: golden may be a definition that
    returns what the target writes. That is no excuse for the ``same_function``. Nor has another framework to write
    where Python has it choose: ``x += y`` binds x to whatever ``__iadd__`` returns.
    """
    if not (golden.written or target.written):
        return JudgedMemory()
    if not same_function and operation.startswith("__i") and not target.written:
        return JudgedMemory()
    here, there = golden.returned_at(), target.returned_at()

    def is_result(path: str) -> bool:
        return path in here and here[path] == there.get(path)

    surplus = (path for path in target.written if path not in golden.written and (same_function or path not in there))
    own = tuple(path for path in (*golden.written, *surplus) if not is_result(path))
    if not arguments.layouts:
        return JudgedMemory(own, tuple(path for path in golden.written if _is_surrounded(golden.arguments[path])))
    tensors, laid_out = dict(arguments.tensors()), [path for path in golden.written if path in arguments.layouts]
    surrounded = (path for path in golden.written if path not in arguments.layouts)
    storages = {path: (tensors[path], others) for path, others in surroundings(laid_out, tensors)}
    return JudgedMemory(own, tuple(path for path in surrounded if _is_surrounded(golden.arguments[path])), storages)


def _is_surrounded(tensor: torch.Tensor) -> bool:
    return is_plain(tensor) and has_gaps(tensor) and not overlaps(tensor)


def require_one_place_each(golden: Run, arguments: Arguments) -> None:
    """Raise Skip where a call writes to elements that share memory: what stays there depends on the order of writes."""
    tensors = dict(arguments.tensors()) if golden.written and arguments.layouts else {}
    for path in golden.written:
        written = tensors.get(path, golden.arguments[path])
        if is_plain(written) and overlaps(written):
            raise Skip(SkipReason.UNSPECIFIED, f"it writes to {path}, whose elements share memory")


def unreturned(
    run: Run, function: Callable[..., Any], operation: str, arguments: Arguments
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors that a call says it writes to and that the run did not return, with their paths.

    It says so by its name, by ``out=`` or by ``inplace=True``: all there is where no golden run can show it.
    """
    returned = run.returned_at()
    for path in _announced(function, operation, arguments):
        if path in run.arguments and path not in returned:
            yield path, run.arguments[path]


def _announced(function: Callable[..., Any], operation: str, arguments: Arguments) -> Iterator[str]:
    if "out" in arguments.kwargs:
        yield "kwargs.out"
    elif (operation.endswith("_") and not operation.endswith("__")) or _is_switched_on(function, arguments):
        yield "args.0" if arguments.args else "kwargs.input"


def _is_switched_on(function: Callable[..., Any], arguments: Arguments) -> bool:
    try:
        bound = inspect.signature(function).bind(*arguments.args, **arguments.kwargs)
    except (TypeError, ValueError):
        # Functions of C++ have no signature, and none of them has the argument.
        return False
    return bound.arguments.get("inplace") is True
