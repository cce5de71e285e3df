"""How far a call's outputs deviate when its inputs are perturbed, and whether that is too much, whatever the framework.

The rules are those of msprobe's free benchmark for PyTorch.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from msprobe_hooks.extensions.free_benchmark.argument_changes import NOISE, dtype_name

# msprobe's (free benchmark): a tolerance is the root of the noise of the dtype, of others than listed as for float32,
# and 1e-3 for gradients.
_NOISE_OF_OTHERS = NOISE["float32"]
_BACKWARD_TOLERANCE = 1e-3

# msprobe's: by how much, as a ratio, outputs may differ. float32 has that of others.
_THRESHOLDS = {"float16": 1.002, "bfloat16": 1.004}
_THRESHOLD_OF_OTHERS = 1.0002

#: Something that a call returns, with its place among several.
Output = tuple[int | None, Any]


@dataclass(frozen=True, slots=True)
class Deviation:
    """How far one output deviates.

    ``index`` is its place among several, ``dtype`` and ``shape`` are the original's, empty for Python numbers.
    ``ratio`` is the largest quotient of the two results, 1.0 or more, and ``threshold`` the largest allowed; both are
    None for what is not judged by a ratio: numbers, results of the CPU, shapes that differ. ``flips_sign``: an element
    that is not small changed its sign, which has no ratio.
    """

    index: int | None
    is_consistent: bool
    dtype: str = ""
    shape: tuple[int, ...] = ()
    ratio: float | None = None
    threshold: float | None = None
    flips_sign: bool = False


def outputs_of(result: Any, index: int | None = None) -> Iterator[Output]:
    """Yield what is compared of a call's result, with its place among several: of values with indices the values."""
    if isinstance(result, tuple) and hasattr(result, "values") and hasattr(result, "indices"):
        yield index, result.values
    elif isinstance(result, dict):
        yield from outputs_of(list(result.values()), index)
    elif isinstance(result, (list, tuple)):
        for i, each in enumerate(result):
            yield from outputs_of(each, i if index is None else index)
    else:
        yield index, result


class Judging(ABC):
    """What a framework says of its tensors."""

    tensor_class: ClassVar[type]

    @abstractmethod
    def is_compared(self, tensor: Any) -> bool:
        """Return whether a tensor has elements that can be compared: real numbers that are not whole ones."""

    @abstractmethod
    def largest_ratio(self, original: Any, perturbed: Any, tolerance: float) -> float | None:
        """Return the largest quotient of two results, whichever is larger, with sizes below the tolerance raised to it.

        A quotient that is NaN counts as 1. None where an element changes its sign and the product of its two values
        lies below -tolerance². The original is cast to the dtype of the perturbed result; the quotient is taken in
        float32, in float64 of that.
        """

    def is_like(self, perturbation: str, original: Any, perturbed: Any) -> bool | None:
        """Return by the perturbation's own rule whether two results are alike; None where it has only the ratio."""
        return None

    def deviations(
        self, perturbation: str, original: Sequence[Output], perturbed: Sequence[Output], *, is_gradient: bool = False
    ) -> list[Deviation]:
        """Judge what came of a call by what came of it with perturbed inputs, both as `outputs_of` gives them.

        The tensors of both are on one device. Integers, complex numbers and what is sparse are not compared, nor are
        tensors without elements.
        """
        first = next((output for _, output in original if isinstance(output, self.tensor_class)), None)
        threshold = 1.0 if perturbation == "no_change" else _threshold(first)
        if len(original) != len(perturbed):
            return [Deviation(None, is_consistent=False)]
        found = (
            self._deviation(perturbation, index, before, after, threshold, is_gradient)
            for (index, before), (_, after) in zip(original, perturbed, strict=True)
        )
        return [deviation for deviation in found if deviation is not None]

    def _deviation(
        self, perturbation: str, index: int | None, before: Any, after: Any, threshold: float, is_gradient: bool
    ) -> Deviation | None:
        if isinstance(before, (int, float)) and isinstance(after, (int, float)):
            return Deviation(index, _same_number(before, after))
        is_tensor = isinstance(before, self.tensor_class) and isinstance(after, self.tensor_class)
        if not is_tensor or not self.is_compared(before):
            return None
        dtype, shape = str(before.dtype), tuple(before.shape)
        if before.shape != after.shape:
            return Deviation(index, False, dtype, shape)
        is_like = self.is_like(perturbation, before, after)
        if is_like is not None:
            return Deviation(index, is_like, dtype, shape)
        ratio = self.largest_ratio(before, after, tolerance(after.dtype, is_gradient=is_gradient))
        return Deviation(index, ratio is not None and ratio <= threshold, dtype, shape, ratio, threshold, ratio is None)


def tolerance(dtype: object, *, is_gradient: bool = False) -> float:
    """Return the size below which elements are taken for equally small, by the dtype of the perturbed result."""
    return _BACKWARD_TOLERANCE if is_gradient else math.sqrt(NOISE.get(dtype_name(dtype), _NOISE_OF_OTHERS))


def _threshold(first: Any) -> float:
    return _THRESHOLD_OF_OTHERS if first is None else _THRESHOLDS.get(dtype_name(first.dtype), _THRESHOLD_OF_OTHERS)


def _same_number(original: float, perturbed: float) -> bool:
    if isinstance(original, int) and isinstance(perturbed, int):
        return original == perturbed
    return math.isclose(original, perturbed)
