"""Setups of a process: its card and policy, for each framework whose records it meets."""

from __future__ import annotations

import functools
import importlib
import os
from typing import TYPE_CHECKING, Any

import pytest

from pytest_msprobe.containment.deadline import paused
from pytest_msprobe.containment.process_state import state_key
from pytest_msprobe.containment.run_in_process import failed_probe
from pytest_msprobe.devices.card import release_memory
from pytest_msprobe.devices.registry import DeviceChoice, DeviceRegistry, activate
from pytest_msprobe.engine.framework_names import PYTORCH
from pytest_msprobe.engine.frameworks import framework_named
from pytest_msprobe.engine.import_torch import import_torch
from pytest_msprobe.errors import OptionError
from pytest_msprobe.results.result import Start
from pytest_msprobe.run.hosts import worker_host_of

if TYPE_CHECKING:
    from msprobe_standards import Policy
    from msprobe_standards.registry import StandardRegistry
    from pytest_msprobe.engine.replay.framework import Framework
    from pytest_msprobe.engine.replay.references import ReferenceRegistry
    from pytest_msprobe.engine.replay.strategies import StrategyRegistry
    from pytest_msprobe.engine.replay.trials.config import ReplayConfig
    from pytest_msprobe.engine.replay.trials.memory_budget import Admit
    from pytest_msprobe.run.options import Options


