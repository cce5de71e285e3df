"""Scales of the terms that a forward call or a graph's kernel adds up, by the recorded statistics."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from msprobe_hooks.dump.names import float_dtype, split_called
from pytest_msprobe.modes.compare.judging.term_kinds import TERMS

if TYPE_CHECKING:
    from msprobe_hooks.dump.values import Value

UNIT_ROUNDOFF = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}


@dataclass(frozen=True, slots=True)
class Scale:
    """Size of what a call adds up: the largest number of an element, the norm of all, and how many of them."""

    largest: float
    norm: float
    terms: float


#: What a call was given, by place.
PlacedValues: TypeAlias = Mapping[str, "Value"]
#: Gives the scale of the terms of an output by its place, the output and what the call was given; None where unknown.
ScaleOf: TypeAlias = Callable[[str, "Value", PlacedValues], "Scale | None"]


def last_word(called: str) -> str:
    """Return the last word of what was called without underscores, in small letters: ``layernorm``."""
    return called.rpartition(".")[2].replace("_", "").lower()


def forward_scale(record: str) -> ScaleOf | None:
    """Return what gives the scale of the terms of a call's output; None for calls that add nothing up."""
    called = split_called(record)[0]
    if called.startswith("Kernel."):
        # The scope of a kernel ends in its type, and that in the number of the op.
        called = called.rpartition("-op")[0].rpartition("_")[2]
    return _BY_WORD.get(last_word(called))


def size_of(value: Value | None) -> Scale | None:
    """Return the size of a tensor of floats, or of a number; None where it was not recorded or is not finite."""
    if value is None or value.statistics is None or (value.is_tensor and float_dtype(value.dtype) is None):
        return None
    high, low, _, norm = value.statistics
    if high is None or low is None or norm is None or not all(map(math.isfinite, (high, low, norm))):
        return None
    return Scale(float(max(abs(high), abs(low))), abs(float(norm)), 1.0)


def count_of(value: Value) -> int:
    """Return how many elements a value has, at least 1."""
    return max(math.prod(value.shape), 1)


def mean_square_root(value: Value | None) -> float | None:
    """Return the root of the mean square of a tensor's elements."""
    size = size_of(value)
    return None if size is None or value is None else size.norm / math.sqrt(count_of(value))


def number_at(values: PlacedValues, place: str, default: float) -> float:
    """Return the number at a place of a call."""
    value = values.get(place)
    statistics = None if value is None else value.statistics
    return default if statistics is None or statistics[0] is None else float(statistics[0])


def tensors_of(values: PlacedValues) -> list[Value]:
    """Return the tensors that a call was given, in order."""
    return [value for value in values.values() if value.is_tensor]


def of_sum(output: Value, added: Value | None) -> Scale | None:
    """Return the scale of the terms where the elements of a tensor are summed to those of the output."""
    root = mean_square_root(added)
    if added is None or root is None:
        return None
    terms = count_of(added) / count_of(output)
    # Terms of either sign add up to the square root of their number; each is as large as they are on average.
    return Scale(root * math.sqrt(terms), root * math.sqrt(terms * count_of(output)), terms)


def of_product(output: Value, factors: Sequence[Value]) -> Scale | None:
    """Return the scale of the terms of a product of two matrices, or of a convolution."""
    sizes = [size for value in factors[:2] if (size := mean_square_root(value)) is not None]
    if len(sizes) < 2:
        return None
    # Of M by K and K by N, of which M by N are made.
    terms = max(math.sqrt(count_of(factors[0]) * count_of(factors[1]) / count_of(output)), 1.0)
    factor = math.prod(sizes)
    return Scale(factor * math.sqrt(terms), factor * math.sqrt(terms * count_of(output)), terms)


def _added(output: Value, terms: Sequence[Value]) -> Scale | None:
    sized = [(value, size) for value in terms if (size := size_of(value)) is not None]
    if len(sized) < 2:
        return None
    # A smaller term is broadcast.
    norms = [size.norm * math.sqrt(count_of(output) / count_of(value)) for value, size in sized]
    return Scale(max(size.largest for _, size in sized), max(norms), len(sized))


