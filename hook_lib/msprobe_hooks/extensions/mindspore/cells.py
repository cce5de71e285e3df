"""Cell calls of MindSpore, and the files that cells of a graph wrote, as records."""

from __future__ import annotations

import inspect
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, nn
from mindspore.common.api import _pynative_executor
from mindspore.common.hook_handle import HookHandle
from mindspore.ops.operations.debug_ops import TensorDump

from msprobe_hooks.errors import RecordingError
from msprobe_hooks.extensions.mindspore.context import FUNCTIONS, Compilations
from msprobe_hooks.extensions.mindspore.recorder import MindSporeRecorder
from msprobe_hooks.recording import modules
from msprobe_hooks.recording.recorder import Recorder
from msprobe_hooks.regular_files import open_regular

_HAS_ALWAYS_CALL = "always_call" in inspect.signature(nn.Cell.register_forward_hook).parameters


class ParameterGradients(modules.ParameterGradients):
    """Records the gradients of a cell's own parameters."""

    def watch(self, parameter: Parameter, arrive: Callable[[Any], None]) -> Any:
        """Register a function to call with the gradient of a parameter."""
        return parameter.register_hook(arrive)

    def gradient(self, parameter: Tensor) -> Tensor:
        """Return what came, which is the gradient."""
        return parameter

    def in_order(self, arrived: dict[str, Any]) -> dict[str, Any]:
        """Return the gradients in the order of the cell's parameters."""
        return {name: arrived[name] for name in self._parameters if name in arrived}


class CellHooks(modules.ModuleHooks):
    """The hooks on a set of cells; ``remove`` takes them all off.

    Where the program compiles a function or a cell's ``construct`` (``mindspore.jit``), they are out of the way of the
    compiler, which would compile them with the cells inside.
    """

    hooks_run_in = str(sys.modules[nn.Cell.__module__].__file__)
    call_method = "construct"
    # MindSpore before 2.10 runs no hook after a cell that raised.
    end_options = modules.ModuleHooks.end_options if _HAS_ALWAYS_CALL else MappingProxyType({"with_kwargs": True})
    gradients = ParameterGradients

    def __init__(self, recorder: Recorder, cells: Iterable[tuple[str, nn.Cell]]) -> None:
        super().__init__(recorder, cells)
        self._compilations = Compilations((FUNCTIONS,), self._out_of_the_way)

    def remove(self) -> None:
        """Take the hooks off."""
        self._compilations.end()
        super().remove()

    def is_hidden(self) -> bool:
        """Return whether this runs inside a call that is recorded as a whole."""
        return self._recorder.is_suspended

    def note_hidden(self) -> None:
        """Do nothing: the call around it is recorded."""

    def parameters(self, module: nn.Cell) -> Iterable[Parameter]:
        """Return the parameters of a cell and of all inside it."""
        parameters: Iterable[Parameter] = module.get_parameters()
        return parameters

    def own_parameters(self, module: nn.Cell) -> dict[str, Parameter]:
        """Return the parameters that a cell itself holds, by their names as attributes."""
        return {name: parameter for name, parameter in module._params.items() if parameter is not None}

    @contextmanager
    def _out_of_the_way(self) -> Iterator[None]:
        # Not by the handles: MindSpore counts what they do and would compile everything again at each call.
        hooks = {
            handle.handle_id: table
            for handle in self._handles
            if isinstance(handle, HookHandle) and (table := handle.hook_dict_ref()) is not None
        }
        tables = [(table, dict(table)) for table in hooks.values()]
        for number, table in hooks.items():
            del table[number]
        try:
            yield
        finally:
            for table, content in tables:
                table.clear()
                table.update(content)


_FILE = re.compile(
    r"(?P<cell>\d+)\.(?P<direction>forward|backward)\.(?P<side>[a-z]+)\.(?P<slot>.+)\."
    r"(?:_in|_out)?_(?P<dtype>[a-z0-9]+)_(?P<id>\d+)\.npy"
)
_MARK: Final = "mark"
# Seconds. A choice: long enough for a slow disk to take all tensors of a step, short enough for a job to end by itself.
_LONGEST_WAIT: Final = 600.0
_PAUSE: Final = 0.01


@dataclass
class DumpedCall:
    """One direction of a cell's call: the files of its tensors by side and slot. ``last`` is the time of its end."""

    name: str
    parent: str | None
    last: int = -1
    files: dict[str, dict[str, Path]] = field(default_factory=lambda: defaultdict(dict))

    @property
    def is_forward(self) -> bool:
        """Return whether it is the call itself, and not its gradients."""
        return ".forward." in self.name

    def emit(self, recorder: MindSporeRecorder) -> None:
        """Send the recorder the record, which has tensors alone: other arguments are constants of the graph."""
        if not recorder.filter.admits(self.name):
            return
        try:
            with recorder.quiet():
                recorder.emit(self.name, self._record(recorder), self.parent, "modules")
        except (OSError, ValueError) as error:
            recorder.summary.note_error(self.name, error)

    def _record(self, recorder: MindSporeRecorder) -> dict[str, Any]:
        elements, wanted = recorder.elements(self.name), recorder.directions
        record: dict[str, Any] = {}
        if not self.is_forward:
            for side in ("input", "output"):
                if getattr(wanted, side):
                    record[side] = elements.sequence(_flat(self.files[side]), side)
            return record
        if wanted.input:
            record["input_args"] = elements.sequence(_sequence(_nested(self.files["input"])), "input")
            record["input_kwargs"] = elements.mapping(_nested(self.files["kwargs"]), "kwargs")
            record["parameters"] = elements.mapping(_nested(self.files["parameters"]), "parameters")
        if wanted.output:
            record["output"] = elements.sequence(_sequence(_nested(self.files["output"])), "output")
        return record


