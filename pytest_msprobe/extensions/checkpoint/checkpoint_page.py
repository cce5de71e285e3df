"""The page of two checkpoints: parameters by how far they are apart."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msprobe_hooks.messages import counted
from pytest_msprobe.extensions.checkpoint.items import EXTRA
from pytest_msprobe.reports.differences_page.html import Compared, Differences, write_differences_page
from pytest_msprobe.reports.page_report import Results
from pytest_msprobe.results.result import DirectionResult

_TITLES = {
    "relative_l2": "distance / norm of golden",
    "max_abs_err": "greatest absolute error",
    "rel_err_max": "greatest relative error",
    "cosine_sim": "cosine",
}


def write_checkpoint_page(path: Path, results: Results, *, sides: Sequence[str], order: Mapping[str, int]) -> None:
    """Write the page of all parameters, in ``order`` by name. Raises OSError where the disk refuses."""
    found = sorted(results.items(), key=lambda item: order.get(item[1].record, len(order)))
    # The same parameter of each of several checkpoints is a row of its own.
    several = len(sides) > 2
    rows = [_compared(f"{_file_of(item)}: " if several else "", result) for item, result in found]
    differing = sum(row.outcome in ("fail", "warn") for row in rows)
    page = Differences(
        title=f"{differing} of {counted(len(rows), 'parameter')} differ",
        about=" against ".join(sides),
        noun="parameter",
        rows=rows,
        number_title="Distance / norm",
    )
    write_differences_page(path, page, title="Checkpoint")


def _file_of(item: str) -> str:
    return item.partition("::")[0]


def _compared(checkpoint: str, result: DirectionResult) -> Compared:
    numbers: dict[str, Any] = result.extras.get(EXTRA, {})
    metrics = result.verdict.metrics
    # What is missing or has another shape is farther apart than any number.
    unmeasured = math.inf if result.outcome == "fail" else 0.0 if result.outcome == "pass" else None
    lines = [f"{title}: {metrics[name]:.9g}" for name, title in _TITLES.items() if name in metrics]
    lines += [f"{name}: {numbers[name]}" for name in ("shape", "numel") if name in numbers]
    parts = [("Numbers", "\n".join(lines))] if lines else []
    runs = [f"{name} {_runs(numbers[name])}" for name in ("rows", "columns") if numbers.get(name)]
    parts += [("What differs", "\n".join(runs))] if runs else []
    why = "" if result.outcome == "pass" else result.verdict.reason
    number = metrics.get("relative_l2", unmeasured)
    return Compared(
        f"{checkpoint}{result.record}",
        layer_of(result.record),
        result.outcome,
        why,
        number=number,
        details=tuple(parts),
    )


def _runs(runs: Sequence[Sequence[int]]) -> str:
    return ", ".join(str(first) if end == first + 1 else f"{first}-{end - 1}" for first, end in runs)


def layer_of(name: str) -> str:
    """Return the module of a parameter down to the first numbered one: ``model.layers.3`` of its weights."""
    parts = name.split(".")
    numbered = next((place for place, part in enumerate(parts) if part.isdigit()), None)
    return ".".join(parts[: numbered + 1]) if numbered is not None else parts[0]
