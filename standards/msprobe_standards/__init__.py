"""Numbers in, verdict out: precision metrics, the standards that judge them, and the policies that choose a standard.

The names are imported on first use, so that importing the package costs neither torch nor numpy.
PYTEST_DONT_REWRITE: no test reads an assertion of this package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from msprobe_standards.verdict import Outcome, Verdict, worst

if TYPE_CHECKING:
    from msprobe_standards.absolute_threshold import AbsoluteThreshold
    from msprobe_standards.accumulative_error import AccumulativeError
    from msprobe_standards.benchmark import Benchmark
    from msprobe_standards.binary_consistency import BinaryConsistency
    from msprobe_standards.cascade import Cascade
    from msprobe_standards.chunking import chunks
    from msprobe_standards.dtypes import Bounds, msprobe_bounds
    from msprobe_standards.exemption import ExcusedByBaseline
    from msprobe_standards.judging import fitting, judge
    from msprobe_standards.metrics import METRICS, Metrics, measure
    from msprobe_standards.msprobe_benchmark import MsprobeBenchmark
    from msprobe_standards.msprobe_ulp import MsprobeUlp
    from msprobe_standards.policy import Policy
    from msprobe_standards.policy_files import built_in_policies
    from msprobe_standards.protocol import Standard
    from msprobe_standards.recorded_numbers import RecordedOutput, judge_recorded
    from msprobe_standards.registry import register_standard, standard, standard_names
    from msprobe_standards.sensitivity import ExcusedBySensitivity, Sensitivity, amplification
    from msprobe_standards.structure import judge_tree
    from msprobe_standards.tensor_layouts import in_parts
    from msprobe_standards.thousandth import Thousandth
    from msprobe_standards.ulp import Ulp

_HOMES = {
    "AbsoluteThreshold": "absolute_threshold",
    "AccumulativeError": "accumulative_error",
    "Benchmark": "benchmark",
    "BinaryConsistency": "binary_consistency",
    "Bounds": "dtypes",
    "Cascade": "cascade",
    "ExcusedByBaseline": "exemption",
    "ExcusedBySensitivity": "sensitivity",
    "METRICS": "metrics",
    "Metrics": "metrics",
    "MsprobeBenchmark": "msprobe_benchmark",
    "MsprobeUlp": "msprobe_ulp",
    "Policy": "policy",
    "RecordedOutput": "recorded_numbers",
    "Sensitivity": "sensitivity",
    "Standard": "protocol",
    "Thousandth": "thousandth",
    "Ulp": "ulp",
    "amplification": "sensitivity",
    "built_in_policies": "policy_files",
    "chunks": "chunking",
    "fitting": "judging",
    "in_parts": "tensor_layouts",
    "judge": "judging",
    "judge_recorded": "recorded_numbers",
    "judge_tree": "structure",
    "measure": "metrics",
    "msprobe_bounds": "dtypes",
    "register_standard": "registry",
    "standard": "registry",
    "standard_names": "registry",
}

__all__ = [
    "METRICS",
    "AbsoluteThreshold",
    "AccumulativeError",
    "Benchmark",
    "BinaryConsistency",
    "Bounds",
    "Cascade",
    "ExcusedByBaseline",
    "ExcusedBySensitivity",
    "Metrics",
    "MsprobeBenchmark",
    "MsprobeUlp",
    "Outcome",
    "Policy",
    "RecordedOutput",
    "Sensitivity",
    "Standard",
    "Thousandth",
    "Ulp",
    "Verdict",
    "amplification",
    "built_in_policies",
    "chunks",
    "fitting",
    "in_parts",
    "judge",
    "judge_recorded",
    "judge_tree",
    "measure",
    "msprobe_bounds",
    "register_standard",
    "standard",
    "standard_names",
    "worst",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
