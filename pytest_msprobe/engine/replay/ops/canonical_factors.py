"""Factors of matrices that are right in more than one form, in golden's form; their products, undefined gradients.

Mathematics leaves open the sign (the phase, of complex numbers) of eigen- and singular vectors and of the columns of
Q, which vectors span the space of equal values, how a basis is completed, and in which order general eigenvalues come.
Each such choice is a unitary matrix: the target's factor times it is golden's. Nothing else is aligned, so a vector
of a wrong value, a wrong element and a basis that is not orthonormal stay as wrong as they are.

A gradient that arrives for the target's factor arrives, turned by the same matrix, for golden's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

import torch

from msprobe_standards.dtypes import float_format
from pytest_msprobe.engine.values.error_kinds import REFUSALS

Turn: TypeAlias = Callable[[torch.Tensor], torch.Tensor]

Alignment: TypeAlias = Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor]], Mapping[int, Turn]]
"""Gives, for a call's outputs of some side and golden's, what turns the one into the other, by position."""

# Values closer than this many unit roundoffs of the greatest are equal to any algorithm: docs/standards-reference.md,
# "Linear algebra".
_EQUAL = 64.0


def aligned(alignment: Alignment | None, outputs: Any, golden: Any) -> Any:
    """Return a call's outputs in golden's form; as they are where there is nothing to align or no likeness."""
    turns = turns_to(alignment, outputs, golden)
    if not turns:
        return outputs
    return type(outputs)(turns[i](output) if i in turns else output for i, output in enumerate(outputs))


def turned(
    alignment: Alignment | None,
    gradients: Mapping[str, torch.Tensor],
    outputs: Any,
    golden: Any,
) -> Mapping[str, torch.Tensor]:
    """Return the gradients that arrive for outputs, by path, as they arrive for golden's form of them."""
    turns = turns_to(alignment, outputs, golden)
    at = {path: int(path or 0) for path in gradients} if turns else {}
    return {
        path: turns[at[path]](gradient) if at.get(path) in turns else gradient for path, gradient in gradients.items()
    }


def turns_to(alignment: Alignment | None, outputs: Any, golden: Any) -> Mapping[int, Turn]:
    """Return what turns outputs into golden's form, by position: for them, and for gradients that arrive for them."""
    if alignment is None or not _are_comparable(outputs, golden):
        return {}
    # A user's own function may have the name and other outputs.
    with contextlib.suppress(*REFUSALS):
        return alignment(outputs, golden)
    return {}


def _are_comparable(outputs: Any, golden: Any) -> bool:
    return len(outputs) == len(golden) and all(
        isinstance(ours, torch.Tensor)
        and isinstance(right, torch.Tensor)
        and ours.shape == right.shape
        and ours.is_complex() == right.is_complex()
        and bool(ours.isfinite().all() and right.isfinite().all())
        for ours, right in zip(outputs, golden, strict=True)
    )


def singular_vectors(outputs: Sequence[torch.Tensor], golden: Sequence[torch.Tensor]) -> Mapping[int, Turn]:
    """Align U and V of a singular value decomposition; golden's own type says whether it holds V or its adjoint.

    Both turn alike where their singular value is not zero: U S Vᴴ is the matrix that was given.
    """
    (u, values, v), (golden_u, golden_values, golden_v) = outputs, map(_wide, golden)
    if not u.numel() or not v.numel():
        return {}
    is_adjoint = not hasattr(golden, "V")
    if is_adjoint:
        v, golden_v = v.mH, golden_v.mH
    groups = _groups(golden_values, values.dtype)
    left, right = _wide(u).mH @ golden_u, _wide(v).mH @ golden_v
    rank = values.shape[-1]
    both = left[..., :rank, :rank] + right[..., :rank, :rank]
    zero = golden_values <= equal_within(golden_values, values.dtype)
    of_left = _completed(both, left, groups, zero)
    of_right = _completed(both, right, groups, zero)
    return {0: _columns_by(of_left), 2: _rows_by(of_right) if is_adjoint else _columns_by(of_right)}


def eigenvectors(outputs: Sequence[torch.Tensor], golden: Sequence[torch.Tensor]) -> Mapping[int, Turn]:
    """Align the eigenvectors of a Hermitian matrix, whose eigenvalues come in order."""
    values, vectors = outputs
    if not vectors.numel():
        return {}
    overlap = _wide(vectors).mH @ _wide(golden[1])
    return {1: _columns_by(_unitary(overlap, _groups(_wide(golden[0]), values.dtype)))}


