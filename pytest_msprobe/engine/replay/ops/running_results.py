"""Results of which each element is made of the one before: a device that rounds every step is right.

torch's CPU keeps a running sum or product in float64 and rounds what it writes. Accelerators round each step, or scan
in blocks and add what came before: after n steps both may be n roundings off, all of one sign. What such a device does
not do is to err much in a single step. docs/standards-reference.md, "Running sums and products", has the bounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pytest_msprobe.engine.replay.call import argument_of

# docs/standards-reference.md, "Where the constants come from".
_AT_ONCE = 64.0
# Of sums, in all steps but the hundredth part at which blocks may meet.
_MOSTLY, _FEW = 12.0, 0.01
# Partial sums are at most twice as large as the largest result so far.
_PARTIAL = 2.0


@dataclass(frozen=True, slots=True)
class Running:
    """The dimension along which an operation runs: an argument, ``default`` where it is not given.

    ``product``: it multiplies. ``of_gradient``: its gradient runs too, the other way.
    """

    dim_at: int = 1
    default: int | None = None
    product: bool = False
    of_gradient: bool = True

    def forward(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Steps | None:
        """Return the steps of a call's results; None where the arguments have another form."""
        dim = self._dim(args, kwargs)
        return None if dim is None else Steps(dim, _is_reversed(kwargs), is_relative=self.product)

    def backward(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Steps | None:
        """Return the steps of the gradient of the first argument; None where it has none."""
        dim, given = self._dim(args, kwargs), argument_of(args, kwargs, 0, "input", "self")
        if dim is None or not self.of_gradient or not isinstance(given, Tensor) or given.is_complex():
            return None
        if not self.product:
            return Steps(dim, not _is_reversed(kwargs))
        # (the sum of output * gradient from here on) / input
        return Steps(dim, True, factors=given) if bool((given != 0).all() & given.isfinite().all()) else None

    def _dim(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int | None:
        dim = argument_of(args, kwargs, self.dim_at, "dim", "axis")
        dim = self.default if dim is None else dim
        return dim if type(dim) is int else None


def _is_reversed(kwargs: Mapping[str, Any]) -> bool:
    # MindSpore's CumSum has the argument.
    return kwargs.get("reverse") is True


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of a result along ``dim``, from its end where ``from_end``.

    ``is_relative``: errors are relative to each element, as those of a product are. A result times its ``factors`` is
    a running sum of terms that a running product of as many steps takes part in.
    """

    dim: int
    from_end: bool
    is_relative: bool = False
    factors: Tensor | None = None

    def are_rounded(self, target: Tensor, golden: Tensor) -> bool:
        """Return whether no step errs by more than roundings do, nor all together by more than one for each step.

        NaN and infinities are where golden has them. Most steps of a sum err by few roundings: one that stops adding
        errs by each term.
        ``target`` and ``golden`` are CPU tensors of one shape, floating-point or complex.
        """
        unit = torch.finfo(target.dtype).eps / 2
        least = torch.finfo(target.dtype).tiny
        right, found = self._along(golden), self._along(target)
        rounded = right.to(target.dtype).to(right.dtype)
        are_same = (found == rounded) | (found.isnan() & rounded.isnan())
        if not bool((are_same | (found.isfinite() & rounded.isfinite())).all()):
            return False
        error = torch.where(rounded.isfinite(), found - right, 0.0)
        error = error.masked_fill((right.abs() < least) & (found.abs() < least), 0.0)
        if self.is_relative:
            error, right = torch.where(error == 0, error, error / right), torch.ones_like(right)
        magnitude = torch.where(right.isfinite(), right.abs(), 0.0).cummax(-1).values
        steps = torch.arange(1, right.shape[-1] + 1, dtype=torch.float64)
        own = torch.zeros_like(magnitude)
        if self.factors is not None:
            steps = steps + len(steps)
            own = _PARTIAL * len(steps) * _change(right).abs()
        within_all = error.abs() <= _PARTIAL * steps * unit * magnitude
        change = _change(error).abs()
        within_one = change <= unit * (_AT_ONCE * magnitude + own)
        if not bool((within_all & within_one).all()):
            return False
        if self.is_relative or self.factors is not None:
            return True
        return int((change > _MOSTLY * unit * magnitude).sum()) <= max(1.0, _FEW * change.numel())

    def _along(self, values: Tensor) -> Tensor:
        """Return values in float64 with the dimension last and in the order of the steps."""
        wide = values.to(torch.complex128 if values.is_complex() else torch.float64)
        if self.factors is not None:
            wide = wide * self.factors.to(wide.dtype)
        moved = wide.movedim(self.dim, -1) if wide.dim() else wide.unsqueeze(0)
        return moved.flip(-1) if self.from_end else moved


def _change(values: Tensor) -> Tensor:
    return values.diff(dim=-1, prepend=torch.zeros_like(values[..., :1]))
