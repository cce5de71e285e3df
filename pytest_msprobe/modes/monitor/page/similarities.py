"""Sign similarities of a pair, where both runs' folders hold sign maps of the gradient probe as well."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from msprobe_hooks.errors import MonitorError
from msprobe_hooks.instruments.grad_probe.reading import rank_folders
from msprobe_hooks.instruments.grad_probe.similarity import sign_similarity
from msprobe_hooks.instruments.series.reading import Series, SeriesKey

STATISTIC = "sign_similarity"
# The probe measures where this task does: just before the optimizer's step.
_TASK = "grad_reduced"


def similarities(target: Path, golden: Path, rank: int) -> list[Series]:
    """Return a series for each parameter of a rank: the share of gradient elements with the same sign, step by step.

    ``target`` and ``golden`` are the folders of two runs, which hold ``rank<N>`` where a probe wrote there; there are
    no series where one of them does not. Raises MonitorError where the sign maps cannot be compared.
    """
    if not (_is_probed(target, rank) and _is_probed(golden, rank)):
        return []
    found = sign_similarity(rank_folders(target)[rank], rank_folders(golden)[rank])
    steps = np.array(found.steps, dtype=np.int64)
    series = []
    for name, shares in zip(found.parameters, found.shares, strict=True):
        known = ~np.isnan(shares)
        series.append(Series(SeriesKey(_TASK, 0, name, None, STATISTIC), steps[known], shares[known]))
    return series


def _is_probed(folder: Path, rank: int) -> bool:
    try:
        return rank in rank_folders(folder)
    except MonitorError:
        return False
