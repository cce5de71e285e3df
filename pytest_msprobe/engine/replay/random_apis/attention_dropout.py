"""The dropout mask inside attention, read from the results of a call whose inputs are made for it.

With queries of zero, every key that a query sees has a known weight; with a row of the identity as each key's value,
column j of the result holds the weight of key j alone, scaled, or zero where it was dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from pytest_msprobe.engine.replay.random_apis import tail_bound
from pytest_msprobe.engine.replay.random_apis.independence import choice_exponent, unlike_pairs
from pytest_msprobe.engine.replay.random_apis.properties import PassesNoGradient, tensors

if TYPE_CHECKING:
    from torch import Tensor

    from msprobe_standards.verdict import Verdict

# Kernels compare the bits of a byte with the probability.
_PROBABILITY_STEP = 2.0**-7
_LAYOUT_AT = 4


@dataclass(frozen=True, slots=True)
class WeightMask(PassesNoGradient):
    """Each positive element of ``weights`` is scaled by 1 / (1 - ``p``), or zero with probability ``p``."""

    weights: Tensor
    p: float

    def check_forward(self, output: Any) -> Verdict:
        """Judge how many weights were dropped, and that the mask does not repeat."""
        dropped, known = self._mask(tensors(output)[0])
        shape = self.weights.shape
        count = int((dropped & known).sum())
        share = tail_bound.share("dropped share", (count, count), int(known.sum()), self.p, _PROBABILITY_STEP)
        return tail_bound.decided([share, *unlike_pairs(dropped, known, self.p, shape, _PROBABILITY_STEP)])

    def repeat_exponent(self, output: Any) -> float:
        """Return the exponent of a bound of the probability that the next call gives this result too."""
        _, known = self._mask(tensors(output)[0])
        return choice_exponent(torch.full((int(known.sum()),), self.p))

    def _mask(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return which weights were dropped and of which this is known, both flat."""
        weights = self.weights.double()
        return (y.double() < weights / 2).flatten(), ((weights > 0) & y.isfinite()).flatten()


#: Returns a call's arguments with inputs from whose results the mask can be read; None where it cannot.
Readable = Callable[[Sequence[Any], Mapping[str, Any]], "tuple[tuple[Any, ...], dict[str, Any]] | None"]


def readable(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Return the arguments of attention over (..., positions, features), as :data:`Readable` says."""
    return _with_unit_values(args, kwargs, positions=-2)


def readable_by_layout(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Return the arguments of ``npu_fusion_attention`` whose heads have a dimension of their own."""
    layout = args[_LAYOUT_AT] if len(args) > _LAYOUT_AT else kwargs.get("input_layout")
    positions = {"BNSD": -2, "BSND": -3}.get(str(layout))
    return None if positions is None else _with_unit_values(args, kwargs, positions)


def _with_unit_values(
    args: Sequence[Any], kwargs: Mapping[str, Any], positions: int
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    given = dict(zip(("query", "key", "value"), args, strict=False))
    query, value = (given.get(name, kwargs.get(name)) for name in ("query", "value"))
    if not isinstance(query, torch.Tensor) or not isinstance(value, torch.Tensor) or value.dim() < -positions:
        return None
    unit = torch.eye(value.shape[positions], value.shape[-1], dtype=value.dtype)
    spread = unit.view(unit.shape[0], *(1,) * (-positions - 2), unit.shape[1]).expand(value.shape)
    made = {"query": torch.zeros_like(query), "value": spread.contiguous()}
    changed = tuple(made.get(name, tensor) for name, tensor in given.items())
    return (*changed, *args[3:]), {name: made.get(name, tensor) for name, tensor in kwargs.items()}
