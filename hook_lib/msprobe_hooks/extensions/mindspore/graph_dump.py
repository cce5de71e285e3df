"""Dumps of compiled graphs by MindSpore itself, as no call of such a graph can be seen.

MindSpore reads ``MINDSPORE_DUMP_CONFIG`` when the process compiles its first graph, and never again: what is set later
is without effect, and what is dumped is dumped until the process ends. The file's keys are documented under "Using Dump
in the Graph Mode" of MindSpore's tutorials; its name is msprobe's.

At ``jit_level`` O2 Ascend's graph engine (GE) runs graphs as a whole, and has a configuration of its own. Its file and
variable are those that msprobe 1.2.2 writes (``kernel_graph_dump.py``). Never run: there is no such engine without
CANN.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import mindspore
from mindspore.common import api
from mindspore.common.api import _pynative_executor, context

from msprobe_hooks.dump.recording_paths import find_iterations, graph_folders
from msprobe_hooks.dump.writer import FILE_MODE, former_dump, make_folder, write_error
from msprobe_hooks.errors import ConfigError, RecordingError
from msprobe_hooks.recording.config import Settings
from msprobe_hooks.recording.summary import Summary

ENGINE_FILE: Final = "kernel_graph_dump.json"
ACL_VARIABLE: Final = "MS_ACL_DUMP_CFG_PATH"

_LEVEL = "jit_level"
_WHOLE_GRAPHS = "O2"
# In msprobe's order.
_KEYS = "dump_mode path net_name iteration saved_data input_output kernels support_device".split()


def runs_graphs(device_target: str) -> bool:
    """Return whether the program asks for it; first-generation cards, which do so unasked, are not detected."""
    level = context.get_jit_config().get(_LEVEL) or mindspore.get_context(_LEVEL)
    return device_target == "Ascend" and level == _WHOLE_GRAPHS


def engine_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return MindSpore's configuration for a recording as the engine reads it."""
    common = config["common_dump_settings"]
    return {"common_dump_settings": {key: common[key] for key in _KEYS} | {"op_debug_mode": 0, "file_format": "npy"}}


def name_to_library(path: str, config: Mapping[str, Any]) -> None:
    """Name the configuration to ACL, where all kernels are dumped: those of a list MindSpore itself chooses."""
    if config["common_dump_settings"]["dump_mode"] == 0:
        os.environ[ACL_VARIABLE] = path
    else:
        forget()


def forget() -> None:
    """Name no configuration to ACL."""
    os.environ.pop(ACL_VARIABLE, None)


VARIABLE: Final = "MINDSPORE_DUMP_CONFIG"
CONFIG_FILE: Final = "kernel_kbyk_dump.json"

_SIDES = {("all",): 0, ("input",): 1, ("output",): 2}
# MindSpore's own rule, which it reports only when the first graph is compiled.
_PATH = re.compile(r"[A-Za-z0-9_/-]+")
_CARDS_OF_A_HOST = range(8)
# What MindSpore has no setting for.
_WITHOUT_MEANING = ("scope", "exclude", "tensor_list", "summary_mode", "spool_size", "overflow_nums")

_log = logging.getLogger("msprobe_hooks")


def dump_config(settings: Settings, device_target: str) -> dict[str, Any]:
    """Return MindSpore's configuration for a recording; a CPU takes no statistics and writes tensors.

    Raises ConfigError for a setting that has no meaning for graphs.
    """
    if settings.level not in ("L1", "L2", "mix"):
        raise ConfigError("level", settings.level, "L1, mix or L2, which dump kernels, or L0 in GRAPH_MODE")
    path = _path_for_mindspore(settings)
    _require_settings(settings, _WITHOUT_MEANING)
    if settings.data_mode not in _SIDES:
        raise ConfigError("data_mode", list(settings.data_mode), "all, input or output in GRAPH_MODE")
    has_statistics = settings.task == "statistics" and device_target != "CPU"
    return {
        "common_dump_settings": {
            "op_debug_mode": 0,
            "dump_mode": 1 if settings.list else 0,
            "path": path,
            "net_name": "Net",
            "iteration": "all" if settings.step is None else "|".join(map(str, sorted(settings.step))),
            "saved_data": "statistic" if has_statistics else "tensor",
            "input_output": _SIDES[settings.data_mode],
            "kernels": list(settings.list),
            "support_device": sorted(settings.rank or _CARDS_OF_A_HOST),
        },
        "e2e_dump_settings": {"enable": True, "trans_flag": True},
    }


