"""The sessions of MindSpore (observers of functions, primitives, cells and compiled functions) and of MindTorch."""

from __future__ import annotations

import atexit
import operator
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from mindspore import Tensor, nn, ops
from mindspore.ops.operations.debug_ops import DumpGradient, TensorDump

from msprobe_hooks.dump.recording_paths import KERNEL_LEVEL
from msprobe_hooks.dump.writer import make_folder
from msprobe_hooks.errors import ConfigError, RecordingError
from msprobe_hooks.extensions.mindspore.apis import functions, layers
from msprobe_hooks.extensions.mindspore.call_recording import (
    Calls,
    JitCalls,
    Primitives,
    recorded,
    recording,
    recording_layers,
)
from msprobe_hooks.extensions.mindspore.cells import CellHooks, dumped_calls, settle
from msprobe_hooks.extensions.mindspore.context import (
    CELLS,
    FUNCTIONS,
    Compilations,
    is_pynative,
    process_rank,
    require_backward_passes,
    require_pynative,
)
from msprobe_hooks.extensions.mindspore.graph_dump import GraphDump, require_no_graph, require_settings_of_cells
from msprobe_hooks.extensions.mindspore.recorder import MindSporeRecorder, is_recomputation_of
from msprobe_hooks.recording.config import Settings
from msprobe_hooks.recording.filters import DataMode
from msprobe_hooks.recording.modules import prefixed
from msprobe_hooks.recording.session import Hooks, Model, Observer, Session
from msprobe_hooks.recording.summary import Summary
from msprobe_hooks.torch import api_lists

_KERNEL: Final = "TensorDump"


class GraphCells:
    """The wrappers around the ``construct`` of cells, pairs of record prefix and cell; ``remove`` takes them off.

    What was compiled until then writes on into its folder, which goes when the process ends.
    """

    def __init__(self, recorder: MindSporeRecorder, cells: Iterable[tuple[str, nn.Cell]]) -> None:
        self._recorder = recorder
        make_folder(recorder.settings.dump_path)
        self._folder = Path(tempfile.mkdtemp(prefix="cells_", dir=recorder.settings.dump_path.absolute()))
        atexit.register(shutil.rmtree, self._folder, ignore_errors=True)
        self._prefixes: list[str] = []
        self._former: list[tuple[nn.Cell, Any]] = []
        for prefix, cell in cells:
            # Lists of cells are never called.
            if type(cell).construct is not nn.CellList.construct:
                self._former.append((cell, cell.__dict__.get("construct")))
                stem = str(self._folder / str(len(self._prefixes)))
                cell.construct = _writing_construct(cell, stem, recorder.directions).__get__(cell, type(cell))
                self._prefixes.append(prefix)
        self._compilations = Compilations((CELLS, FUNCTIONS), _explained)

    def remove(self) -> None:
        """Restore the ``construct`` of the cells."""
        for cell, former in self._former:
            if former is None:
                del cell.construct
            else:
                cell.construct = former
        self._former.clear()
        self._compilations.end()

    def collect(self) -> None:
        """Hand the recorder what the cells wrote since the last time."""
        with self._settled():
            for call in dumped_calls(self._folder, self._prefixes):
                call.emit(self._recorder)

    def discard(self) -> None:
        """Forget what the cells wrote."""
        with self._settled():
            pass

    @contextmanager
    def _settled(self) -> Iterator[None]:
        """Wait for the files of all that was recorded, and delete them afterwards; go on where they do not come."""
        try:
            settle(self._folder)
            yield
            for file in self._folder.iterdir():
                file.unlink()
        except (RecordingError, OSError) as error:
            self._recorder.summary.note_error("cells of a graph", error)


