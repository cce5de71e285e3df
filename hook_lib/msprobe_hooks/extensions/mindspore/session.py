"""The session of MindSpore: what observes functions, primitives, cells and compiled functions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mindspore import nn

from msprobe_hooks.dump.paths.static_graph import KERNEL_LEVEL
from msprobe_hooks.errors import ConfigError
from msprobe_hooks.extensions.mindspore.apis import functions, layers
from msprobe_hooks.extensions.mindspore.call_recording import Calls, Primitives, recording, recording_layers
from msprobe_hooks.extensions.mindspore.cells import CellHooks
from msprobe_hooks.extensions.mindspore.context import (
    is_pynative,
    process_rank,
    require_backward_passes,
    require_pynative,
)
from msprobe_hooks.extensions.mindspore.graph_cells import GraphCells
from msprobe_hooks.extensions.mindspore.graph_dump import GraphDump, require_no_graph, require_settings_of_cells
from msprobe_hooks.extensions.mindspore.jit import JitCalls, recorded
from msprobe_hooks.extensions.mindspore.recompute import is_recomputation_of
from msprobe_hooks.extensions.mindspore.recorder import MindSporeRecorder
from msprobe_hooks.recording.config import Settings
from msprobe_hooks.recording.modules import prefixed
from msprobe_hooks.recording.session import Hooks, Model, Observer, Session
from msprobe_hooks.recording.summary import Summary


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
        """Put hooks on all cells inside a model; those of a graph write by themselves, when a step ends."""
        found = prefixed(model, self.module_type, lambda one: one.cells_and_names())
        cells = [(prefix, cell) for prefix, cell in found if not is_recomputation_of(cell)]
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
