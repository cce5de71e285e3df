"""Comparison of a training with an inference engine, token by token. Needs the extension model_names.

A comparison is of this kind where one of its runs has modules that engines fuse, where both made one step in other
micro-batches, or by ``--msprobe-match inference``.
Also of ``--msprobe-compare``: the setting ``msprobe_clip``, ``--msprobe-json FILE``, ``--msprobe-model-config`` and the
key ``model_names`` of ``--msprobe-mapping``. It writes the JSON file, and the tables and the page of every comparison.

It enters by ``pytest_msprobe_register_comparisons`` as a kind of comparison, with pairs, items and reports of its own.
Without it, calls are compared with calls. Take it out by deleting this folder and tests/extensions/inference.

Importing its modules loads msgspec, pytest, torch and yaml.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.modes.compare.judging.policy import ComparePolicy
    from pytest_msprobe.modes.compare.options import CompareOptions
    from pytest_msprobe.modes.compare.registry import ComparisonRegistry, OpenComparison


def pytest_msprobe_register_comparisons(registry: ComparisonRegistry) -> None:
    """Add the options, and the kind of comparison."""
    from pytest_msprobe.extensions.inference import options

    registry.add_options(options.InferenceOptions)
    registry.add_kind("inference", _Inference())


class _Inference:
    """The kind of comparison that pairs tokens, loaded when it is meant."""

    def is_meant(self, options: CompareOptions, target: Path) -> bool:
        """Return whether two runs are compared by tokens. Raises OptionError where options exclude each other."""
        from pytest_msprobe.extensions.inference.inference_run import is_inference

        return is_inference(options, target)

    def open_comparison(
        self, targets: Sequence[Path], options: CompareOptions, policy: ComparePolicy
    ) -> OpenComparison:
        """Open both runs. Raises OptionError or DumpError where one cannot be used."""
        from pytest_msprobe.extensions.inference.inference_run import InferenceComparison, open_pair

        return InferenceComparison(open_pair(targets, options, policy.inherited))
