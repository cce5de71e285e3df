"""The search for drawn inputs that are informative: their results show what the recorded ones did."""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import torch

from msprobe_hooks.dump.names import Direction
from msprobe_hooks.dump.schema import TensorElement, tensors_of
from msprobe_standards import in_parts
from msprobe_standards.tensor_layouts import as_array, is_array, is_plain
from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.engine.replay.calls.side import Gradients
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.values.dtypes import dtype_named
from pytest_msprobe.engine.values.pytree import map_tensors, tensors_with_paths
from pytest_msprobe.results.outcomes import Skip

# So many elements, taken from all over a tensor, mostly show that it needs no look at all of them.
_SAMPLE = 32

# So many elements have magnitudes that stay in the processor's cache.
_AT_ONCE = 2**18

# Values that are either of two have all of the variance that their mean and range allow. Others have less: those spread
# evenly a third. Measured of softmax: 0.998 one-hot, 0.92 of scores 30 apart; 0.99 would miss one-hot rows but for one.
_TWO_VALUED = 0.9

# What numbers of float32 and of float64 leave of a variance when the square of the mean is taken off: 168 and 900 unit
# roundoffs, for sums of many.
_RECORDED_ROUNDING, _FOUND_ROUNDING = 1e-5, 1e-13

# Gradients below this share of the recorded ones' greatest are none. A choice above what
# float32 rounds, 6e-8; the tests agree with 1e-12 to 1e-3.
_VANISHED = 1e-6

# Of these numpy takes a few elements at a fraction of what it costs torch, and copies nothing that is laid out apart.
_OF_NUMPY = frozenset({torch.float32, torch.float64})

_UNKNOWN_TO_REDUCTIONS = (torch.uint16, torch.uint32, torch.uint64)


class _Variety(IntEnum):
    """Number of distinct values in a tensor, as far as its range, mean and mean square show."""

    ONE = 1
    TWO = 2
    MORE = 3


def missing_variation(trial: Trial, call: Call, direction: Direction) -> str:
    """Return what the golden results of drawn inputs lack that the recorded ones show; empty where nothing is lost.

    Raises Skip as the trial's golden runs do.
    """
    if trial.randomness is not None:
        return ""
    if direction == "forward":
        return lost_results(trial.golden.output, call)
    return lost_gradients(trial.golden_gradients, call)


def lost_results(output: Any, call: Call) -> str:
    """Return what the results of drawn inputs lack that the recorded ones show; empty where nothing is lost."""
    recorded = [(element, _recorded_variety(element)) for element in tensors_of(call.forward.output)]
    if all(variety is _Variety.ONE for _, variety in recorded):
        return ""
    tensors = [tensor for _, tensor in tensors_with_paths(map_tensors(in_parts, output))]
    if len(tensors) != len(recorded):
        return ""
    outputs = [(tensor, *of) for tensor, of in zip(tensors, recorded, strict=True)]
    if any(_is_as_varied(*output) for output in outputs if output[-1] is not _Variety.ONE):
        return ""
    return "the results of the drawn inputs are one or two values, the recorded ones were more"


def lost_gradients(produced: Gradients, call: Call) -> str:
    """Return what the gradients of drawn inputs lack that the recorded ones show; empty where nothing is lost."""
    recorded = tensors_of(call.backward.grad_inputs) if call.backward is not None else []
    bounds = [abs(float(bound)) for element in recorded for bound in (element.max, element.min) if bound is not None]
    least = _VANISHED * max(filter(math.isfinite, bounds), default=0.0)
    if not least:
        return ""
    present = [in_parts(gradient) for gradient in produced.values() if gradient is not None]
    gradients = [gradient for _, gradient in tensors_with_paths(present)]
    if not gradients or any(_reaches(gradient, least) for gradient in gradients):
        return ""
    return "the gradients of the drawn inputs are zero, the recorded ones were not"


def without_number(trial: Trial, direction: Direction) -> str:
    """Return that golden's results, where a trial keeps them, hold NaN and no number; empty where they do not."""
    results = vars(trial).get("golden" if direction == "forward" else "golden_gradients")
    tensors = [tensor for _, tensor in tensors_with_paths(getattr(results, "output", results)) if tensor.numel()]
    return "golden's results are NaN or infinite throughout" if tensors and all(map(_has_no_number, tensors)) else ""


def _has_no_number(tensor: torch.Tensor) -> bool:
    # The first element of most says that they are numbers.
    if not (is_plain(tensor) and tensor.is_floating_point()) or math.isfinite(tensor.detach()[(0,) * tensor.dim()]):
        return False
    return bool((values := tensor.float()).isnan().any()) and not bool(values.isfinite().any())


