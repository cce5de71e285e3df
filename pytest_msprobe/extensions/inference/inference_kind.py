"""The kind of comparison that pairs tokens of a training with those of an inference engine, loaded when it is meant."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.modes.compare.judging.policy import ComparePolicy
    from pytest_msprobe.modes.compare.options import CompareOptions
    from pytest_msprobe.modes.compare.registry import OpenComparison


def is_meant(options: CompareOptions, target: Path) -> bool:
    """Return whether a run compares a training with an engine. Raises OptionError where options exclude each other."""
    from pytest_msprobe.extensions.inference.inference_run import is_inference

    return is_inference(options, target)


def open_comparison(targets: Sequence[Path], options: CompareOptions, policy: ComparePolicy) -> OpenComparison:
    """Open both runs. Raises OptionError or DumpError where one cannot be used."""
    from pytest_msprobe.extensions.inference.inference_run import InferenceComparison, open_pair

    return InferenceComparison(open_pair(targets, options, policy.inherited))