def _writing_construct(cell: nn.Cell, stem: str, sides: DataMode) -> Callable[..., Any]:
    """Return a ``construct`` that writes files ``{stem}.{direction}.{side}.{slot}`` and else is the cell's own.

    It is MindSpore's compiler that reads what is inside.
    """
    inner = cell.construct
    write, write_gradient = TensorDump(), DumpGradient()
    parameters = tuple((name, one) for name, one in cell._params.items() if one is not None)
    takes, gives = sides.forward and sides.input, sides.forward and sides.output
    takes_back, gives_back = sides.backward and sides.input, sides.backward and sides.output

    def write_values(slot: str, x: Any, is_written: bool, group: str, is_written_back: bool, group_back: str) -> Any:
        if ops.is_tensor(x):
            if is_written:
                write(stem + group + slot + ".", x)
            if is_written_back:
                x = write_gradient(stem + group_back + slot + ".", x, "in")
        elif isinstance(x, (tuple, list)):
            parts = []
            for place, one in enumerate(x):
                parts.append(write_values(slot + "." + str(place), one, is_written, group, is_written_back, group_back))
            x = tuple(parts)
        return x

    def construct(self: nn.Cell, *args: Any, **kwargs: Any) -> Any:
        inputs = []
        for place, x in enumerate(args):
            inputs.append(write_values(str(place), x, takes, ".forward.input.", gives_back, ".backward.output."))
        named = {}
        for name, x in kwargs.items():
            named[name] = write_values(name, x, takes, ".forward.kwargs.", gives_back, ".backward.output.")
        if takes:
            for name, parameter in parameters:
                write(stem + ".forward.parameters." + name + ".", parameter)
        result = inner(*inputs, **named)
        if isinstance(result, (tuple, list)):
            outputs = []
            for place, x in enumerate(result):
                outputs.append(write_values(str(place), x, gives, ".forward.output.", takes_back, ".backward.input."))
            return tuple(outputs)
        return write_values("0", result, gives, ".forward.output.", takes_back, ".backward.input.")

    return construct


@contextmanager
def _explained() -> Iterator[None]:
    """Raise one clear error where the backend cannot write tensors."""
    try:
        yield
    except Exception as error:
        if f"[{_KERNEL}]" not in str(error):
            raise
        reported = next(line for line in str(error).splitlines() if f"[{_KERNEL}]" in line)
        raise RecordingError(
            f"level L0 needs {_KERNEL} in the graph, which this backend lacks ({reported.partition(',')[0]}); "
            "record at level L1, mix or L2, which dump kernels, or in PYNATIVE_MODE"
        ) from None


class MindSporeSession(Session):
    """A recording of what runs in MindSpore's dynamic graph mode (PyNative); of graphs MindSpore writes the dump.

    At level L0 it is the cells of a graph that write what they take and give, of which records are made.

    A ``recorder`` is given where something else than a dump is made of calls, which only PyNative mode shows.
    """

    recorder: MindSporeRecorder
    module_class = nn.Cell
    module_name = "mindspore.nn.Cell"
    #: What records of cells begin with.
    module_type = "Cell"

    def __init__(
        self, settings: Settings, model: Model | None = None, recorder: MindSporeRecorder | None = None
    ) -> None:
        if settings.tensor_files != "pt":
            raise ConfigError("tensor_files", settings.tensor_files, "not supported with MindSpore, which writes .npy")
        if settings.level in ("aten", "compiled"):
            raise ConfigError("level", settings.level, "L0, L1, mix, L2 or debug with MindSpore")
        require_backward_passes()
        self._graphs = GraphDump(settings) if recorder is None else None
        recorder = recorder or MindSporeRecorder(settings)
        observers: list[Observer] = []
        if settings.records_apis:
            observers += [Calls(recording(recorder), self.functions), Calls(recording_layers(recorder), self.layers)]
            observers.append(JitCalls(recorded(recorder), observers))
        super().__init__(recorder, observers, model)
        self._graph_cells: GraphCells | None = None

    def rank(self) -> int | None:
        """Return this process's rank, None where communication is not initialised."""
        return process_rank()

    def functions(self) -> Iterator[tuple[Any, str, str]]:
        """Yield owner, attribute and recorded name of the functions whose calls are recorded."""
        return functions()

    def layers(self) -> Iterator[tuple[Any, str, str]]:
        """Yield owner, attribute and recorded name of the primitives that no cell holds and that are recorded."""
        return layers()

    def hooks_on(self, model: Model) -> Hooks:
        """Register hooks on all cells inside a model; those of a graph write by themselves, when a step ends."""
        named = prefixed(model, self.module_type, lambda one: one.cells_and_names())
        cells = [(prefix, cell) for prefix, cell in named if not is_recomputation_of(cell)]
        if is_pynative():
            return CellHooks(self.recorder, cells)
        self._graph_cells = GraphCells(self.recorder, cells)
        return self._graph_cells

    def custom_api(self, module: Any, api: str, qualified: str) -> Observer:
        """Return what records calls of ``module.api``."""
        return Calls(recording(self.recorder), lambda: [(module, api, qualified)])

    def record_into(self, dump_path: Path) -> None:
        """Record into another folder. Raises ConfigError for graphs."""
        if self._graphs is not None and (self._graphs.is_on or self._records_graphs):
            allowed = f"{self.settings.dump_path}: MindSpore writes graphs into one folder until the process ends"
            raise ConfigError("dump_path", str(dump_path), allowed)
        super().record_into(dump_path)

    def _start(self, model: Model | None, rank: int | None) -> None:
        """Record as for any framework; graphs, until the process ends.

        Raises also ConfigError for a setting that has no meaning for graphs, RecordingError where a graph was compiled
        before.
        """
        if self._graphs is not None and (self._graphs.is_on or self._records_graphs):
            if not self._graphs.is_on and self.recorder.failure is None:
                self._graphs.begin()
            return
        if not self._is_on:
            self._prepare_cells()
        super()._start(model, rank)

    def stop(self) -> None:
        """Pause; write what a graph's cells recorded since the start."""
        if self._is_on and self._graph_cells is not None:
            with self.recorder.net("cells of a graph"):
                self._graph_cells.collect()
        super().stop()

    @property
    def _records_graphs(self) -> bool:
        level = self.recorder.settings.level
        return level == KERNEL_LEVEL or not (is_pynative() or level == "L0")

    def _prepare_cells(self) -> None:
        """Prepare the cells of a graph for recording. Raises ConfigError and RecordingError as ``start`` does."""
        if self._graph_cells is not None:
            # What ran while recording was off.
            self._graph_cells.discard()
        elif not is_pynative():
            if self._graphs is None:
                require_pynative()
            require_settings_of_cells(self.recorder.settings)
            require_no_graph()

    def close(self) -> Summary:
        """Finish, take the hooks off and return what was recorded."""
        summary = super().close()
        if self._graphs is not None:
            with self.recorder.net("graphs"):
                self._graphs.end(summary)
        return summary

    def _hook_new_model(self, model: Model) -> None:
        super()._hook_new_model(model)
        if self.recorder.settings.records_apis:
            self._observers.append(Primitives(recording(self.recorder), model))