def _recorded_variety(element: TensorElement) -> _Variety:
    """Return how varied the finite values were; ONE where the dump does not show more."""
    count = math.prod(element.shape)
    high = element.max if element.finite_max is None else element.finite_max
    low = element.min if element.finite_min is None else element.finite_min
    if not count or high is None or low is None or high == low:
        return _Variety.ONE
    if not (math.isfinite(high) and math.isfinite(low)):
        return _Variety.ONE
    numbers = (element.max, element.min, element.mean, element.norm)
    if any(number is None or not math.isfinite(number) for number in numbers):
        return _Variety.TWO
    high, low, mean, norm = (float(number or 0) for number in numbers)
    return _variety(high, low, mean, norm * norm / count, _RECORDED_ROUNDING)


def _is_as_varied(tensor: torch.Tensor, recorded: TensorElement, variety: _Variety) -> bool:
    """Return whether a tensor has as many values as a recorded one; also where they cannot be counted."""
    if tensor.is_complex() or tensor.dtype in _UNKNOWN_TO_REDUCTIONS:
        return True
    if _sample_variety(_sample(tensor.detach())) >= variety:
        return True
    flat = tensor.detach().reshape(-1)
    variety_of_all = _found_variety(flat)
    # Next to a great one many different values look like one: only rounded do they have to be equal.
    return variety_of_all >= variety or not _is_at_its_ends(flat.to(dtype_named(recorded.dtype)))


def _sample(tensor: torch.Tensor) -> list[float]:
    every = slice(None, None, 1 + tensor.numel() // _SAMPLE)
    is_known = tensor.dtype in _OF_NUMPY and is_array(tensor)
    values: list[float] = (as_array(tensor).flat if is_known else tensor.reshape(-1))[every].tolist()
    return values


def _is_at_its_ends(values: torch.Tensor) -> bool:
    values = values[values.isfinite()]
    return not values.numel() or bool(
        ((values == values.min()) | (values == values.max())).double().mean() > _TWO_VALUED
    )


def _sample_variety(sample: list[float]) -> _Variety:
    # So few numbers are added up faster without torch.
    values = list(filter(math.isfinite, sample))
    if not values:
        return _Variety.ONE
    count = len(values)
    square = sum(map(operator.mul, values, values)) / count
    return _variety(max(values), min(values), sum(values) / count, square, _FOUND_ROUNDING)


def _found_variety(flat: torch.Tensor) -> _Variety:
    values = flat.double()
    values = values[values.isfinite()]
    if not values.numel():
        return _Variety.ONE
    low, high = (bound.item() for bound in values.aminmax())
    return _variety(high, low, values.mean().item(), (values @ values).item() / values.numel(), _FOUND_ROUNDING)


def _variety(high: float, low: float, mean: float, square: float, rounding: float) -> _Variety:
    if high <= low:
        return _Variety.ONE
    greatest = (high - mean) * (mean - low)
    is_known = greatest > rounding * square
    return _Variety.MORE if is_known and square - mean * mean < _TWO_VALUED * greatest else _Variety.TWO


def _reaches(gradient: torch.Tensor, least: float) -> bool:
    # A NaN is no zero. The first part mostly suffices: only a gradient of zeros is gone through to its end.
    return not all(abs(value) < least for value in _sample(gradient.detach())) or not all(
        bool((part.abs() < least).all()) for part in torch.split(gradient.detach().reshape(-1), _AT_ONCE)
    )


class InformativeInputs:
    """Deficits of the drawn inputs of a call, for each direction that was looked at.

    Neither a trial nor a tensor is kept.
    """

    def __init__(self, call: Call) -> None:
        self._call = call
        self._lost: dict[Direction, str] = {}
        self._lost_results = ""

    def better_of(self, trial: Trial, narrower: Callable[[], Trial], direction: Direction) -> Trial:
        """Return the trial, or that of narrower inputs where only its golden results show what the recorded ones do.

        A direction is looked at once. Raises Skip as the trial's golden runs do.
        """
        if direction in self._lost:
            return trial
        self._lost[direction] = missing_variation(trial, self._call, direction)
        if self._lost[direction]:
            # Other inputs that an operation rejects, or for which there is no memory left, show even less.
            with contextlib.suppress(Skip):
                narrow = narrower()
                if not missing_variation(narrow, self._call, direction):
                    self._lost[direction] = ""
                    return narrow
        return trial

    def lost(self, direction: Direction) -> str:
        """Return what golden's results lack that the recorded ones show; empty where nothing is known to be lost."""
        return self._lost.get(direction, "")

    def note_results(self, fetch: Callable[[torch.Tensor], torch.Tensor], output: Any) -> None:
        """Note what results on a device lack, which may not stay until their gradients are judged."""
        self._lost_results = lost_results(map_tensors(fetch, output), self._call)

    def is_informative(self, trial: Trial, direction: Direction) -> bool:
        """Return whether the target's results show what the recorded ones do; raises as the target's runs do.

        For gradients the results have been looked at when they were there.
        """
        fetch = trial.device.get
        if direction == "forward":
            return not lost_results(map_tensors(fetch, trial.target.output), self._call)
        gradients = map_tensors(fetch, trial.target_gradients)
        return not self._lost_results and not lost_gradients(gradients, self._call)
