"""Configuration of the free benchmark: the section ``free_benchmark`` of msprobe's ``config.json``."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, get_args

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.recording import validators as checks
from msprobe_hooks.recording.config import Settings, settings

PERTURBATIONS: Final = ("improve_precision", "add_noise", "bit_noise", "change_value", "no_change", "to_cpu")


TASK: Final = "free_benchmark"

Stage = Literal["forward", "backward"]
Handler = Literal["check", "fix"]

_log = logging.getLogger("msprobe_hooks")

# The longer name first, where one begins with the other.
_MINDSPORE_MODULES = {
    "mindspore.mint.nn.functional.": "MintFunctional",
    "mindspore.mint.": "Mint",
    "mindspore.ops.": "Functional",
    "mindspore.Tensor.": "Tensor",
}
_FIXING = ("improve_precision", "to_cpu")
_ON_CPU = "to_cpu"


@dataclass(frozen=True, slots=True)
class BenchmarkSettings:
    """A checked section.

    ``pert_mode`` is one of `names.PERTURBATIONS`. With ``if_preheat`` the thresholds are learned in the first
    ``preheat_step`` steps, from at most ``max_sample`` calls of an API in each.
    """

    fuzz_device: str = "npu"
    pert_mode: str = "improve_precision"
    handler_type: Handler = "check"
    fuzz_level: str = "L1"
    fuzz_stage: Stage = "forward"
    if_preheat: bool = False
    preheat_step: int = 15
    max_sample: int = 15


def benchmark_settings(common: Mapping[str, Any], **overrides: Any) -> tuple[Settings, BenchmarkSettings]:
    """Check the content of a ``config.json``, of which ``overrides`` that are not None win: steps and calls, and how.

    Raises ConfigError.
    """
    section = checks.object_with(_KEYS)(TASK, common.get(TASK) or {})
    raw = {key: common[key] for key in ("dump_path", "rank", "step", "level") if common.get(key) is not None}
    raw |= {key: section[key] for key in _CHOOSING if section.get(key) is not None}
    raw |= {key: value for key, value in overrides.items() if value is not None}
    observed = settings(raw.pop("dump_path", Settings().dump_path), **raw)
    if observed.level != "L1":
        raise ConfigError("level", observed.level, f"L1 with task {TASK}")
    if observed.scope and observed.list:
        raise ConfigError(f"{TASK}.scope", list(observed.scope), "not supported together with list")
    checked = {
        key: check(f"{TASK}.{key}", section[key]) for key, check in _CHECKS.items() if section.get(key) is not None
    }
    return replace(observed, task=TASK), _consistent(BenchmarkSettings(**checked), observed)


def as_for_mindspore(observed: Settings, benchmark: BenchmarkSettings) -> tuple[Settings, BenchmarkSettings]:
    """Return what msprobe does of it with MindSpore: preheating is left out, with a warning, as it needs the CPU.

    In ``list``, ``mindspore.mint.add`` means the calls of that function. Raises ConfigError for ``to_cpu``.
    """
    if benchmark.pert_mode == _ON_CPU:
        allowed = ", ".join(mode for mode in PERTURBATIONS if mode != _ON_CPU)
        raise ConfigError(f"{TASK}.pert_mode", benchmark.pert_mode, f"{allowed} with MindSpore")
    if benchmark.if_preheat:
        _log.warning("%s.if_preheat is ignored with MindSpore: thresholds are not learned", TASK)
    entries = tuple(_recorded_name(entry) for entry in observed.list)
    return replace(observed, list=entries), replace(benchmark, if_preheat=False)


def _recorded_name(entry: str) -> str:
    """Return the part that the names of a function's records share; anything else as it is."""
    for module, kind in _MINDSPORE_MODULES.items():
        if entry.startswith(module):
            return f"{kind}.{entry.removeprefix(module)}."
    return entry


def _consistent(benchmark: BenchmarkSettings, observed: Settings) -> BenchmarkSettings:
    if (benchmark.fuzz_device == "cpu") != (benchmark.pert_mode == _ON_CPU):
        raise ConfigError(f"{TASK}.fuzz_device", benchmark.fuzz_device, f"cpu with {_ON_CPU}, else npu")
    if benchmark.fuzz_stage == "backward" and not observed.list:
        raise ConfigError(f"{TASK}.list", [], "a list of parts of names with fuzz_stage backward")
    if benchmark.handler_type == "fix":
        if benchmark.pert_mode not in _FIXING:
            raise ConfigError(f"{TASK}.pert_mode", benchmark.pert_mode, f"{' or '.join(_FIXING)} with handler_type fix")
        if benchmark.fuzz_stage != "forward":
            raise ConfigError(f"{TASK}.fuzz_stage", benchmark.fuzz_stage, "forward with handler_type fix")
        if benchmark.if_preheat:
            raise ConfigError(f"{TASK}.if_preheat", True, "false with handler_type fix")
    if benchmark.if_preheat and benchmark.fuzz_stage != "forward":
        raise ConfigError(f"{TASK}.if_preheat", True, "false with fuzz_stage backward")
    return benchmark


def _count(key: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(key, value, "an integer >= 1")
    return value


_CHECKS: Mapping[str, Any] = {
    "fuzz_device": checks.one_of(("npu", "cpu")),
    "pert_mode": checks.one_of(PERTURBATIONS),
    "handler_type": checks.one_of(get_args(Handler)),
    "fuzz_level": checks.one_of(("L1",)),
    "fuzz_stage": checks.one_of(get_args(Stage)),
    "if_preheat": checks.flag,
    "preheat_step": _count,
    "max_sample": _count,
}
_CHOOSING = ("scope", "list", "exclude")
_KEYS = (*_CHOOSING, *_CHECKS)
