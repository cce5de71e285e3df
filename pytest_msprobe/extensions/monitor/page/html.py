"""A page of monitored runs as a file; curves are base64 of little-endian arrays."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from msprobe_hooks.extensions.monitor.series.reader import Series
from msprobe_hooks.extensions.monitor.series.tables import Watched
from pytest_msprobe.extensions.monitor.golden.rank_pair import Compared
from pytest_msprobe.extensions.monitor.page import build
from pytest_msprobe.extensions.monitor.page.build import Curves, Envelope, Exact, Finding, WatchedPage
from pytest_msprobe.reports.pages.write_page import write_page

#: The colours of sizes reach so many decades above and below a row's median.
_DECADES = 3


def write_html(path: Path, page: WatchedPage) -> None:
    """Write the page. Raises OSError where the disk refuses."""
    write_page(path, __package__, _data(page), title="Monitored run", parts=("table", "uplot"))


def _data(page: WatchedPage) -> dict[str, Any]:
    tensors = {curves.key.watched: 0 for curves in page.curves}
    tensors = {tensor: place for place, tensor in enumerate(tensors)}
    first, last = build.SCALE
    return {
        "title": page.title,
        "about": page.about,
        "verdict": page.verdict,
        "starts": page.axis.starts.tolist(),
        "last": page.axis.last,
        "binned": page.is_binned,
        "times": None if page.times is None else page.times.tolist(),
        "pair": page.is_pair,
        "ranks": page.ranks,
        "tensors": list(tensors),
        "statistics": list(dict.fromkeys(curves.key.statistic for curves in page.curves)),
        "series": [_series(curves, tensors) for curves in page.curves],
        "findings": [_finding(finding, tensors) for finding in page.findings],
        "first": 0,
        "notes": page.notes,
        "decades": _DECADES,
        "gap": {
            "equal": build.EQUAL,
            "scale": [first, last],
            "notFinite": build.NOT_FINITE,
            "least": build.LEAST,
            "greatest": build.GREATEST,
        },
    }


def _series(curves: Curves, tensors: dict[Watched, int]) -> list[Any]:
    return [
        curves.rank,
        tensors[curves.key.watched],
        curves.key.statistic,
        _both(curves.target),
        _both(curves.golden),
        None if curves.gap is None else _base64(curves.gap),
        None if curves.exact is None else _exact(curves.exact),
        None if curves.compared is None else _compared(curves.compared),
    ]


def _both(envelope: Envelope | None) -> str | None:
    return None if envelope is None else _base64(np.concatenate([envelope.low, envelope.high]).astype("<f4"))


def _exact(exact: Exact) -> dict[str, list[str]]:
    sides: dict[str, Series | None] = {"target": exact.target, "golden": exact.golden}
    return {
        side: [_exact_numbers(series.steps), _exact_numbers(series.values)]
        for side, series in sides.items()
        if series is not None
    }


def _compared(compared: Compared) -> dict[str, list[str]]:
    steps = _exact_numbers(compared.steps)
    return {"gap": [steps, _exact_numbers(compared.difference)], "allowed": [steps, _exact_numbers(compared.allowed)]}


def _exact_numbers(values: NDArray[Any]) -> str:
    return _base64(values.astype("<f8"))


def _base64(values: NDArray[Any]) -> str:
    return base64.b64encode(values.tobytes()).decode()


def _finding(finding: Finding, tensors: dict[Watched, int]) -> list[Any]:
    key = finding.key
    place = tensors.get(key.watched, -1)
    return [finding.rank, place, key.statistic, finding.step, finding.outcome, finding.rule, finding.message]
