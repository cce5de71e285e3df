"""Where golden's own results say that a function of a matrix has no gradient.

No vector is a differentiable function of the matrix where its value is another's too, and log |det| has a pole where
the matrix is singular (Magnus and Neudecker, Matrix Differential Calculus, 2019, chapters 8 and 9). What a side gives
there is nan, inf, or as large as its rounding happens to be.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

import torch

from pytest_msprobe.engine.replay.linalg.canonical_factors import equal_within
from pytest_msprobe.engine.values.error_kinds import REFUSALS

Undifferentiable: TypeAlias = Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor], Collection[int]], str]
"""Says, for the target's outputs, golden's, and the positions that gradients arrive for, why there is no gradient.

The text is empty where there is one. Of a batch one matrix without a gradient is enough.
"""


def nondifferentiable_reason(
    undifferentiable: Undifferentiable | None, outputs: Any, golden: Any, arriving: Mapping[str, torch.Tensor]
) -> str:
    """Return why there is no gradient for those that arrive for a call's outputs, by path; empty where there is one."""
    if undifferentiable is None:
        return ""
    # A user's own function may have the name and other outputs.
    with contextlib.suppress(*REFUSALS):
        return undifferentiable(outputs, golden, {int(path or 0) for path in arriving})
    return ""


def equal_singular_values(outputs: Sequence[torch.Tensor], golden: Sequence[torch.Tensor], at: Collection[int]) -> str:
    """Look for equal singular values, and for zeros of a matrix that is not square, whose bases have a complement."""
    u, values, v = outputs
    if {0, 2}.isdisjoint(at):
        return ""
    exact, within = golden[1].detach(), equal_within(golden[1].detach(), values.dtype)
    if bool((exact.diff(dim=-1).abs() <= within).any()):
        return "two singular values are equal"
    return "a singular value is zero" if u.shape != v.shape and bool((exact <= within).any()) else ""


def equal_eigenvalues(outputs: Sequence[torch.Tensor], golden: Sequence[torch.Tensor], at: Collection[int]) -> str:
    """Look for equal eigenvalues, of a Hermitian matrix or of a general one, whose eigenvalues have no order."""
    if 1 not in at:
        return ""
    exact = golden[0].detach()
    apart = (exact.unsqueeze(-1) - exact.unsqueeze(-2)).abs()
    within = equal_within(exact, outputs[0].dtype).unsqueeze(-1)
    # Each value is equal to itself.
    return "two eigenvalues are equal" if int((apart <= within).sum()) > exact.numel() else ""


def singular_matrix(outputs: Sequence[torch.Tensor], golden: Sequence[torch.Tensor], at: Collection[int]) -> str:
    """Look for a determinant of zero, whose logarithm is the last output."""
    return "the matrix is singular" if bool(golden[-1].detach().real.isneginf().any()) else ""
