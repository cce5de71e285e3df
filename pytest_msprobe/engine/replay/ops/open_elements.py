"""Elements of a result that torch and the language leave open: processors differ there, and all of them are right.

A number that the asked dtype does not hold is cast to whatever the processor makes of it: x86 wraps or gives the least
integer, ARM, GPUs and NPUs saturate. A shift by a negative number of bits or by all of them, and the least integer
divided by -1, are open as well. What a dtype holds is defined, and judged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from pytest_msprobe.engine.replay.call import argument_of
from pytest_msprobe.engine.values.error_kinds import REFUSALS

Find: TypeAlias = Callable[[Sequence[Any], Mapping[str, Any], Tensor], "Tensor | None"]
"""Returns which elements of a result are open, as a mask that broadcasts to it; None where none can be."""

# Beyond their largest number kernels saturate or give NaN or infinity, those of torch's CPU by version.
_EIGHT_BITS = frozenset({torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz})
# The results that an operation writes to an argument, by the argument's path.
_WRITTEN = frozenset({"args.0", "kwargs.input", "kwargs.self", "kwargs.out"})

_OUT_OF_RANGE = "the cast number is outside of the dtype's range"
_TOO_FAR = "the shift is negative or as wide as the number"
_LEAST_BY_MINUS_ONE = "the least integer is divided by -1"


@dataclass(frozen=True, slots=True)
class OpenElements:
    """Which elements an operation leaves open; ``why`` says in words for which inputs."""

    why: str
    find: Find


def accept_open_elements(
    leaves_open: OpenElements | None,
    arguments: tuple[Sequence[Any], Mapping[str, Any]],
    target: dict[str, Any],
    golden: Mapping[str, Any],
) -> dict[str, int]:
    """Write golden's values into the target's results where these are open, and return how many differed, by path.

    ``arguments`` are those before the call, in the recorded dtypes; the results are trees of CPU tensors, changed in
    place.
    """
    counts: dict[str, int] = {}
    if leaves_open is None:
        return counts

    def accepted(path: str, found: Any, right: Any) -> Any:
        if not _may_be_open(found, right):
            return found
        try:
            taken = _taken(leaves_open, arguments, found, right)
            if taken is None or not bool(taken.any()):
                return found
            mended = torch.where(taken, right.to(found.dtype), found)
        except REFUSALS:
            # The arguments have another form than the operation's own, or torch does not compare this dtype.
            return found
        counts[path] = int(taken.sum())
        return mended

    output, right = target.get("output"), golden.get("output")
    if isinstance(output, (list, tuple)) and isinstance(right, (list, tuple)) and len(output) == len(right) == 1:
        target["output"] = [accepted("output.0", output[0], right[0])]
    kept = golden.get("changed", {})
    for path, changed in target.get("changed", {}).items():
        if path in _WRITTEN:
            target["changed"][path] = accepted(f"changed.{path}", changed, kept.get(path))
    return counts


def _may_be_open(found: Any, right: Any) -> bool:
    if not (isinstance(found, Tensor) and isinstance(right, Tensor)) or found.shape != right.shape:
        return False
    return found.dtype in _EIGHT_BITS or (_is_whole(found.dtype) and found.dtype == right.dtype)


def _taken(
    leaves_open: OpenElements, arguments: tuple[Sequence[Any], Mapping[str, Any]], found: Tensor, right: Tensor
) -> Tensor | None:
    """Return which elements differ from golden's and are open; None where none do."""
    has_eight_bits = found.dtype in _EIGHT_BITS
    differs = _differs(found, right) if has_eight_bits else found != right
    is_open = leaves_open.find(*arguments, found) if bool(differs.any()) else None
    if is_open is None:
        return None
    return differs & is_open & _is_saturated(found, right) if has_eight_bits else differs & is_open


def _is_whole(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool)


def _differs(found: Tensor, right: Tensor) -> Tensor:
    """Return where numbers of 8 bits differ from golden's, rounded to them."""
    ours, theirs = found.float(), right.to(found.dtype).float()
    return (ours != theirs) & ~(ours.isnan() & theirs.isnan())


def _is_saturated(found: Tensor, right: Tensor) -> Tensor:
    """Return where a result is what hardware gives beyond the largest number: that number, infinity or NaN."""
    values = found.float()
    is_at_end = values.abs() >= torch.finfo(found.dtype).max
    return values.isnan() | (is_at_end & (values.sign() == right.float().sign()))


def _beyond(source: Any, dtype: torch.dtype) -> Tensor | None:
    """Return which numbers of a tensor lie outside of what a dtype holds, NaN included for integers."""
    is_beyond: Tensor
    if not isinstance(source, Tensor):
        return None
    if source.is_complex():
        source = source.real
    if dtype in _EIGHT_BITS:
        largest = torch.finfo(dtype).max
        half_a_step = 2.0 ** math.floor(math.log2(largest)) * torch.finfo(dtype).eps / 2
        is_beyond = source.double().abs() >= largest + half_a_step
        return is_beyond
    if not source.is_floating_point() or not _is_whole(dtype):
        return None
    bounds, whole = torch.iinfo(dtype), source.double().trunc()
    # The greatest integer of 64 bits is no double, the one behind it is.
    is_beyond = ~((whole >= float(bounds.min)) & (whole < float(bounds.max + 1)))
    return is_beyond


def _cast(position: int, *names: str) -> Find:
    def find(args: Sequence[Any], kwargs: Mapping[str, Any], found: Tensor) -> Tensor | None:
        return _beyond(argument_of(args, kwargs, position, *names), found.dtype)

    return find


def _written_between_brackets(args: Sequence[Any], kwargs: Mapping[str, Any], found: Tensor) -> Tensor | None:
    beyond = _beyond(argument_of(args, kwargs, 2, "value"), found.dtype)
    if beyond is None:
        return None
    is_open = torch.zeros(found.shape, dtype=torch.bool)
    is_open[argument_of(args, kwargs, 1, "indices")] = beyond
    return is_open


def _shifted(position: int, *names: str) -> Find:
    def find(args: Sequence[Any], kwargs: Mapping[str, Any], found: Tensor) -> Tensor | None:
        if not _is_whole(found.dtype):
            return None
        bits = torch.as_tensor(argument_of(args, kwargs, position, *names))
        return (bits < 0) | (bits >= torch.iinfo(found.dtype).bits)

    return find


def _divided(*, reflected: bool = False) -> Find:
    def find(args: Sequence[Any], kwargs: Mapping[str, Any], found: Tensor) -> Tensor | None:
        if not (_is_whole(found.dtype) and found.dtype.is_signed):
            return None
        pair = (argument_of(args, kwargs, 0, "input", "self"), argument_of(args, kwargs, 1, "other"))
        dividend, divisor = map(torch.as_tensor, reversed(pair) if reflected else pair)
        return (dividend == torch.iinfo(found.dtype).min) & (divisor == -1)

    return find


CAST = OpenElements(_OUT_OF_RANGE, _cast(0, "input", "self", "data", "obj", "x"))
COPIED = OpenElements(_OUT_OF_RANGE, _cast(1, "src", "other", "data"))
BETWEEN_BRACKETS = OpenElements(_OUT_OF_RANGE, _written_between_brackets)
SHIFTED = OpenElements(_TOO_FAR, _shifted(1, "other"))
SHIFTED_BY_FIRST = OpenElements(_TOO_FAR, _shifted(0, "input", "self"))
DIVIDED = OpenElements(_LEAST_BY_MINUS_ONE, _divided())
DIVIDED_BY_FIRST = OpenElements(_LEAST_BY_MINUS_ONE, _divided(reflected=True))
