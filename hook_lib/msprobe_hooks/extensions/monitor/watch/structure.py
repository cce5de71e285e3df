"""The structure of a model as it runs (inputs, outputs, stacks), and alarms of rules while a training runs."""

from __future__ import annotations

import csv
import json
import logging
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msprobe_hooks.extensions.monitor.rules import Detector, make_rule
from msprobe_hooks.extensions.monitor.series.anomalies import Alert
from msprobe_hooks.extensions.monitor.series.tables import Row, Watched
from msprobe_hooks.extensions.monitor.watch.step_statistics import Collection
from msprobe_hooks.recording.interposition import uncopied

STRUCTURE_FILE = "module_struct.json"
STACK_FILE = "stack_info.csv"


class Structure:
    """Notes the first call of each module, given as name and module, until `write`.

    ``tensor_class`` and ``module_class`` are the framework's.
    """

    def __init__(
        self,
        collection: Collection,
        modules: Sequence[tuple[str, Any]],
        tensor_class: type,
        module_class: type,
        *,
        has_structure: bool,
        has_stacks: bool,
    ) -> None:
        self._tensor_class = tensor_class
        # The frames that run hooks say nothing.
        self._hidden = (str(Path(__file__).parent), str(sys.modules[module_class.__module__].__file__))
        self._has_structure = has_structure
        self._has_stacks = has_stacks
        self._structure: dict[str, dict[str, Any]] = {}
        self._stacks: dict[str, str] = {}
        self._handles: list[Any] = []
        for name, module in modules:
            hook = collection.harmless(f"the structure of module {name!r}", partial(self._note, name))
            self._handles.append(module.register_forward_hook(uncopied(hook)))

    def remove(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def write(self, folder: Path) -> None:
        """Write what was noted, of which there is no more."""
        self.remove()
        folder.mkdir(parents=True, exist_ok=True)
        if self._has_structure:
            (folder / STRUCTURE_FILE).write_text(json.dumps(self._structure, indent=2) + "\n")
        if self._has_stacks:
            with (folder / STACK_FILE).open("w", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(("module_name", "stack_info"))
                writer.writerows(self._stacks.items())

    def _note(self, name: str, _: Any, inputs: Any, output: Any) -> None:
        if name in self._structure:
            return
        self._structure[name] = {side: self._described(one) for side, one in (("input", inputs), ("output", output))}
        if self._has_stacks:
            frames = reversed([one for one in traceback.extract_stack() if not one.filename.startswith(self._hidden)])
            self._stacks[name] = "".join(
                f"File {one.filename}, line {one.lineno}, in {one.name}, \n {one.line}\n" for one in frames
            )

    def _described(self, value: Any) -> dict[str, str]:
        """Return what msprobe says of a value: ``{"config": "tuple[1]", "0": "size=(2, 8), dtype=torch.float32"}``."""
        if isinstance(value, (tuple, list)):
            sizes = {str(place): self._size(one) for place, one in enumerate(value)}
            return {"config": f"{type(value).__name__}[{len(value)}]", **sizes}
        if isinstance(value, self._tensor_class):
            return {"config": "tensor", "tensor": self._size(value)}
        return {"config": f"{type(value)}"}

    def _size(self, value: Any) -> str:
        if isinstance(value, self._tensor_class):
            return f"size={tuple(value.shape)}, dtype={value.dtype}"  # type: ignore[attr-defined]
        return f"{type(value)}"


_log = logging.getLogger("msprobe_hooks")

# Extrema and shares jump for good reasons; msprobe 26.x judges these two as well.
_JUDGED = ("norm", "mean")


class Alarm:
    """Feeds norms and means, or where neither is measured all statistics, to rules of their own; the first speaks."""

    def __init__(self, rules: Sequence[tuple[str, Mapping[str, Any]]], statistics: Sequence[str]) -> None:
        """Make the rules. Raises ConfigError for one that is unknown or has wrong limits."""
        self._rules = [(name, make_rule(name, limits)) for name, limits in rules]
        judged = [name for name in statistics if name in _JUDGED] or statistics
        self._statistics = [(place, name) for place, name in enumerate(statistics) if name in judged]
        self._detectors: dict[tuple[Watched, str], list[tuple[str, Detector]]] = {}

    def feed(self, rows: Iterable[Row]) -> list[Alert]:
        """Return what is wrong with the rows of a step, and log it."""
        alerts = [alert for place, row in enumerate(rows) for alert in self._judged(place, row)] if self._rules else []
        for alert in alerts:
            _log.warning("%s", alert)
        return alerts

    def _judged(self, place: int, row: Row) -> Iterable[Alert]:
        for column, statistic in self._statistics:
            series = (row.watched, statistic)
            detectors = self._detectors.get(series)
            if detectors is None:
                detectors = self._detectors[series] = [(name, rule.detector()) for name, rule in self._rules]
            found = [(name, detector.feed(row.values[column])) for name, detector in detectors]
            yield from [Alert(row, place, statistic, name, reason) for name, reason in found if reason][:1]