def eigenvalues_in_any_order(outputs: Sequence[torch.Tensor], golden: Sequence[torch.Tensor]) -> Mapping[int, Turn]:
    """Align eigenvalues of general matrices, and their vectors if there are any: each goes to golden's nearest.

    Vectors of equal values are any basis of their space, not an orthonormal one: what turns it is no unitary matrix.
    """
    order = _nearest(outputs[0], golden[0])
    turns: dict[int, Turn] = {0: lambda values: values.gather(-1, order)}
    if len(outputs) > 1 and outputs[1].numel():
        columns = order.unsqueeze(-2).expand(outputs[1].shape)
        turn = _spanning(outputs[1].gather(-1, columns), golden[1], _wide(golden[0]))
        turns[1] = lambda vectors: _product(vectors.gather(-1, columns), turn)
    return turns


def orthogonal_factor(outputs: Sequence[torch.Tensor], golden: Sequence[torch.Tensor]) -> Mapping[int, Turn]:
    """Align Q and R: the signs of Q's columns with those of R's rows, and the columns that only complete the basis."""
    (q, r), (golden_q, golden_r) = outputs, map(_wide, golden)
    if not q.numel():
        phases = _phase((_wide(r) * golden_r.conj()).sum(-1, keepdim=True))
        return {1: lambda rows: _times(rows, phases.conj())}
    overlap = _wide(q).mH @ golden_q
    rank = min(r.shape[-2:])
    own = torch.diag_embed(_phase(overlap.diagonal(dim1=-2, dim2=-1)[..., :rank]))
    turn = _extended(own, overlap)
    return {0: _columns_by(turn), 1: _rows_by(turn)}


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to(torch.complex128 if tensor.is_complex() else torch.float64)


def _phase(numbers: torch.Tensor) -> torch.Tensor:
    """Return numbers of modulus 1 with the given phases, signs of real ones; 1 for zero."""
    return torch.where(numbers == 0, torch.ones_like(numbers), numbers.sgn())


