"""Cells of a compiled graph, which write their inputs and outputs by MindSpore's ``TensorDump``.

Each cell's ``construct`` is wrapped before the graph is compiled, and the wrapper is compiled with it: its kernels
write a file for each tensor of each call, ``DumpGradient`` those of gradients. At the end of a step the files become
records, as hooks make them in PyNative mode. MindSpore 2.10 has such kernels in the graphs of Ascend alone, and in
PyNative mode everywhere.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from mindspore import nn, ops
from mindspore.ops.operations.debug_ops import DumpGradient, TensorDump

from msprobe_hooks.dump.writer import make_folder
from msprobe_hooks.errors import RecordingError
from msprobe_hooks.extensions.mindspore.cell_dump_reader import dumped_calls, settle
from msprobe_hooks.extensions.mindspore.compilation_watch import CELLS, FUNCTIONS, Compilations
from msprobe_hooks.extensions.mindspore.recorder import MindSporeRecorder
from msprobe_hooks.recording.filters import DataMode

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
        """Give the cells their own ``construct`` again."""
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


def _writing_construct(cell: nn.Cell, stem: str, wanted: DataMode) -> Callable[..., Any]:
    """Return a ``construct`` that writes files ``{stem}.{direction}.{side}.{slot}`` and else is the cell's own.

    It is MindSpore's compiler that reads what is inside.
    """
    inner = cell.construct
    write, write_gradient = TensorDump(), DumpGradient()
    parameters = tuple((name, one) for name, one in cell._params.items() if one is not None)
    takes, gives = wanted.forward and wanted.input, wanted.forward and wanted.output
    takes_back, gives_back = wanted.backward and wanted.input, wanted.backward and wanted.output

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
        made = inner(*inputs, **named)
        if isinstance(made, (tuple, list)):
            outputs = []
            for place, x in enumerate(made):
                outputs.append(write_values(str(place), x, gives, ".forward.output.", takes_back, ".backward.input."))
            return tuple(outputs)
        return write_values("0", made, gives, ".forward.output.", takes_back, ".backward.input.")

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