class Setups:
    """The setups of this process, made when first asked for. Nothing heavy is loaded before."""

    #: Of how many processes of this host this is one, and the slot by which it gets its card.
    _slot, _processes = 0, 1

    def __init__(self, options: Options, devices: DeviceRegistry, policy_option: str = "--msprobe-policy") -> None:
        self._options = options
        self._devices = devices
        self._policy_option = policy_option
        self._setups: dict[str, ReplayConfig] = {}
        self._is_introduced = False
        #: The frameworks of the items that run on the device; none where no item does.
        self.frameworks: tuple[str, ...] = ()
        self._measures_all = options.csv is not None
        self._baseline: DeviceChoice | None = None

    def judge_beside(self, card: DeviceChoice) -> None:
        """Judge items by the results of a card on another host; to be called before the device starts."""
        assert not self.has_started
        self._baseline = card

    def measure_all(self) -> None:
        """Measure items by every metric, whatever their standard reads; to be called before the device starts."""
        assert not self.has_started
        self._measures_all = True

    @property
    def has_started(self) -> bool:
        """Return whether the device has been activated in this process."""
        return bool(self._setups)

    @functools.cached_property
    def start(self) -> Start:
        """Return what this process runs items on, as it was before the first of them."""
        if not self._setups:
            for framework in self.frameworks or (PYTORCH,):
                self.setup_for(framework)
        setups = list(self._setups.values())
        described = "; ".join(setup.framework.describe(setup.device) for setup in setups)
        baseline = next((setup.baseline for setup in setups if setup.baseline is not None), None)
        described += f", baseline {baseline.describe()}" if baseline is not None else ""
        modes = {name: mode for setup in setups for name, mode in setup.framework.math_modes(setup.device).items()}
        return Start(f"{setups[0].device.name}:{self._index}", described, modes, self._host())

    @functools.cached_property
    def properties(self) -> list[tuple[str, str]]:
        """Return what JUnit shows of each item that ran here: the device, its math modes and the seed."""
        return [
            ("msprobe.device", self.start.device),
            ("msprobe.math_modes", self.start.modes_in_words),
            ("msprobe.seed", str(self._options.seed)),
        ]

    @property
    def card(self) -> str:
        """The card that items run on, such as ``npu:3``; empty before one has started."""
        return self.start.device if self.has_started or "start" in vars(self) else ""

    def introduce(self) -> Start | None:
        """Return ``start`` once, when the device has been activated; None before and after."""
        if self._is_introduced or not self.card:
            return None
        self._is_introduced = True
        return self.start

    def setup_for(self, framework: str) -> ReplayConfig:
        """Return the active device, the policy and the references for the calls of a framework.

        Raises DeviceError where the device or the framework cannot be used, OptionError where the policy cannot.
        """
        if framework not in self._setups:
            self._setups[framework] = self._set_up(framework)
        return self._setups[framework]

    # as containment's host

    def preload(self) -> None:
        """Load torch and the engine, if items run on the device."""
        if self.frameworks:
            import_torch()
            for module in ("torch_framework", "replay.check"):
                importlib.import_module(f"pytest_msprobe.engine.{module}")

    def begin(self) -> Start | None:
        """Start the device, if items run on it, and say what it is."""
        return self.start if self.frameworks else None

    def adopt_start(self, start: Start) -> None:
        """Take what a child of this process has started for one's own."""
        self.start = start

    def release_memory(self) -> None:
        """Release the memory that the active cards' allocators keep."""
        for setup in self._setups.values():
            release_memory(setup.device)

    def probe(self) -> str | None:
        """Return why a device that has started no longer works; None where all do."""
        errors = (failed_probe(setup.device) for setup in self._setups.values())
        error = next((error for error in errors if error is not None), None)
        return None if error is None else f"device {self.start.device} no longer works: {error}"

    def _set_up(self, framework_name: str) -> ReplayConfig:
        torch = import_torch()
        if self._processes > 1:
            cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
            torch.set_num_threads(max(1, cores // self._processes))
        from pytest_msprobe.engine.replay.trials.config import ReplayConfig

        options, policy = self._options, self._policy
        framework = framework_named(framework_name)
        device, self._index = self._activated(framework, options.device)
        baseline = None if self._baseline is None else self._activated(framework, self._baseline)[0]
        return ReplayConfig(
            device=device,
            policy=policy,
            references=self._references,
            strategies=self._strategies,
            seed=options.seed,
            real_data=options.real_data == "auto",
            admit=self._admit(),
            measure_all=self._measures_all,
            math_mode=options.math_mode,
            framework=framework,
            baseline=baseline,
        )

    def _activated(self, framework: Framework, choice: DeviceChoice) -> tuple[Any, int]:
        """Return a chosen device with this process's card active, and the card. Raises DeviceError."""
        device: Any = framework.device(self._devices, choice.name)
        if hasattr(device, "unclocked"):
            device.unclocked = paused
        return device, activate(device, choice, self._slot)

    @functools.cached_property
    def standards(self) -> StandardRegistry:
        """The standards that a policy may name."""
        from msprobe_standards.registry import STANDARDS

        return STANDARDS.copy()

    @functools.cached_property
    def _policy(self) -> Policy:
        """The policy. Raises OptionError where it cannot be used."""
        from msprobe_standards import Policy

        standards = self.standards
        try:
            return Policy.load(self._options.policy, self._options.level, standards)
        except (ValueError, OSError) as error:
            raise OptionError(f"{self._policy_option}: {error}") from None

    @functools.cached_property
    def _references(self) -> ReferenceRegistry:
        from pytest_msprobe.engine.replay.references import ReferenceRegistry

        return ReferenceRegistry()

    @functools.cached_property
    def _strategies(self) -> StrategyRegistry:
        from pytest_msprobe.engine.replay.strategies import StrategyRegistry

        return StrategyRegistry()

    def _admit(self) -> Admit:
        """Return what lets a large call take memory."""
        from pytest_msprobe.engine.replay.trials.memory_budget import admit_at_once

        return admit_at_once

    def _host(self) -> str:
        """Return the name of this host; empty where it is the controller's."""
        return ""


class SessionSetups(Setups):
    """The setups of a process of a pytest session, with what plugins register and its share of cards and memory."""

    def __init__(self, config: pytest.Config, options: Options, devices: DeviceRegistry) -> None:
        super().__init__(options, devices)
        workerinput = getattr(config, "workerinput", {})
        self._config = config
        self._slot = int(workerinput.get("msprobe_slot", 0))
        self._processes = int(workerinput.get("msprobe_workers_here", workerinput.get("workercount", 1)))

    @functools.cached_property
    def standards(self) -> StandardRegistry:
        """The standards with those of plugins. Raises OptionError where one cannot be added."""
        standards = super().standards
        try:
            self._config.hook.pytest_msprobe_register_standards(registry=standards)
        except ValueError as error:
            raise OptionError(f"pytest_msprobe_register_standards: {error}") from None
        return standards

    @functools.cached_property
    def _references(self) -> ReferenceRegistry:
        references = super()._references
        self._config.hook.pytest_msprobe_register_references(registry=references)
        return references

    @functools.cached_property
    def _strategies(self) -> StrategyRegistry:
        strategies = super()._strategies
        self._config.hook.pytest_msprobe_register_strategies(registry=strategies)
        return strategies

    def _admit(self) -> Admit:
        return self._config.stash[state_key].admit

    def _host(self) -> str:
        here = worker_host_of(self._config)
        return "" if here is None else here.host


setups_key = pytest.StashKey[Setups]()
