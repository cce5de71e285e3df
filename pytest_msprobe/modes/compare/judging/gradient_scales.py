"""Scales of the terms of a backward call's gradients, by what its forward call recorded.

A gradient of a normalisation, a softmax or a cosine is what arrives less its projection. Where the result of the
forward call moves the loss by its length or sum alone, nothing but rounding is left: of the terms, not of the result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from msprobe_hooks.dump.names import split_called
from msprobe_hooks.dump.values import Value
from pytest_msprobe.modes.compare.judging.term_kinds import GRADIENT_TERMS
from pytest_msprobe.modes.compare.judging.term_scales import (
    PlacedValues,
    Scale,
    ScaleOf,
    count_of,
    last_word,
    mean_square_root,
    number_at,
    of_product,
    of_sum,
    size_of,
)

#: The place of the gradients that arrive among what a backward call is given; the rest is what the forward call was.
ARRIVED = "gradient"
# The default of PyTorch's norms.
_EPS = 1e-5


def gradient_scale(record: str) -> ScaleOf | None:
    """Return what gives the scale of the terms of a backward call's gradients; None where none cancels."""
    word = _word(split_called(record)[0])
    # A model's own norm has a word in front, as LlamaRMSNorm.
    return _BY_WORD.get(word) or next((_ENDINGS[end] for end in _LONGEST_FIRST if word.endswith(end)), None)


def _word(called: str) -> str:
    word = last_word(called)
    return word[:-2] if word.endswith(("1d", "2d", "3d")) else word


def _arrived(values: PlacedValues) -> Value | None:
    return next((value for place, value in values.items() if place.startswith(ARRIVED)), None)


def _arguments(values: PlacedValues) -> list[tuple[str, Value]]:
    return [(place, value) for place, value in values.items() if place.startswith("input") and value.is_tensor]


def _first(values: PlacedValues) -> Value | None:
    """Return the first tensor argument, by its place or its name."""
    return next((value for _, value in _arguments(values)), None)


def _argument(place: str, gradient: Value, values: PlacedValues) -> int | None:
    """Return which tensor argument a gradient is of: those that require none have none."""
    arguments = [value for _, value in _arguments(values)]
    required = [i for i, value in enumerate(arguments) if value.requires_grad]
    number = place.partition(".")[2]
    if number.isdecimal() and int(number) < len(required):
        index = required[int(number)]
        if arguments[index].shape == gradient.shape:
            return index
    return next((i for i, value in enumerate(arguments) if value.shape == gradient.shape), None)


def _scaled(size: Scale | None, gain: float | None, terms: float) -> Scale | None:
    return None if size is None or gain is None else Scale(size.largest * gain, size.norm * gain, terms)


def _row_length(value: Value | None) -> float:
    return float(value.shape[-1]) if value is not None and value.shape else 1.0


def _of_normalisation(weight: int, *, is_centred: bool = True) -> ScaleOf:
    def scale(place: str, gradient: Value, values: PlacedValues) -> Scale | None:
        arrived = _arrived(values)
        if _argument(place, gradient, values) != 0:
            # The gradients of weight and bias sum what arrived, times what has a mean square of one.
            return of_sum(gradient, arrived)
        first = _first(values)
        spread = None if first is None else _spread(first, is_centred=is_centred)
        if spread is None:
            return None
        gain = _weight(values, weight) / math.sqrt(spread * spread + _eps(values))
        return _scaled(size_of(arrived), gain, 4.0)

    return scale


def _spread(value: Value, *, is_centred: bool) -> float | None:
    """Return the standard deviation of all, which that of a row or channel is not above on average."""
    root = mean_square_root(value)
    mean = value.statistics[2] if value.statistics is not None else None
    if root is None or mean is None or not is_centred:
        return root
    return math.sqrt(max(root * root - float(mean) ** 2, 0.0))


def _weight(values: PlacedValues, number: int) -> float:
    places = ("input.weight", "input.gamma", f"input.{number}", "parameters.weight", "parameters.gamma")
    weight = next((value for place in places if (value := values.get(place)) is not None and value.is_tensor), None)
    root = mean_square_root(weight)
    return 1.0 if root is None else root


def _eps(values: PlacedValues) -> float:
    floats = [place for place, value in values.items() if place.startswith("input") and value.type == "float"]
    return number_at(values, floats[-1], _EPS) if floats else _EPS


def _of_unit_length(place: str, gradient: Value, values: PlacedValues) -> Scale | None:
    """Return the scale where a result is its argument over the argument's norm, times what has no gradient of it."""
    if _argument(place, gradient, values) != 0:
        return of_sum(gradient, _arrived(values))
    result, argument = (mean_square_root(value) for value in (values.get("output.0"), _first(values)))
    if result is None or not argument:
        return None
    return _scaled(size_of(_arrived(values)), result / argument, 4.0)


def _of_softmax(place: str, gradient: Value, values: PlacedValues) -> Scale | None:
    result, arrived = size_of(values.get("output.0")), size_of(_arrived(values))
    if result is None or arrived is None:
        return None
    # Under a mask most of the result is zero: what arrives there reaches no term.
    norm = min(arrived.norm * result.largest, arrived.largest * result.norm)
    return Scale(arrived.largest * result.largest, norm, _row_length(gradient))