def _of_addition(place: str, output: Value, values: PlacedValues) -> Scale | None:
    # ``1 - x`` adds a number.
    first = [values[place] for place in ("input.0", "input.1", "input.other") if place in values]
    return _added(output, first[:2])


def _of_tensors(place: str, output: Value, values: PlacedValues) -> Scale | None:
    return _added(output, tensors_of(values))


def _of_interpolation(place: str, output: Value, values: PlacedValues) -> Scale | None:
    weight = number_at(values, "input.2", number_at(values, "input.weight", 1.0))
    return _wider(
        _times(size_of(values.get("input.0")), abs(1 - weight)),
        _times(size_of(values.get("input.1", values.get("input.end"))), abs(weight)),
    )


def _of_added_product(place: str, output: Value, values: PlacedValues) -> Scale | None:
    addend, *factors = [size_of(value) for value in (*tensors_of(values), None, None, None)[:3]]
    if addend is None or factors[0] is None or factors[1] is None:
        return None
    factor = abs(number_at(values, "input.value", 1.0)) * factors[0].largest
    return _wider(addend, _times(factors[1], factor))


def _of_added_quotient(place: str, output: Value, values: PlacedValues) -> Scale | None:
    addend, part, whole = [size_of(value) for value in (*tensors_of(values), None, None, None)[:3]]
    if addend is None or part is None or whole is None or not whole.norm:
        return None
    # As large as it is on average.
    quotient = abs(number_at(values, "input.value", 1.0)) * part.norm / whole.norm
    return _wider(addend, Scale(quotient, quotient * math.sqrt(count_of(output)), 1.0))


def _times(size: Scale | None, factor: float) -> Scale | None:
    return None if size is None else Scale(size.largest * factor, size.norm * factor, size.terms)


def _wider(one: Scale | None, other: Scale | None) -> Scale | None:
    if one is None or other is None:
        return None
    return Scale(max(one.largest, other.largest), max(one.norm, other.norm), one.terms + other.terms)


def _of_sum(place: str, output: Value, values: PlacedValues) -> Scale | None:
    return of_sum(output, next(iter(tensors_of(values)), None))


def _of_mean(place: str, output: Value, values: PlacedValues) -> Scale | None:
    total = _of_sum(place, output, values)
    return None if total is None else Scale(total.largest / total.terms, total.norm / total.terms, total.terms)


def _of_product(place: str, output: Value, values: PlacedValues) -> Scale | None:
    return of_product(output, tensors_of(values))


def _of_product_and_first(place: str, output: Value, values: PlacedValues) -> Scale | None:
    addend, *factors = tensors_of(values) or [output]
    product, added = of_product(output, factors), size_of(addend)
    if product is None or added is None:
        return product
    norm = added.norm * math.sqrt(count_of(output) / count_of(addend))
    return Scale(max(product.largest, added.largest), max(product.norm, norm), product.terms + 1)


def _of_logarithm(place: str, output: Value, values: PlacedValues) -> Scale | None:
    # One rounding of x moves log x by a rounding of 1.
    size = size_of(output)
    return None if size is None else Scale(max(size.largest, 1.0), max(size.norm, math.sqrt(count_of(output))), 1.0)


def _of_squares(place: str, output: Value, values: PlacedValues) -> Scale | None:
    """Return the scale of a mean or sum of squares of differences: what moves a difference d by e moves it by 2 d e."""
    size, root = size_of(output), mean_square_root(next(iter(tensors_of(values)), None))
    if size is None or root is None:
        return None
    terms, total = _terms_of_loss(output, values)
    moved = root * math.sqrt(total)
    largest = moved * (2 * math.sqrt(size.largest) + UNIT_ROUNDOFF.get(float_dtype(output.dtype) or "", 0.0) * moved)
    return Scale(largest, largest * math.sqrt(count_of(output)), terms)


def _of_loss(place: str, output: Value, values: PlacedValues) -> Scale | None:
    """Return the scale of a loss whose summands are no larger than what it is given: of logits, of distances."""
    size = size_of(next(iter(tensors_of(values)), None))
    if size is None:
        return None
    terms, total = _terms_of_loss(output, values)
    return Scale(size.largest * total, size.largest * total * math.sqrt(count_of(output)), terms)