def equal_within(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return how far values (..., n) of matrices may be apart and equal to algorithms in a dtype, as (..., 1)."""
    return _EQUAL * float_format(dtype).unit_roundoff * values.abs().amax(-1, keepdim=True)


def _groups(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a number for each value of a matrix, the same for those that are equal in their dtype."""
    apart = values.diff(dim=-1).abs() > equal_within(values, dtype)
    return torch.cat([torch.zeros_like(apart[..., :1]), apart], -1)[..., : values.shape[-1]].cumsum(-1)


def _unitary(overlap: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    """Return the unitary matrices nearest to an overlap, block by block, that mix vectors of one group only."""
    own = torch.diag_embed(_phase(overlap.diagonal(dim1=-2, dim2=-1)))
    if bool((groups[..., 1:] != groups[..., :-1]).all()):
        return own
    same = groups.unsqueeze(-1) == groups.unsqueeze(-2)
    # The polar factor of a matrix of blocks is those of the blocks; what is undetermined must not mix them.
    return torch.where(same.sum(-1, keepdim=True) > 1, _polar(overlap * same) * same, own)


def _polar(overlap: torch.Tensor) -> torch.Tensor:
    """Return the unitary W Zᴴ of W S Zᴴ, which turns one orthonormal basis onto another (orthogonal Procrustes)."""
    left, _, right = torch.linalg.svd(overlap)
    return torch.matmul(left, right)


def _spanning(vectors: torch.Tensor, golden: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return what turns each vector onto golden's by a phase, or by others of an equal value without a new length.

    Where golden's own vectors of equal values are dependent, they span no space that another basis could have.
    """
    rounding = _EQUAL * float_format(vectors.dtype).unit_roundoff
    ours, right = _wide(vectors), _wide(golden)
    turn = torch.diag_embed(_phase((ours.conj() * right).sum(-2)))
    equal = (values.unsqueeze(-1) - values.unsqueeze(-2)).abs() <= equal_within(values, vectors.dtype).unsqueeze(-1)
    for *matrix, first in (equal.sum(-1) > 1).nonzero().tolist():
        at = tuple(matrix)
        group = equal[at][first].nonzero().squeeze(-1)
        space, reference = ours[at][:, group], right[at][:, group]
        if group[0] == first and torch.linalg.matrix_rank(reference, rtol=rounding) == len(group):
            weights = torch.linalg.pinv(space, rtol=rounding) @ reference
            lengths = (space @ weights).norm(dim=0)
            weights *= torch.where(lengths > 0, space.norm(dim=0) / lengths, 0)
            turn[at][group.unsqueeze(-1), group] = weights
    return turn


def _completed(both: torch.Tensor, alone: torch.Tensor, groups: torch.Tensor, zero: torch.Tensor) -> torch.Tensor:
    """Return the turn of one side's vectors: with the other side's, but alone where the singular value is zero."""
    rank = both.shape[-1]
    overlap = torch.where(zero.unsqueeze(-2), alone[..., :rank, :rank], both)
    return _extended(_unitary(overlap, groups), alone)


def _extended(turn: torch.Tensor, overlap: torch.Tensor) -> torch.Tensor:
    """Return a turn of the first columns, and that of the columns which complete the basis."""
    rank, size = turn.shape[-1], overlap.shape[-1]
    whole = torch.zeros_like(overlap)
    whole[..., :rank, :rank] = turn
    if size > rank:
        whole[..., rank:, rank:] = _polar(overlap[..., rank:, rank:])
    return whole


def _columns_by(turn: torch.Tensor) -> Turn:
    return lambda vectors: _product(vectors, turn)


def _rows_by(turn: torch.Tensor) -> Turn:
    return lambda rows: _product(rows.mT, turn.conj()).mT


def _product(vectors: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    """Multiply in double precision and round once; signs alone round nothing."""
    return (_wide(vectors) @ turn.to(_wide(vectors).dtype)).to(vectors.dtype)


def _times(vectors: torch.Tensor, phases: torch.Tensor) -> torch.Tensor:
    return (_wide(vectors) * phases).to(vectors.dtype)


def _nearest(values: torch.Tensor, golden: torch.Tensor) -> torch.Tensor:
    """Return which value belongs to each of golden's: the nearest pair first, each value once."""
    nearest = (_wide(golden).unsqueeze(-1) - _wide(values).unsqueeze(-2)).abs().argmin(-1)
    if torch.equal(nearest.sort(-1).values, torch.arange(values.shape[-1]).expand_as(nearest)):
        return nearest
    flat, right = _wide(values).reshape(-1, values.shape[-1]), _wide(golden).reshape(-1, golden.shape[-1])
    order = torch.empty_like(flat, dtype=torch.int64)
    for ours, theirs, places in zip(flat, right, order, strict=True):
        distances = (theirs.unsqueeze(-1) - ours).abs()
        for _ in range(len(ours)):
            row, column = divmod(int(distances.argmin()), len(ours))
            places[row] = column
            distances[row, :] = distances[:, column] = torch.inf
    return order.reshape(values.shape)


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


# A matrix is well-conditioned even where its factors are not: a backward stable factorization may give vectors far from
# golden's, but they are orthonormal and give the matrix back, to a few roundings (Higham, Accuracy and Stability of
# Numerical Algorithms, 2002, chapters 10, 18 and 19).
Products: TypeAlias = Callable[[Any, Any], Mapping[str, torch.Tensor]]
"""Gives, for a call's outputs and the golden run's as they were returned, products by name, in double precision."""


def relative_to_whole(products: Products, outputs: Any, golden: Any, returned: Any) -> Mapping[str, torch.Tensor]:
    """Return the products of outputs, to each of theirs the greatest element of golden's matrix added.

    So errors relate to a matrix as a whole: its own zeros, and those of the identity, are sums that cancel.
    """
    # A user's own function may have the name and other outputs.
    with contextlib.suppress(*REFUSALS):
        scales = {
            name: product.abs().amax((-2, -1), keepdim=True) for name, product in products(golden, returned).items()
        }
        return {name: product + scales[name] for name, product in products(outputs, returned).items()}
    return {}


def product_of_singular_vectors(outputs: Any, golden: Any) -> Mapping[str, torch.Tensor]:
    """Return UᴴU, VᴴV and U S Vᴴ; golden's own type says whether it holds V or its adjoint."""
    u, values, v = map(_wide, outputs)
    v = v if hasattr(golden, "V") else v.mH
    rank = values.shape[-1]
    whole = (u[..., :rank] * values.unsqueeze(-2)) @ v[..., :rank].mH
    return {"UhU": u.mH @ u, "VhV": v.mH @ v, "USVh": whole}


def product_of_eigenvectors(outputs: Any, golden: Any) -> Mapping[str, torch.Tensor]:
    """Return VᴴV and V L Vᴴ of a Hermitian matrix."""
    values, vectors = map(_wide, outputs)
    whole = (vectors * values.unsqueeze(-2)) @ vectors.mH
    return {"VhV": vectors.mH @ vectors, "VLVh": whole}


def product_of_orthogonal_factor(outputs: Any, golden: Any) -> Mapping[str, torch.Tensor]:
    """Return QᴴQ and QR."""
    q, r = map(_wide, outputs)
    return {"QhQ": q.mH @ q, "QR": q @ r} if q.numel() else {}


def product_of_cholesky_factor(outputs: Any, golden: Any) -> Mapping[str, torch.Tensor]:
    """Return the matrix that a lower or upper factor belongs to."""
    factor = _wide(outputs[0])
    is_upper = not factor.tril(-1).any()
    return {"LLh": factor.mH @ factor if is_upper else factor @ factor.mH}


def in_precision_of(output: torch.Tensor, product: torch.Tensor) -> torch.Tensor:
    """Return a product rounded to the precision of an output that it was made of."""
    real = output.dtype.to_real()
    return product.to(real.to_complex() if product.is_complex() else real)
