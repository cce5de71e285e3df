"""Failures judged again by a baseline in the device's memory layouts, and messages in ``torch.testing``'s words.

Sums in another order round differently, and a result that nearly cancels shows it. That counts only as far as a correct
CPU errs: a few times what the result moves by where each input moves by one rounding unit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from msprobe_standards import Verdict
from msprobe_standards.tensor_layouts import is_plain
from pytest_msprobe.engine.values.pytree import tensors_with_paths

# How many times more than its inputs' rounding the CPU's own result may be off. Measured in float32, in two layouts:
# sums of up to 262 144 terms 5 times, products 2.6, a convolution 7.
_TIMES = 8.0

Verdicts = list[tuple[str, Verdict]]


def judge_by_layouts(
    verdicts: Verdicts,
    golden: Any,
    laid_out: Callable[[], Any],
    moved: Callable[[], Sequence[Any]],
    judge_again: Callable[[Any], Verdicts],
) -> Verdicts:
    """Return verdicts with those that pass by the ``laid_out`` baseline in place of failures.

    ``moved`` gives golden's results for inputs moved by one rounding unit, ``judge_again`` the verdicts by another
    baseline.
    """
    if all(verdict.outcome != "fail" for _, verdict in verdicts):
        return verdicts
    baseline = laid_out()
    if baseline is None:
        return verdicts
    baselines, goldens = dict(tensors_with_paths(baseline)), dict(tensors_with_paths(golden))
    draws = [dict(tensors_with_paths(outputs)) for outputs in moved()]
    again = dict(judge_again(baseline))

    def better(path: str, verdict: Verdict) -> Verdict:
        second = again.get(path, verdict)
        is_excused = verdict.outcome == "fail" and second.outcome == "pass"
        return second if is_excused and _errs_little(path, baselines, goldens, draws) else verdict

    return [(path, better(path, verdict)) for path, verdict in verdicts]


def _errs_little(
    path: str,
    baseline: Mapping[str, torch.Tensor],
    goldens: Mapping[str, torch.Tensor],
    draws: Sequence[Mapping[str, torch.Tensor]],
) -> bool:
    """Return whether a baseline is off by no more than some times what moved inputs do to golden."""
    near, exact, moved = baseline.get(path), goldens.get(path), [draw[path] for draw in draws if path in draw]
    if near is None or exact is None or not moved or not near.shape == exact.shape == moved[0].shape:
        return False
    if not near.is_floating_point() or not near.numel():
        return False
    exact = exact.double()
    off = (near.double() - exact).abs()
    step = torch.stack([(draw_of_path.double() - exact).abs() for draw_of_path in moved]).amax(0)
    step += torch.finfo(near.dtype).eps / 2 * exact.abs()
    return bool(off.max() <= _TIMES * step.max()) and bool(off.square().mean() <= _TIMES**2 * step.square().mean())


def describe_difference(target: torch.Tensor, golden: torch.Tensor) -> str:
    """Return how many elements differ, and the greatest absolute and relative difference with index and values.

    Both are CPU tensors; elements differ where they are unequal once golden is rounded to the dtype of the target.
    Returns an empty text where the shapes differ or nothing can be compared.
    """
    if not (is_plain(target) and is_plain(golden)):
        return ""
    if target.shape != golden.shape or target.numel() == 0:
        return ""
    wide = torch.complex128 if target.is_complex() or golden.is_complex() else torch.float64
    actual, expected = target.detach().to(wide), golden.detach().to(target.dtype).to(wide)
    equal = (actual == expected) | (actual.isnan() & expected.isnan())
    count = int((~equal).sum())
    absolute = (actual - expected).abs()
    absolute[equal] = 0.0
    relative = absolute / expected.abs()
    relative[equal] = 0.0
    lines = [f"Unequal elements: {count} / {equal.numel()} ({100 * count / equal.numel():.3g} %)"]
    for kind, difference in (("absolute", absolute), ("relative", relative)):
        # NaN is the greatest difference there is; argmax finds it first.
        place = int(difference.argmax())
        index = tuple(int(i) for i in torch.unravel_index(torch.tensor(place), difference.shape))
        lines.append(
            f"Greatest {kind} difference: {difference.flatten()[place].item():.6g} at index {index}: "
            f"{_shown(target, index)} where golden is {_shown(golden, index)}"
        )
    return "\n".join(lines)


def _shown(tensor: torch.Tensor, index: tuple[int, ...]) -> str:
    value = tensor[index].item()
    return f"{value:.9g}" if isinstance(value, float) else str(value)
