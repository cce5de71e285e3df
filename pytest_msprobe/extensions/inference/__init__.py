"""Comparison of a training with an inference engine, token by token. Needs the extension model_names.

A comparison is of this kind where one of its runs has modules that engines fuse, or by ``--msprobe-match inference``.
Also of ``--msprobe-compare``: the setting ``msprobe_clip``, ``--msprobe-json FILE``, ``--msprobe-model-config`` and the
key ``model_names`` of ``--msprobe-mapping``. It writes the JSON file, and the tables and the page of every comparison.

It enters by ``pytest_msprobe_register_comparisons`` as a kind of comparison, with pairs, items and reports of its own.
Without it, calls are compared with calls. Take it out by deleting this folder and tests/extensions/inference.

Importing its modules loads msgspec, pytest, torch and yaml.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.modes.compare.registry import ComparisonRegistry


def pytest_msprobe_register_comparisons(registry: ComparisonRegistry) -> None:
    """Add the options, and the kind of comparison."""
    from pytest_msprobe.extensions.inference import inference_kind, options

    registry.add_options(options.InferenceOptions)
    registry.add_kind("inference", inference_kind)
