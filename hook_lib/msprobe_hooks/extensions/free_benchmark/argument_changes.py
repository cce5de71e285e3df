"""Changes of msprobe's free benchmark to a call's arguments, in any framework, and the deviation that they cause."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from msprobe_hooks.dump.effects import effects_of
from msprobe_hooks.recording.backward import like, mapped

Arguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]

#: How much noise a dtype gets, as msprobe gives it; its root is also the size below which a result says nothing.
NOISE = {"bfloat16": 1e-4, "float16": 1e-6, "float32": 1e-8, "float64": 1e-16}

#: What a call lacks that ``improve_precision`` leaves as it is.
NOTHING_NARROW = "no float16 or bfloat16 tensor whose precision could be improved"


#: What is left of a call that overwrites what would be perturbed.
NOTHING_READ = "it overwrites its first argument without reading it"

#: Perturbations that change every tensor, so that all of them stay in one dtype and on one device.
OF_ALL_TENSORS = frozenset({"improve_precision", "to_cpu"})


class NotPerturbedError(Exception):
    """These arguments cannot take the perturbation; the text says why."""


def dtype_name(dtype: object) -> str:
    """Return the name that frameworks share of a dtype: ``float32`` of ``torch.float32`` and of ``Float32``."""
    return str(dtype).removeprefix("torch.").lower()


def noise_for(dtype: object, largest: Callable[[], float | None]) -> float:
    """Return the noise for a tensor; ``largest`` returns its largest absolute value, None where it has no elements.

    Raises NotPerturbedError where it gets none.
    """
    noise = NOISE.get(dtype_name(dtype))
    if noise is None:
        raise NotPerturbedError(f"no noise is known for {dtype}")
    size = largest()
    if size is None:
        raise NotPerturbedError("the tensor to be perturbed is empty")
    if size < noise:
        raise NotPerturbedError("all elements are smaller than the noise")
    return noise


def swapped_places(shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the places of the first and the last element; with two dimensions or more, of x[0][0] and x[-1][-1].

    Raises NotPerturbedError where these are not two.
    """
    if 0 in shape or not [size for size in shape[:2] if size > 1]:
        raise NotPerturbedError("too few elements to swap two")
    return ((0,), (-1,)) if len(shape) == 1 else ((0, 0), (-1, -1))


def without_overwritten(
    called: str, perturbation: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], Arguments]:
    """Return the first arguments, which a call overwrites without reading them, and those that it may be perturbed by.

    Raises NotPerturbedError where it reads no positional argument, or its result is undefined.
    """
    effects = effects_of(called)
    if effects.undefined:
        raise NotPerturbedError("its result is whatever was in memory")
    if perturbation in OF_ALL_TENSORS or not effects.is_unread("0"):
        return (), (args, kwargs)
    if len(args) < 2:
        raise NotPerturbedError(NOTHING_READ)
    return args[:1], (args[1:], kwargs)


def on_first_tensor(change: Callable[[Any], Any], is_float: Callable[[Any], bool]) -> Callable[..., Arguments]:
    """Return the perturbation that changes the first float tensor of the first positional argument that can hold one.

    That argument is a float tensor or any list, tuple or dict; tensors given by name are never changed.
    """

    def perturbed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        for position, argument in enumerate(args):
            if is_float(argument) or isinstance(argument, (list, tuple, dict)):
                changed, has_changed = with_first_changed(argument)
                if not has_changed:
                    break
                return (*args[:position], changed, *args[position + 1 :]), kwargs
        raise NotPerturbedError("no float tensor in the first positional tensor, list, tuple or dict")

    def with_first_changed(tree: Any) -> tuple[Any, bool]:
        """Return the nesting with its first float tensor changed, and whether it has one."""
        if is_float(tree):
            return change(tree), True
        if isinstance(tree, dict):
            values, is_changed = with_first_changed(list(tree.values()))
            return dict(zip(tree, values, strict=True)), is_changed
        if not isinstance(tree, (list, tuple)):
            return tree, False
        items = list(tree)
        for i, item in enumerate(items):
            items[i], is_changed = with_first_changed(item)
            if is_changed:
                return like(tree, items), True
        return tree, False

    return perturbed


def on_all_tensors(change: Callable[[Any], Any], tensor_class: type, missing: str) -> Callable[..., Arguments]:
    """Return the perturbation that changes every tensor; ``missing`` is what a call lacks where none would change."""

    def perturbed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        changed_any = False

        def changed(tensor: Any) -> Any:
            nonlocal changed_any
            new = change(tensor)
            changed_any |= new is not tensor
            return new

        arguments = mapped(changed, tensor_class, args), mapped(changed, tensor_class, kwargs)
        if not changed_any:
            raise NotPerturbedError(missing)
        return arguments

    return perturbed


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
    """Deviation of one output.

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
        for i, item in enumerate(result):
            yield from outputs_of(item, i if index is None else index)
    else:
        yield index, result


class Judging(ABC):
    """Operations of a framework on its tensors that judging needs."""

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
        deviations_of_pairs = (
            self._deviation(perturbation, index, before, after, threshold, is_gradient)
            for (index, before), (_, after) in zip(original, perturbed, strict=True)
        )
        return [deviation for deviation in deviations_of_pairs if deviation is not None]

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
