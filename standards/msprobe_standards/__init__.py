"""Numbers in, verdict out: precision metrics, the standards that judge them, and the policies that choose a standard.

The names are imported on first use, so that importing the package costs neither torch nor numpy.
PYTEST_DONT_REWRITE: no test reads an assertion of this package.

Importing its modules loads torch and yaml.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from msprobe_standards.verdict import Outcome, Verdict, worst

if TYPE_CHECKING:
    from msprobe_standards.benchmark import Benchmark
    from msprobe_standards.chunking import chunks
    from msprobe_standards.dtypes import Bounds, msprobe_bounds
    from msprobe_standards.exemption import ExcusedByBaseline
    from msprobe_standards.fixed_limits import AbsoluteThreshold, AccumulativeError, BinaryConsistency, Ulp
    from msprobe_standards.judging import RecordedOutput, fitting, judge, judge_recorded
    from msprobe_standards.metrics import METRICS, Metrics, measure
    from msprobe_standards.msprobe_rules import Cascade, MsprobeBenchmark, MsprobeUlp, Thousandth
    from msprobe_standards.policy import Policy
    from msprobe_standards.policy_files import built_in_policies
    from msprobe_standards.protocol import Standard
    from msprobe_standards.registry import register_standard, standard, standard_names
    from msprobe_standards.sensitivity import ExcusedBySensitivity, Sensitivity, amplification
    from msprobe_standards.structure import judge_tree
    from msprobe_standards.tensor_layouts import in_parts

_HOMES = {
    "AbsoluteThreshold": "fixed_limits",
    "AccumulativeError": "fixed_limits",
    "Benchmark": "benchmark",
    "BinaryConsistency": "fixed_limits",
    "Bounds": "dtypes",
    "Cascade": "msprobe_rules",
    "ExcusedByBaseline": "exemption",
    "ExcusedBySensitivity": "sensitivity",
    "METRICS": "metrics",
    "Metrics": "metrics",
    "MsprobeBenchmark": "msprobe_rules",
    "MsprobeUlp": "msprobe_rules",
    "Policy": "policy",
    "RecordedOutput": "judging",
    "Sensitivity": "sensitivity",
    "Standard": "protocol",
    "Thousandth": "msprobe_rules",
    "Ulp": "fixed_limits",
    "amplification": "sensitivity",
    "built_in_policies": "policy_files",
    "chunks": "chunking",
    "fitting": "judging",
    "in_parts": "tensor_layouts",
    "judge": "judging",
    "judge_recorded": "judging",
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
