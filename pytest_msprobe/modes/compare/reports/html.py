"""The comparison as one self-contained page: a table to search and sort, the error over time, coloured graphs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msprobe_hooks.dump.call_context import outside_frameworks
from msprobe_hooks.dump.names import coarser, float_dtype
from msprobe_hooks.dump.values import Value
from pytest_msprobe.modes.compare.rows import SCALED_ERROR, ComparedCall, DataMode, Row
from pytest_msprobe.reports.pages import NextStep, page_number, write_page

if TYPE_CHECKING:
    from pytest_msprobe.modes.compare.registry import FedLayers, PageGraphs


_METRICS: dict[DataMode, tuple[str, ...]] = {
    "tensor": (
        SCALED_ERROR, "cosine_sim", "max_abs_err", "rel_err_max", "rel_err_thousandth", "rel_err_five_thousandths",
        "max_ulp_error",
    ),
    "statistics": (SCALED_ERROR, "max_diff", "min_diff", "mean_diff", "norm_diff", "norm_rel_diff"),
    "md5": (SCALED_ERROR,),
    "structure": (SCALED_ERROR,),
}  # fmt: skip
#: The bins of a histogram: equal, then decades of relative error.
BINS = ("0", "1e-9", "1e-8", "1e-7", "1e-6", "1e-5", "1e-4", "1e-3", "1e-2", "0.1", "1", ">1")


def write_html(
    path: Path,
    calls: Iterable[ComparedCall],
    *,
    title: str,
    about: str,
    pairs: list[str],
    notes: Iterable[str] = (),
    limits: Mapping[str, float] = MappingProxyType({}),
    graphs: PageGraphs | None = None,
    layers: FedLayers | None = None,
    metrics: tuple[str, ...] = (),
    tokens: Mapping[str, Any] | None = None,
    places: Sequence[tuple[int | None, int | None, str]] = (),
    commands: Sequence[NextStep] = (),
) -> None:
    """Write the page. ``pairs`` names the compared dumps, by ``ComparedCall.pair``; ``graphs`` are of some of them.

    ``layers`` gives those of fed calls. ``places`` are step, rank and target's dump of each, ``commands`` are on its
    records. ``notes`` are sentences on the runs as a whole, asked for when all calls have been read. ``limits`` are
    those of the scaled error, by dtype; the page draws those of dtypes that it holds. ``metrics`` are the user's.
    ``tokens``, of training against inference, has their ``labels``, log probabilities of both runs, and ``lines``.

    Names and messages are data of the page and never markup. Raises OSError where the disk refuses.
    """
    data = _data(calls, pairs, limits, graphs, layers, metrics) | {
        "title": title,
        "about": about,
        "notes": [*notes],
        "tokens": tokens,
        "places": places or [(None, None, "")] * len(pairs),
        "commands": commands,
    }
    parts = ("dagre", "graph", "grid", "uplot", "plot", "table")
    write_page(path, __package__, data, title="Comparison", parts=parts)


def _data(
    calls: Iterable[ComparedCall],
    pairs: list[str],
    limits: Mapping[str, float],
    graphs: PageGraphs | None,
    layers: FedLayers | None,
    own_metrics: tuple[str, ...],
) -> dict[str, Any]:
    stacks: dict[tuple[str, ...], int] = {}
    lines: list[Any] = []
    rows: list[Any] = []
    fed: list[tuple[int, ComparedCall]] = []
    dtypes: set[str | None] = set()
    allowed: list[float | bool | str | None] = []  # -1 where a call has no limit of its own
    metrics: tuple[str, ...] = _METRICS["statistics"]
    for place, call in enumerate(calls):
        metrics = _METRICS[call.mode] + (own_metrics if call.mode == "tensor" else ())
        stack = stacks.setdefault(call.stack, len(stacks)) if call.stack else -1
        lines.append(
            [
                call.record, call.golden, call.pair, call.order, call.outcome, call.cause, call.reason, call.module,
                stack, page_number(_error(call)),
            ]
        )  # fmt: skip
        dtypes |= {_judged_as(row) for row in call.rows}
        allowed.append(page_number(max((row.metrics.get("limit", -1.0) for row in call.rows), default=-1.0)))
        rows += [_row(place, call, row, metrics) for row in call.rows]
        if graphs is not None:
            graphs.add(place, call)
        if call.fed:
            fed.append((place, call))
    return {
        "pairs": pairs,
        "allowed": allowed if {*allowed} - {-1.0} else [],
        "limits": [[dtype, limit] for dtype, limit in limits.items() if dtype in dtypes],
        "metrics": metrics,
        "bins": BINS,
        "calls": lines,
        "rows": rows,
        "stacks": ["\n".join(outside_frameworks(stack)) for stack in stacks],
        "graphs": [] if graphs is None else graphs.data(pairs),
        "fed": [[*map(page_number, row)] for row in layers(fed)] if layers is not None and fed else [],
    }


def _row(place: int, call: ComparedCall, row: Row, metrics: tuple[str, ...]) -> list[Any]:
    either = row.target or row.golden
    return [
        place,
        either.name if either else "",
        _pair(row, lambda value: value.dtype or value.type),
        _pair(row, lambda value: str(list(value.shape)) if value.is_tensor else value.text),
        row.outcome,
        call.cause if row.differs else "",
        "\n".join(_sentences(row)),
        [page_number(row.metrics.get(name)) for name in metrics],
        _statistics(row.target),
        _statistics(row.golden),
        str(list(row.worst)) if row.worst is not None else "",
        list(row.histogram),
    ]


def _sentences(row: Row) -> list[str]:
    messages = row.messages or ((row.unmeasured,) if row.unmeasured else ())
    return [*messages, *row.transformed]


def _error(call: ComparedCall) -> float | None:
    """Return a call's greatest scaled error, inf where a value fails that has none, None where it was not compared."""
    if call.outcome == "skip":
        return None
    errors = (row.metrics.get(SCALED_ERROR, math.inf if row.outcome == "fail" else None) for row in call.rows)
    return max((error for error in errors if error is not None), default=None)


def _judged_as(row: Row) -> str | None:
    """Return the floating-point dtype by whose limit a row is judged, None where it is by none."""
    sides = [float_dtype(value.dtype) for value in (row.target, row.golden) if value is not None and value.is_tensor]
    both = [dtype for dtype in sides if dtype is not None]
    return coarser(*both) if len(both) == 2 else None


def _pair(row: Row, of: Any) -> str:
    texts = dict.fromkeys(of(value).removeprefix("torch.") for value in (row.target, row.golden) if value is not None)
    return " / ".join(texts)


def _statistics(value: Value | None) -> list[Any] | None:
    return None if value is None or value.statistics is None else [page_number(number) for number in value.statistics]