def _of_classes(place: str, output: Value, values: PlacedValues) -> Scale | None:
    """Return the scale of a loss that sums logits over the classes of each element of its target."""
    scores, labels = (*tensors_of(values), None, None)[:2]
    size = size_of(scores)
    if size is None or scores is None or labels is None:
        return None
    # Probabilities as targets have the shape of the scores, whose second dimension are the classes.
    classes = scores.shape[1] if len(scores.shape) > 1 else count_of(scores)
    summed = count_of(labels) / (classes if labels.shape == scores.shape else 1)
    total = summed if count_of(output) == 1 and _reduction(values) == "sum" else 1.0
    terms = classes + (summed if count_of(output) == 1 else 1.0)
    return Scale(size.largest * total, size.largest * total * math.sqrt(count_of(output)), terms)


def _of_cosine_loss(place: str, output: Value, values: PlacedValues) -> Scale | None:
    terms, total = _terms_of_loss(output, values)
    return Scale(total, total * math.sqrt(count_of(output)), terms)


def _of_divergence(place: str, output: Value, values: PlacedValues) -> Scale | None:
    """Return the scale of sum t (log t - s).

    A sum of |t s| is at most the product of their norms, and at most max |s| times the sum of t.
    """
    scores, target = (size_of(value) for value in (*tensors_of(values), None, None)[:2])
    if scores is None or target is None:
        return None
    count = count_of(tensors_of(values)[0])
    if count_of(output) > 1:
        return Scale(scores.largest * target.largest, scores.norm * target.largest, 2.0)
    divided = {"sum": 1.0, "batchmean": (tensors_of(values)[0].shape or (1,))[0]}.get(_reduction(values), count)
    largest = min(scores.norm * target.norm, scores.largest * _sum_of(tensors_of(values)[1])) / max(divided, 1.0)
    return Scale(largest, largest, count)


def _sum_of(value: Value) -> float:
    """Return the sum of a tensor without negative numbers, inf where it is not known."""
    _, low, mean, _ = value.statistics or (None,) * 4
    return math.inf if mean is None or low is None or low < 0 else float(mean) * count_of(value)


def _terms_of_loss(output: Value, values: PlacedValues) -> tuple[float, float]:
    """Return how many terms an element of a loss has, and how many means of them it sums."""
    if count_of(output) > 1:
        return 2.0, 1.0
    terms = count_of(tensors_of(values)[0]) if tensors_of(values) else 1.0
    return terms, terms if _reduction(values) == "sum" else 1.0


def _reduction(values: PlacedValues) -> str:
    reduction = values.get("input.reduction")
    return "mean" if reduction is None else reduction.text


#: Scales of the kinds of terms that a row of an operation may name.
SCALES: Mapping[str, ScaleOf] = {
    "addition": _of_addition,
    "interpolation": _of_interpolation,
    "added_product": _of_added_product,
    "added_quotient": _of_added_quotient,
    "sum": _of_sum,
    "mean": _of_mean,
    "product": _of_product,
    "addend_and_product": _of_product_and_first,
    "logarithm": _of_logarithm,
    "squared_loss": _of_squares,
    "class_loss": _of_classes,
    "loss": _of_loss,
    "cosine_loss": _of_cosine_loss,
    "divergence": _of_divergence,
}


def _by_word(words: str, scale: ScaleOf) -> dict[str, ScaleOf]:
    return dict.fromkeys(words.split(), scale)


# Kernels, modules and functions of MindSpore have other names than the functions of torch.
_BY_WORD: Mapping[str, ScaleOf] = {
    **{last_word(name): SCALES[kind] for kind, names in TERMS.items() for name in names},
    **_by_word("biasadd tensoradd", _of_addition),
    "addn": _of_tensors,
    **_by_word("reducesum sumext biasaddgrad segmentsum unsortedsegmentsum", _of_sum),
    **_by_word("reducemean meanext avgpool adaptiveavgpool", _of_mean),
    **_by_word("dense batchmatmul conv2dbackpropfilter conv2dbackpropinput", _of_product),
    "crossentropyloss": _of_classes,
    "kldivloss": _of_divergence,
}
