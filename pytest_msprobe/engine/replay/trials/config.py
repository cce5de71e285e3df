"""The setup that all checks of a run share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypedDict

from msprobe_standards import Policy
from pytest_msprobe.devices.device import Device
from pytest_msprobe.devices.math_modes import MathMode
from pytest_msprobe.engine.replay.calls.laid_out_tensors import Memory
from pytest_msprobe.engine.replay.calls.remote_calls import RemoteCallDevice
from pytest_msprobe.engine.replay.framework import Framework
from pytest_msprobe.engine.replay.partition import RAISED_ABOVE
from pytest_msprobe.engine.replay.references import ReferenceRegistry
from pytest_msprobe.engine.replay.strategies import StrategyRegistry
from pytest_msprobe.engine.replay.trials.memory_budget import Admit, admit_at_once


class ReplayOptions(TypedDict, total=False):
    """The fields of `ReplayConfig` besides device and policy, as keywords."""

    framework: Framework
    references: ReferenceRegistry
    strategies: StrategyRegistry
    seed: int
    real_data: bool
    admit: Admit
    measure_all: bool
    math_mode: MathMode
    baseline: RemoteCallDevice | None
    screen_above: float | None
    raised_above: float | None
    memory: Memory


@dataclass(frozen=True, slots=True)
class ReplayConfig:
    """Settings that checks have in common: the active device, the policy and where inputs come from.

    ``admit`` lets a large call take memory, or raises Skip. ``measure_all`` asks for every metric of every output,
    for tables, and not only for those that decide. ``math_mode`` says whether verdicts take the modes into account that
    the device says are on (``auto``), or judge by the dtypes alone (``strict``). ``framework`` recorded the calls.
    ``screen_above``: of how many operations a product or attention has more if it is screened, None where all is
    checked exactly.
    ``raised_above``: of how many bytes the raised copies of a product are more where golden is computed block by block,
    of other calls an eighth of that, None for never.
    ``memory`` says where tensors lie on a device of torch; those of other frameworks are contiguous.
    """

    device: Device
    policy: Policy
    framework: Framework
    references: ReferenceRegistry = field(default_factory=ReferenceRegistry)
    strategies: StrategyRegistry = field(default_factory=StrategyRegistry)
    seed: int = 0
    real_data: bool = True
    admit: Admit = admit_at_once
    measure_all: bool = False
    math_mode: MathMode = "auto"
    baseline: RemoteCallDevice | None = None
    screen_above: float | None = None
    raised_above: float | None = RAISED_ABOVE
    memory: Memory = "recorded"
