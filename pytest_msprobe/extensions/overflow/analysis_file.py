"""msprobe's ``anomaly_analyze_<time>.json``: the first culprits of a step, with values, modules and stack."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from msprobe_hooks.dump.communication.ranks import Step
from msprobe_hooks.dump.values import NON_FINITE
from pytest_msprobe.extensions.overflow.analysis import Findings
from pytest_msprobe.extensions.overflow.nonfinite_origins import Analysis, Culprit
from pytest_msprobe.storage.atomic_write import atomic_write

_INPUTS_AND_OUTPUTS = ("input_args", "input_kwargs", "input", "output")


def write_anomalies(folder: Path, step: Step, analysis: Analysis, findings: Findings) -> Path:
    """Write the culprits of one step by rank to a folder and return the file. Raises OSError."""
    ranks: dict[str, list[dict[str, Any]]] = {}
    for culprit in analysis.culprits:
        ranks.setdefault(f"rank_{culprit.rank}", []).append(_entry(step, culprit, findings))
    path = folder / f"anomaly_analyze_{time.time_ns()}.json"
    # Python's own JSON, because msprobe's readers expect bare NaN and Infinity.
    with atomic_write(path) as part:
        part.write_text(json.dumps(ranks, indent=2), encoding="utf-8")
    return path


def _entry(step: Step, culprit: Culprit, findings: Findings) -> dict[str, Any]:
    dump = step.ranks[culprit.rank]
    body = dump.body(culprit.name)
    origin = findings.origin(dump, culprit.name)
    return {
        "op_name": culprit.name,
        "data_info": {key: _as_numbers(body[key]) for key in _INPUTS_AND_OUTPUTS if key in body},
        "construct_info": [*origin.modules, culprit.name],
        "stack_info": list(origin.frames) or {},
    }


def _as_numbers(tree: Any) -> Any:
    """Put back the numbers that the reader turned into the strings that JSON allows."""
    if isinstance(tree, dict):
        return {key: _as_numbers(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_as_numbers(value) for value in tree]
    return NON_FINITE.get(tree, tree) if isinstance(tree, str) else tree