def _of_log_softmax(place: str, gradient: Value, values: PlacedValues) -> Scale | None:
    return _scaled(size_of(_arrived(values)), 1.0, _row_length(gradient))


def _of_cosine(place: str, gradient: Value, values: PlacedValues) -> Scale | None:
    """Return the scale of g (b / |a| |b| - cos a / |a|^2), of rows of a and b."""
    arrived = _arrived(values)
    number = _argument(place, gradient, values)
    size = None if number is None else size_of(_arguments(values)[number][1])
    result, arriving = values.get("output.0"), size_of(arrived)
    if size is None or not size.norm or result is None or arriving is None:
        return None
    rows = count_of(result)
    if rows == 1 and len(gradient.shape) > 1:
        # The mean of a loss.
        rows = gradient.shape[0]
        arriving = Scale(arriving.largest / rows, arriving.norm / math.sqrt(rows), 1.0)
    of_row = size.norm / math.sqrt(rows)
    return Scale(arriving.largest * size.largest / (of_row * of_row), arriving.norm / of_row, _row_length(gradient))


def _of_classes(place: str, gradient: Value, values: PlacedValues) -> Scale | None:
    """Return the scale of p - 1 of the class that is wanted."""
    classes = gradient.shape[1] if len(gradient.shape) > 1 else count_of(gradient)
    return _of_summands(values, gradient, count_of(gradient) / max(classes, 1), 1.0)


def _of_difference(place: str, gradient: Value, values: PlacedValues) -> Scale | None:
    """Return the scale of 2 (x - t)."""
    root = mean_square_root(_first(values))
    return None if root is None else _of_summands(values, gradient, count_of(gradient), 2 * root)


def _of_probability(place: str, gradient: Value, values: PlacedValues) -> Scale | None:
    """Return the scale of sigmoid(x) - t."""
    return _of_summands(values, gradient, count_of(gradient), 1.0)


def _of_summands(values: PlacedValues, gradient: Value, count: float, summand: float) -> Scale | None:
    """Return the scale of a loss' gradient: of its summands, or of their mean."""
    arrived = _arrived(values)
    arriving = size_of(arrived)
    if arrived is None or arriving is None:
        return None
    reduction = values.get("input.reduction")
    is_mean = count_of(arrived) == 1 and (reduction is None or reduction.text == "mean")
    largest = arriving.largest * summand / (count if is_mean else 1.0)
    return Scale(largest, largest * math.sqrt(count), 4.0)


def _of_product(first: int) -> ScaleOf:
    """Return the scale of the gradient of a factor, of which the other one is multiplied with what arrived."""

    def scale(place: str, gradient: Value, values: PlacedValues) -> Scale | None:
        arrived, first_input = _arrived(values), _first(values)
        if arrived is None or first_input is None or place == "bias":
            return of_sum(gradient, arrived)
        if place == "weight":
            return of_product(gradient, [arrived, first_input])
        weight, number = values.get("parameters.weight"), _argument(place, gradient, values)
        factors = [value for _, value in _arguments(values)][first : first + 2]
        factors = factors if weight is None else [*factors[:1], weight]
        if number is None or len(factors) < 2:
            return None
        if number - first not in (0, 1):
            return of_sum(gradient, arrived)
        return of_product(gradient, [arrived, factors[1 - (number - first)]])

    return scale


#: Scales of the kinds of terms that a row of an operation may name.
SCALES: Mapping[str, ScaleOf] = {
    "product": _of_product(0),
    "addend_and_product": _of_product(1),
    "layer_norm": _of_normalisation(2),
    "rms_norm": _of_normalisation(2, is_centred=False),
    "batch_norm": _of_normalisation(3),
    "unit_length": _of_unit_length,
    "softmax": _of_softmax,
    "log_softmax": _of_log_softmax,
    "cosine": _of_cosine,
    "class_loss": _of_classes,
    "probability_loss": _of_probability,
    "difference_loss": _of_difference,
}
# ``addmm`` ends in ``mm``, and a layer of a model whose name ends in one of these makes more than a product.
_WHOLE_WORDS = ("product", "addend_and_product")

# Modules and functions of MindSpore have other names than the functions of torch.
_BY_WORD: Mapping[str, ScaleOf] = {
    **{_word(name): SCALES[kind] for kind in _WHOLE_WORDS for name in GRADIENT_TERMS[kind]},
    "dense": SCALES["product"],
    "conv": SCALES["product"],
}
_ENDINGS: Mapping[str, ScaleOf] = {
    **{
        _word(name): SCALES[kind]
        for kind, names in GRADIENT_TERMS.items()
        if kind not in _WHOLE_WORDS
        for name in names
    },
    "crossentropyloss": _of_classes,
    "bcewithlogitsloss": _of_probability,
}
# A log softmax is no softmax.
_LONGEST_FIRST = sorted(_ENDINGS, key=len, reverse=True)
