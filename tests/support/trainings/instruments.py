"""Every instrument that looks at a training of PyTorch, as a context around one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

import msprobe_hooks
import pytest_msprobe
from msprobe_hooks import PrecisionDebugger, record
from msprobe_hooks.installed_extensions import extensions as extensions_of_hooks
from pytest_msprobe.installed_extensions import extensions
from tests.support.trainings.probing import finish

#: Runs a forward and backward pass under the instrument.
Run = Callable[[Callable[[], Any]], Any]
Instrument = Callable[[Path, nn.Module, torch.optim.Optimizer], AbstractContextManager[Run]]


def _as_it_is(function: Callable[[], Any]) -> Any:
    return function()


@contextmanager
def _record(level: str, folder: Path, model: nn.Module, _: object, **options: Any) -> Iterator[Run]:
    of_modules = {"model": model} if level in ("L0", "mix") else {}
    with record(folder / "run", level, **of_modules, **options):
        yield _as_it_is


@contextmanager
def _watch(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[Run]:
    everything = ("activations", "activation_gradients", "gradients", "parameters", "structure", "stacks")
    with msprobe_hooks.watch(model, optimizer, folder / "watched", what=everything):
        yield _as_it_is


@contextmanager
def _trainer_mon(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[Run]:
    path = folder / "monitor.json"
    everything = ("xy_distribution", "wg_distribution", "mv_distribution", "param_distribution", "print_struct")
    path.write_text(json.dumps({**dict.fromkeys(everything, True), "ops": ["norm", "min"]}))
    with patch.dict(os.environ, {"MONITOR_OUTPUT_DIR": str(folder / "monitored")}):
        monitor = msprobe_hooks.TrainerMon(path)
    monitor.set_monitor(model, optimizer=optimizer)
    try:
        yield _as_it_is
    finally:
        # Its hooks stay as long as its model, which a test may go on with.
        assert monitor._watcher is not None
        monitor._watcher.close()


@contextmanager
def _free_benchmark(folder: Path, model: nn.Module, _: object) -> Iterator[Run]:
    path = folder / "benchmark.json"
    section = {"pert_mode": "add_noise", "fuzz_device": "npu", "fuzz_stage": "backward", "list": ["."]}
    path.write_text(json.dumps({"task": "free_benchmark", "dump_path": str(folder), "free_benchmark": section}))
    debugger = PrecisionDebugger(path)
    debugger.start(model)
    try:
        yield _as_it_is
    finally:
        debugger._finish()


@contextmanager
def _grad_probe(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[Run]:
    path = folder / "config.json"
    section = {"grad_probe": {"grad_level": "L0"}, "step": [], "rank": []}
    path.write_text(json.dumps({"task": "grad_probe", "dump_path": str(folder / "probe"), **section}))
    PrecisionDebugger(path).monitor(model, optimizer)
    try:
        yield _as_it_is
    finally:
        finish()


@contextmanager
def _feed(folder: Path, model: nn.Module, _: object) -> Iterator[Run]:
    with record(folder / "fed", "mix", task="tensor", model=model), torch.no_grad():
        model(torch.ones(2, 4))
    with msprobe_hooks.feed(folder / "fed", ["*"], model=model, step=0):
        yield _as_it_is


@contextmanager
def _fix(_: Path, __: nn.Module, ___: object) -> Iterator[Run]:
    with msprobe_hooks.fix("linear", "relu", to="float64"):
        yield _as_it_is


@contextmanager
def _environment(folder: Path, model: nn.Module, _: object) -> Iterator[Run]:
    msprobe_hooks.write_environment(folder / "environment", model)
    yield _as_it_is
    # It looks at what the program draws until the model is called.
    with torch.no_grad():
        model(torch.ones(2, 4))


@contextmanager
def _weights(folder: Path, model: nn.Module, _: object) -> Iterator[Run]:
    for what in ("digest", "statistics", "tensors"):
        msprobe_hooks.write_weights(model, folder / what, what)
    yield _as_it_is


@contextmanager
def _repeated_steps(folder: Path, model: nn.Module, _: object) -> Iterator[Run]:
    yield msprobe_hooks.replay_step(model, every=1, folder=folder / "repeats")


@contextmanager
def _live(folder: Path, _: nn.Module, __: object) -> Iterator[Run]:
    with pytest_msprobe.live(journal=folder / "journal.jsonl"):
        yield _as_it_is


#: Instruments of the core, by what a test is called.
_OF_THE_CORE: dict[str, Instrument] = {
    "record L0": partial(_record, "L0"),
    "record L1": partial(_record, "L1"),
    "record mix": partial(_record, "mix"),
    "record tensors": partial(_record, "mix", task="tensor"),
    "record containers": partial(_record, "mix", task="tensor", tensor_files="safetensors"),
    "record md5": partial(_record, "mix", summary_mode="md5"),
    "record xor": partial(_record, "mix", summary_mode="xor"),
    "record aten": partial(_record, "aten", task="tensor"),
}
#: Instruments of extensions, by the names of both.
_OF_EXTENSIONS: dict[tuple[str, str], Instrument] = {
    ("overflow", "overflow check"): partial(_record, "mix", task="overflow_check"),
    ("monitor", "watch"): _watch,
    ("monitor", "trainer monitor"): _trainer_mon,
    ("free_benchmark", "free benchmark"): _free_benchmark,
    ("monitor", "gradient probe"): _grad_probe,
    ("feed", "feed"): _feed,
    ("fix", "fix"): _fix,
    ("environment", "environment"): _environment,
    ("checkpoint", "weights"): _weights,
    ("repeated_steps", "repeated steps"): _repeated_steps,
    ("live_checks", "live"): _live,
}
_INSTALLED = {*extensions(), *extensions_of_hooks()}
INSTRUMENTS = _OF_THE_CORE | {
    name: instrument for (extension, name), instrument in _OF_EXTENSIONS.items() if extension in _INSTALLED
}
