"""What an optimizer makes of a gradient that is rounding alone: a step that is judged by its own scale.

Adam's first step divides rounding by rounding: each run moves the parameter by its learning rate, in a direction of its
own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from msprobe_hooks.dump.names import split_called
from msprobe_hooks.dump.values import Value
from pytest_msprobe.modes.compare.judging.cancelled_sums import distance
from pytest_msprobe.modes.compare.judging.term_scales import Given, count_of, last_word, number_at, size_of
from pytest_msprobe.modes.compare.rows import Row

_Step: TypeAlias = Callable[[Given, float], "float | None"]


def is_step_of_rounding(record: str, row: Row, rows: Sequence[Row], *, share: float, spread: float) -> bool | None:
    """Return whether an output is no further apart than the steps that two runs made of rounding; None for no step.

    What differs among the inputs may differ by ``share`` of itself. Where a step is known on average only, an element
    of it may be ``spread`` times as large.
    """
    word = last_word(split_called(record)[0])
    number = row.place.rpartition(".")[2] if word.startswith(("foreach", "fused")) else ""
    step = _STEPS.get(word.removeprefix("foreach"))
    given = {place: each for each in rows if each.group == "input" and (place := _place(each, number))}
    differing = {place for place, each in given.items() if each.differs}
    apart = distance(row)
    if step is None or apart is None or row.target is None or not _is_moved(word, row, differing):
        return None
    sizes = [
        step({place: value for place, value in side.items() if value is not None}, spread)
        for side in (
            {place: each.target for place, each in given.items()},
            {place: each.golden for place, each in given.items()},
        )
    ]
    if None in sizes:
        return None
    limit = sum(size for size in sizes if size is not None) * (1.0 if word == "sign" else min(share, 1.0))
    return apart[0] <= limit and apart[1] <= limit * math.sqrt(count_of(row.target))


def _is_moved(word: str, row: Row, differing: set[str]) -> bool:
    """Return whether an output is what both runs move from one place, or a quotient or sign of what differs."""
    if word.startswith("fused"):
        # Its first list of tensors are the parameters, the next ones gradients and averages of them.
        return row.place.startswith("output.0.") and "input.0" not in differing
    return "input.0" not in differing or word.endswith(("truediv", "realdiv", "div", "sign"))


def _place(row: Row, number: str) -> str:
    """Return the place of an argument; of lists of tensors that of the tensor with a number, empty for the others."""
    if not number or row.place.count(".") < 2:
        return row.place
    head, _, last = row.place.rpartition(".")
    return head if last == number else ""


def _of_addition(given: Given, spread: float) -> float | None:
    size = size_of(given.get("input.1"))
    return None if size is None else size.largest * abs(number_at(given, "input.alpha", 1.0))


def _of_division(given: Given, spread: float) -> float | None:
    return _ratio(given.get("input.0"), given.get("input.1"), spread)


def _of_added_division(given: Given, spread: float) -> float | None:
    ratio = _ratio(given.get("input.1"), given.get("input.2"), spread)
    factor = number_at(given, "input.value", number_at(given, "input.3", 1.0))
    return None if ratio is None else ratio * abs(factor)


def _ratio(part: Value | None, whole: Value | None, spread: float) -> float | None:
    sizes = size_of(part), size_of(whole)
    if sizes[0] is None or sizes[1] is None or not sizes[1].norm:
        return None
    return spread * sizes[0].norm / sizes[1].norm


def _of_sign(given: Given, spread: float) -> float | None:
    return 1.0


def _of_adam(given: Given, spread: float) -> float | None:
    rate = number_at(given, "input.lr", math.nan)
    return None if math.isnan(rate) else spread * abs(rate)


_STEPS: Mapping[str, _Step] = {
    **dict.fromkeys(("add", "sub", "iadd", "isub", "assignadd", "assignsub"), _of_addition),
    **dict.fromkeys(("div", "truediv", "realdiv"), _of_division),
    "addcdiv": _of_added_division,
    "sign": _of_sign,
    **dict.fromkeys(("fusedadam", "fusedadamw"), _of_adam),
}
