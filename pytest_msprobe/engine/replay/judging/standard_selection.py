"""The standard that a policy selects for an output: by the output, and by what all outputs of its call share."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch

from msprobe_hooks.dump.names import Direction
from msprobe_standards import Policy, Standard
from pytest_msprobe.engine.replay.judging.outputs import NoRuleError


@dataclass(frozen=True, slots=True)
class StandardSelection:
    """A policy, and what it is asked with for every output of one call; `Policy.select` says what each field means."""

    policy: Policy
    api: str
    input_dtypes: frozenset[torch.dtype]
    framework: str
    device: str
    scalars: bool
    recorded_baseline: bool

    def select(self, direction: Direction, leaf: Any, modes: Collection[str] = ()) -> Standard:
        """Return the standard for an output, a tensor or a Python value, that was computed in these modes.

        Raises NoRuleError where the policy has none.
        """
        try:
            return self.policy.select(
                self.api,
                output_dtype=leaf.dtype if isinstance(leaf, torch.Tensor) else None,
                input_dtypes=self.input_dtypes,
                framework=self.framework,
                backward=direction == "backward",
                scalars=self.scalars,
                recorded_baseline=self.recorded_baseline,
                device=self.device,
                math_modes=modes,
            )
        except ValueError as error:
            raise NoRuleError(str(error)) from None

    def select_in_mode(self, direction: Direction, leaf: Any, modes: Collection[str]) -> Standard | None:
        """Return what `select` does; None where the policy has no rule for these modes."""
        with contextlib.suppress(NoRuleError):
            return self.select(direction, leaf, modes)
        return None
