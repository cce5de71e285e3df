"""Rows of the values that a comparison with an engine judges: of modules, parameters and log probabilities."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msprobe_hooks.dump.values import Value
from pytest_msprobe.extensions.inference.forward_judge import JudgedValue
from pytest_msprobe.extensions.inference.log_probabilities import LogProbabilities, coarser_in_words, reason
from pytest_msprobe.extensions.inference.recorded_weights import RecordedWeights, WeightError
from pytest_msprobe.extensions.inference.run_values import INPUT, RunValues
from pytest_msprobe.extensions.inference.token_pairs import TokenPairs
from pytest_msprobe.modes.compare.rows import SCALED_ERROR, Outcome, Row


def value_row(judged: JudgedValue, target: RunValues, golden: RunValues, pairs: TokenPairs) -> Row:
    """Return the row of a judged value, with all that was measured."""
    measured, is_input = judged.measured, judged.name.endswith(INPUT)
    messages = (judged.problem,) if judged.problem else ()
    metrics: dict[str, float] = {}
    if judged.cause:
        messages = ("; ".join(filter(None, [reason(judged, pairs), judged.grounds])),)
    elif judged.is_coarser:
        messages = (coarser_in_words(judged),)
    if measured is not None:
        metrics = {
            SCALED_ERROR: judged.error,
            "median_error": judged.median,
            "cosine_sim": measured.cosine,
            "max_abs_err": measured.max_abs_err,
            "limit": judged.limit,
            "median_limit": judged.explained.median if judged.explained is not None else math.nan,
            "given": judged.input_error,
            "wrong_tokens": float(len(judged.wrong)),
            "tokens": float(len(measured.pairs)),
            "left_out": float(judged.left_out),
        }
        if judged.lengths is not None:
            metrics |= {"length": judged.lengths.mean, "length_deviation": judged.lengths.deviation}
    sides = []
    for number, run in enumerate((target, golden)):
        shape = (len(measured.pairs), measured.width) if measured is not None else ()
        statistics = measured.statistics[number] if measured is not None else None
        name = run.record(judged.name) or f"{judged.name} (computed)"
        sides.append(Value(name, "torch.Tensor", judged.dtypes[number], shape, statistics=statistics))
    return Row(
        group="input" if is_input else "output",
        place="input" if is_input else "output",
        target=sides[0],
        golden=sides[1],
        outcome="warn" if judged.outcome == "pass" and judged.is_coarser else judged.outcome,
        metrics={key: value for key, value in metrics.items() if not math.isnan(value)},
        unmeasured="shape" if judged.problem else "",
        messages=messages,
        worst=None if judged.worst is None else _token(pairs, judged.worst),
    )


def weight_row(name: str, error: WeightError, runs: Sequence[RecordedWeights]) -> Row:
    """Return the row of a parameter that ``runs``, target and golden, recorded."""
    messages: tuple[str, ...] = ()
    if error.problem:
        messages = (f"not compared: {error.problem}",)
    elif error.differs:
        messages = (f"weights differ already{error.where}: relative difference {error.error:.2e}",)
    sides = [Value(name, "torch.nn.parameter.Parameter", side.parameters[name].dtype, error.shape) for side in runs]
    return Row(
        group="parameters",
        place=name,
        target=sides[0],
        golden=sides[1],
        outcome="fail" if error.differs else "skip" if error.problem else "pass",
        metrics={} if error.problem else {SCALED_ERROR: error.error},
        unmeasured="shape" if error.problem else "",
        messages=messages,
    )


def log_probability_row(
    name: str,
    compared: LogProbabilities,
    pairs: TokenPairs,
    outcome: Outcome,
    metrics: Mapping[str, float],
    messages: tuple[str, ...],
) -> Row:
    """Return the row of an item of log probabilities, with the token that is furthest."""
    sides = [Value(name, "numpy.ndarray", "float64", values.shape) for values in (compared.target, compared.golden)]
    worst = _token(pairs, int(compared.pairs[int(compared.worst(1)[0])]))
    return Row(
        group="output", place=name, target=sides[0], golden=sides[1], outcome=outcome, metrics=dict(metrics),
        messages=messages, worst=worst,
    )  # fmt: skip


def _token(pairs: TokenPairs, pair: int) -> tuple[int, int]:
    """Return the number of a token's request, and its position."""
    return int(pairs.request[pair]), int(pairs.position[pair])