def require_settings_of_cells(settings: Settings) -> None:
    """Raise ConfigError for a setting that has no meaning for the cells of a graph, level L0 in GRAPH_MODE."""
    if settings.level != "L0":
        raise ConfigError("level", settings.level, "L0, L1, mix or L2 in GRAPH_MODE")
    _path_for_mindspore(settings)
    _require_settings(settings, ("scope",))


def require_no_graph() -> None:
    """Raise RecordingError where this process has compiled a graph: no recording sees into it any more."""
    if _has_compiled():
        raise RecordingError(
            "a graph was compiled before the recording began, and compilation fixes what is dumped; start the "
            "recording before the first call of a compiled cell or function"
        )


class GraphDump:
    """Has MindSpore dump the graphs that this process compiles from now on."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._began: float | None = None

    @property
    def is_on(self) -> bool:
        """Return whether MindSpore is configured to dump."""
        return self._began is not None

    def begin(self) -> None:
        """Write the configuration and name it to MindSpore.

        Raises ConfigError where a setting has no meaning for graphs, RecordingError where it is too late or the folder
        cannot be written.
        """
        target, folder = mindspore.get_context("device_target"), self._settings.dump_path
        config = dump_config(self._settings, target)
        if VARIABLE in os.environ:
            raise ConfigError(VARIABLE, os.environ[VARIABLE], "unset, as a recording sets it")
        require_no_graph()
        former = next(iter(find_iterations(os.walk(folder))), None)
        if former is not None:
            raise former_dump(former.parent)
        if self._settings.task == "statistics" and target == "CPU":
            _log.warning("MindSpore computes no statistics of a graph on a CPU: whole tensors are written instead")
        if runs_graphs(target):
            config = engine_config(config)
            path = _written(folder / ENGINE_FILE, config)
            name_to_library(str(path), config)
        else:
            path = _written(folder / CONFIG_FILE, config)
            forget()
        os.environ[VARIABLE] = str(path)
        self._began = time.monotonic()

    def end(self, summary: Summary) -> None:
        """Wait for what was called, whether the program has read its result or not, and say what MindSpore wrote."""
        if self._began is None:
            return
        try:
            _pynative_executor.sync()
        except Exception as error:
            # A graph that has failed reports it here first.
            summary.note_error("waiting for graphs", error)
        iterations = find_iterations(os.walk(self._settings.dump_path))
        summary.started, summary.awaited = True, "graph"
        summary.iterations, summary.seconds = len(iterations), time.monotonic() - self._began
        summary.folders = [folder for iteration in iterations for folder in graph_folders(iteration)]
        summary.bytes = sum(file.stat().st_size for folder in summary.folders for file in folder.iterdir())
        if not _has_compiled():
            # Nor did MindSpore read the variable.
            del os.environ[VARIABLE]
            forget()
        self._began = None


def _path_for_mindspore(settings: Settings) -> str:
    path = str(settings.dump_path.absolute())
    if not _PATH.fullmatch(path):
        raise ConfigError("dump_path", path, "a path of letters, digits, - and _, as MindSpore requires")
    return path


def _require_settings(settings: Settings, without_meaning: Collection[str]) -> None:
    if settings.task not in ("statistics", "tensor"):
        raise ConfigError("task", settings.task, "statistics or tensor in GRAPH_MODE")
    for field in fields(Settings):
        if field.name in without_meaning and getattr(settings, field.name) != field.default:
            raise ConfigError(field.name, getattr(settings, field.name), "not supported in GRAPH_MODE")


def _has_compiled() -> bool:
    """Return whether this process has compiled a graph, of a function or of a cell."""
    return bool(api.ms_compile_cache) or any(api.cells_compile_cache.values())


def _written(path: Path, config: dict[str, Any]) -> Path:
    make_folder(path.parent)
    path = path.absolute()
    try:
        path.touch(FILE_MODE)
        path.write_text(json.dumps(config, indent=4))
    except OSError as error:
        raise write_error(path, "written", error) from None
    return path