def settle(folder: Path) -> None:
    """Wait until all is in files that graphs have to write; a thread of MindSpore's writes them, in order.

    Raises RecordingError where a file that was written last does not come.
    """
    # A graph that has failed reports it where the program reads its result.
    with suppress(Exception):
        _pynative_executor.sync()
    TensorDump()(str(folder / _MARK), Tensor([0], mindspore.int32))
    deadline = time.monotonic() + _LONGEST_WAIT
    while not any(folder.glob(f"{_MARK}*")):
        if time.monotonic() > deadline:
            waited = f"{_LONGEST_WAIT:.0f} s"
            raise RecordingError(f"{folder}: MindSpore has not written its tensors in {waited}; is the disk full?")
        time.sleep(_PAUSE)


def dumped_calls(folder: Path, prefixes: Sequence[str]) -> list[DumpedCall]:
    """Return the calls in the files of a folder, in the order of their ends; ``prefixes`` are those of the cells."""
    places: dict[tuple[int, str, str, str], list[tuple[int, Path]]] = defaultdict(list)
    for file in folder.iterdir():
        match = _FILE.fullmatch(file.name)
        if match is not None:
            place = (int(match["cell"]), match["direction"], match["side"], match["slot"])
            places[place].append((int(match["id"]), file))
    counts: dict[tuple[int, str], int] = defaultdict(int)
    for (cell, direction, _, _), files in places.items():
        counts[cell, direction] = max(counts[cell, direction], len(files))
    calls: dict[str, DumpedCall] = {}
    for (cell, direction, side, slot), files in places.items():
        count = counts[cell, direction]
        for number, (moment, file) in enumerate(sorted(files)):
            own = number if direction == "forward" else count - 1 - number
            name = f"{prefixes[cell]}.{direction}.{own}"
            call = calls.get(name)
            if call is None:
                parent = _parent(cell, own, direction, prefixes, counts)
                call = calls[name] = DumpedCall(name, parent)
            call.files[side][slot] = file
            call.last = max(call.last, moment)
    return sorted(calls.values(), key=lambda call: call.last)


def _parent(
    cell: int, number: int, direction: str, prefixes: Sequence[str], counts: Mapping[tuple[int, str], int]
) -> str | None:
    """Return the call that one was made in: of the innermost cell around it that was called, as often as it was."""
    path = _path(prefixes[cell])
    around = [
        other
        for other, prefix in enumerate(prefixes)
        if counts.get((other, direction)) and path.startswith(f"{_path(prefix)}.")
    ]
    if not around:
        return None
    home = max(around, key=lambda other: len(prefixes[other]))
    own = number * counts[home, direction] // counts[cell, direction]
    return f"{prefixes[home]}.{direction}.{own}"


def _path(prefix: str) -> str:
    return prefix.rpartition(".")[0]


def _nested(files: Mapping[str, Path]) -> dict[str, Any]:
    """Return the tensors by the first word of their slots, those of a tuple as lists."""
    members: dict[str, dict[str, Path]] = defaultdict(dict)
    for slot, file in files.items():
        first, _, rest = slot.partition(".")
        members[first][rest] = file
    return {first: _tensor(own[""]) if "" in own else _sequence(_nested(own)) for first, own in members.items()}


def _sequence(values: Mapping[str, Any]) -> list[Any]:
    """Return values in the order of their numbers, None for anything but a tensor."""
    numbers = {int(slot): value for slot, value in values.items() if slot.isdigit()}
    return [numbers.get(place) for place in range(max(numbers, default=-1) + 1)]


def _flat(files: Mapping[str, Path]) -> list[Tensor]:
    """Return gradients in the order of the arguments that they are of, as they are recorded of calls."""
    return [_tensor(files[slot]) for slot in sorted(files, key=_order)]


def _order(slot: str) -> list[tuple[bool, int, str]]:
    return [(not word.isdigit(), int(word) if word.isdigit() else 0, word) for word in slot.split(".")]


def _tensor(file: Path) -> Tensor:
    match = _FILE.fullmatch(file.name)
    assert match is not None
    with open_regular(file) as content:
        array = np.load(content, allow_pickle=False)
    # Of bfloat16, which numpy lacks, MindSpore writes float32.
    return Tensor(array).astype(mindspore.bfloat16) if match["dtype"] == "bfloat16" else Tensor(array)