# A program imports it in place of torch, or by a name of its own.
_MINDTORCH_NAMES = ("torch", "mindtorch.torch", "msadapter.torch", "msadapter.pytorch")
_MINDTORCH_PLACES = (
    ("Torch", "", api_lists.TORCH),
    ("Functional", "nn.functional", api_lists.FUNCTIONAL),
    ("Tensor", "Tensor", api_lists.TENSOR),
    ("Distributed", "distributed", api_lists.DISTRIBUTED),
)


class MindTorchRecorder(MindSporeRecorder):
    """Records what runs under MindTorch."""

    framework = "mindtorch"


class MindTorchSession(MindSporeSession):
    """A recording of what a program calls of MindTorch; modules are recorded where they are MindSpore's cells."""

    module_type = "Module"

    def __init__(self, settings: Settings, torch: ModuleType, model: Model | None = None) -> None:
        self._torch = torch
        super().__init__(settings, model, MindTorchRecorder(settings))

    def functions(self) -> Iterator[tuple[Any, str, str]]:
        """Yield the functions whose calls are recorded."""
        return _mindtorch_functions(self._torch)

    def layers(self) -> Iterator[tuple[Any, str, str]]:
        """Yield nothing: what MindSpore calls a primitive has no name in torch."""
        return iter(())


def mindtorch() -> ModuleType | None:
    """Return the imported torch if its tensors are MindSpore's, as msprobe recognizes it; else None."""
    loaded = (sys.modules.get(name) for name in _MINDTORCH_NAMES)
    return next((module for module in loaded if module is not None and makes_mindspore_tensors(module)), None)


def makes_mindspore_tensors(torch: ModuleType) -> bool:
    """Return whether a module with torch's names is MindTorch's."""
    make = getattr(torch, "tensor", None)
    return make is not None and isinstance(make(0.0), Tensor)


def _mindtorch_functions(torch: ModuleType) -> Iterator[tuple[Any, str, str]]:
    """Yield the owner, the attribute and the recorded name of every function of MindTorch that is recorded."""
    for type_, place, names in _MINDTORCH_PLACES:
        for name in sorted(names):
            path, _, attribute = name.rpartition(".")
            owner = _owner(torch, f"{place}.{path}".strip("."))
            function = getattr(owner, attribute, None)
            if callable(function) and not isinstance(function, type):
                yield owner, attribute, f"{type_}.{name}"


def _owner(torch: ModuleType, path: str) -> Any:
    try:
        return operator.attrgetter(path)(torch) if path else torch
    except AttributeError:
        return None
