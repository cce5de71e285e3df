"""Saved cases judged again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch

from msprobe_hooks.dump.schema import TensorElement
from msprobe_standards import Policy, built_in_policies
from msprobe_standards.registry import STANDARDS
from msprobe_standards.validation import shown
from pytest_msprobe.devices.device import Device
from pytest_msprobe.devices.math_modes import MathMode
from pytest_msprobe.devices.registry import DeviceRegistry, activate, parse_device
from pytest_msprobe.engine.frameworks import framework_named, missing_piece
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.framework import Framework
from pytest_msprobe.engine.replay.references import ReferenceRegistry
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.errors import CaseError, DeviceError
from pytest_msprobe.modes.check.rerun_results import batch_invariance_of, repeats_of
from pytest_msprobe.modes.check.reruns import repeated, run_on_parts
from pytest_msprobe.modes.check.saved_case import JSON_NAME, TENSORS_NAME, Case, read_call_case
from pytest_msprobe.reports.github import failure_text
from pytest_msprobe.results.result import DirectionResult
from pytest_msprobe.storage.limits import TensorFileError
from pytest_msprobe.storage.tensors import read_tensor


@dataclass(frozen=True, slots=True)
class ReplayedCase:
    """A case and what came of judging it again, on ``place``: the device in words."""

    case: Case
    result: DirectionResult
    place: str

    def text(self, command: str, verbosity: int = 0) -> str:
        """Return the verdict as a failing item shows it; ``command`` judges this case alone."""
        verdict, before = self.result.verdict, self.case.result
        if verdict.outcome == "fail":
            return failure_text(self.result, command, verbosity)
        by = f" by {verdict.standard}" if verdict.standard else ""
        reason = f": {verdict.reason}" if verdict.reason else ""
        settings = self.case.settings.get("device", "another device")
        then = f"it was {before.verdict.outcome} by {before.decided_by} on {settings}"
        return f"{self.result.record}: {verdict.outcome}{by}{reason}\n  {then}"


class Bench:
    """A device and the policy by which cases are judged on it.

    ``device`` is a name with or without an index, which each case's framework understands in its own way; ``policy``,
    ``level`` and ``math_mode`` None are those of each case. ``plugins`` are modules with
    ``pytest_msprobe_register_...`` hooks.
    Raises CaseError where there is no such device or the policy cannot be used.
    """

    def __init__(
        self,
        device: str,
        policy: str | None = None,
        level: str | None = None,
        plugins: Sequence[ModuleType] = (),
        math_mode: MathMode | None = None,
    ) -> None:
        self._devices = devices = DeviceRegistry()
        self._references = ReferenceRegistry()
        _register(plugins, "devices", devices)
        _register(plugins, "references", self._references)
        self._standards = STANDARDS.copy()
        _register(plugins, "standards", self._standards)
        try:
            self._choice = parse_device(device, devices)
            devices.get(self._choice.name)
        except DeviceError as error:
            raise CaseError(f"--device: {error}") from None
        self._places: dict[str, tuple[Framework, Device]] = {}
        self._policy = policy
        self._level = level
        self._math_mode: MathMode | None = math_mode
        if policy is not None:
            self._load(policy, level, "--policy")

    def judge(self, folder: Path) -> ReplayedCase:
        """Judge the case in a folder. Raises CaseError where it cannot be used."""
        case = read_call_case(folder)
        if self._policy is None:
            if case.policy not in built_in_policies():
                # A case comes from anybody, and is not to say which files of this machine are read.
                problem = f"was judged by the policy {shown(case.policy)}, which is not a built-in one"
                raise CaseError(problem, file=folder / JSON_NAME, remedy="pass its file as --policy")
            policy = self._load(case.policy, self._level or case.level, f"{folder / JSON_NAME}: policy")
        else:
            policy = self._load(self._policy, self._level, "--policy")
        framework, device = self._on(case.framework)
        setup = ReplayConfig(
            device,
            policy,
            references=self._references,
            seed=case.seed,
            math_mode=self._math_mode or case.math_mode,
            framework=framework,
        )
        return ReplayedCase(case, replay_case(case, folder, setup), framework.describe(device))

    def _load(self, policy: str, level: str | None, where: str) -> Policy:
        try:
            return Policy.load(policy, level, self._standards)
        except (ValueError, OSError) as error:
            raise CaseError(f"{where}: {error}", remedy="--policy names another") from None

    def _on(self, name: str) -> tuple[Framework, Device]:
        """Return a framework and its active device. Raises CaseError where one of them cannot be used."""
        if name not in self._places:
            self._places[name] = self._activated(name)
        return self._places[name]

    def _activated(self, name: str) -> tuple[Framework, Device]:
        missing = missing_piece(name)
        if missing is not None:
            raise CaseError(f"the case was recorded with {name}, but {missing}")
        try:
            framework = framework_named(name)
            device = framework.device(self._devices, self._choice.name)
            activate(device, self._choice, slot=0)
        except DeviceError as error:
            raise CaseError(f"--device: {error}") from None
        return framework, device


def replay_case(case: Case, folder: Path, setup: ReplayConfig) -> DirectionResult:
    """Judge the case in a folder on the setup's device, by its policy; the setup's seed is to be the case's.

    Its call runs as often, and on the same parts of its batch, as it did when the case was saved.

    Raises CaseError where the tensors are missing, damaged or those of another case.
    """

    def saved(element: TensorElement, path: str) -> torch.Tensor:
        if path not in case.tensors:
            raise CaseError(
                f"lacks the tensor {path!r} of its record", file=folder, remedy="copy or save the case again"
            )
        try:
            return read_tensor(folder / TENSORS_NAME, path, case.tensors[path])
        except TensorFileError as error:
            raise CaseError(str(error), remedy=error.remedy or "copy or save the case again") from None

    replay = Replay(case.call(), setup, saved)
    result, before = replay.judge(case.direction), repeats_of(case.result.extras)
    if before is not None:
        result = repeated(replay, case.direction, result, before.times)
    if batch_invariance_of(case.result.extras) is not None:
        result = run_on_parts(replay, case.direction, result)
    return result


def _register(plugins: Sequence[ModuleType], kind: str, registry: object) -> None:
    for plugin in plugins:
        hook = getattr(plugin, f"pytest_msprobe_register_{kind}", None)
        if hook is not None:
            hook(registry)
