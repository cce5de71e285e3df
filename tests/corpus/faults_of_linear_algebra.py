"""Defects of factorizations and of what is solved with them."""

from __future__ import annotations

from typing import Any

import torch

from tests.corpus.fault import Launch, arrived, overwrite, plain_name, regraded, substitute, variant
from tests.corpus.kernels import rounded, through

SOLVERS = "inverse inv solve pinverse pinv lstsq"
VECTORS = "svd eigh qr"
VALUES = f"{SOLVERS} {VECTORS} cholesky svdvals eigvalsh det slogdet logdet matrix_exp"


def _changed(launch: Launch, *changes: Any) -> Any:
    """Return the outputs, each with its change in place; None leaves one as it is."""
    outputs = list(launch.run())
    for i, change in enumerate(changes):
        if change is not None:
            other = outputs[i].detach().clone()
            change(other)
            outputs[i] = substitute(outputs[i], other)
    return tuple(outputs)


def _vectors_at(launch: Launch) -> int:
    """Return where the eigenvectors, the left singular vectors or Q are among the outputs."""
    return 1 if plain_name(launch.api) == "eigh" else 0


@variant(VECTORS)
def one_element_of_a_vector_with_the_wrong_sign(launch: Launch) -> Any:
    """The greatest element of one vector is negated."""

    def change(vectors: torch.Tensor) -> None:
        column = vectors[..., vectors.shape[-1] // 2]
        greatest = column.abs().argmax(-1, keepdim=True)
        column.scatter_(-1, greatest, -column.gather(-1, greatest))

    return _changed(launch, *[None] * _vectors_at(launch), change)


@variant(VECTORS)
def vectors_of_unequal_values_swapped(launch: Launch) -> Any:
    """The first vector and the last stand in each other's place."""

    def change(vectors: torch.Tensor) -> None:
        first = vectors[..., 0].clone()
        vectors[..., 0] = vectors[..., -1]
        vectors[..., -1] = first

    return _changed(launch, *[None] * _vectors_at(launch), change)


@variant(VECTORS)
def vectors_not_orthogonal(launch: Launch) -> Any:
    """One vector leans towards its neighbour by a hundredth."""

    def change(vectors: torch.Tensor) -> None:
        vectors[..., 1] += 0.01 * vectors[..., 0]

    return _changed(launch, *[None] * _vectors_at(launch), change)


@variant(VECTORS)
def vectors_not_normalized(launch: Launch) -> Any:
    """One vector is a hundredth too long."""

    def change(vectors: torch.Tensor) -> None:
        vectors[..., 0] *= 1.01

    return _changed(launch, *[None] * _vectors_at(launch), change)


@variant("svd qr")
def sign_of_one_factor_alone(launch: Launch) -> Any:
    """A column of U or Q is negated, but not what it is multiplied with."""

    def change(vectors: torch.Tensor) -> None:
        vectors[..., 0] *= -1

    return _changed(launch, change)


@variant("svd eigh svdvals eigvalsh")
def values_in_the_other_order(launch: Launch) -> Any:
    """Singular values ascend and eigenvalues descend; the vectors stay."""
    name = plain_name(launch.api)
    if name in ("svdvals", "eigvalsh"):
        return overwrite(launch.run(), lambda values: values.flip(-1))
    return _changed(launch, *[None] * (name == "svd"), lambda values: values.copy_(values.flip(-1)))


@variant(f"{SOLVERS} svd eigh qr svdvals eigvalsh det logdet matrix_exp")
def factorized_in_tf32(launch: Launch) -> Any:
    """The matrix is rounded to TF32 first."""
    return launch.run(through(launch.args[0], lambda matrix: rounded(matrix, 10)))


@variant("inverse inv pinverse pinv matrix_exp")
def matrix_transposed(launch: Launch) -> Any:
    """The result is transposed."""
    return launch.run().mT


@variant("cholesky")
def other_triangle(launch: Launch) -> Any:
    """The upper factor stands where the lower one belongs."""
    return launch.run().mH


@variant("inverse inv solve")
def no_pivoting(launch: Launch) -> Any:
    """Elimination takes pivots as they come."""
    matrix = launch.args[0]
    work = torch.cat([matrix, torch.eye(matrix.shape[-1]).expand_as(matrix)], -1).detach()
    for k in range(matrix.shape[-1]):
        row = work[..., k : k + 1, :] / work[..., k : k + 1, k : k + 1]
        work = work - work[..., :, k : k + 1] * row
        work[..., k : k + 1, :] = row
    inverse = work[..., matrix.shape[-1] :]
    return overwrite(launch.run(), lambda values: inverse if values.shape == matrix.shape else inverse @ launch.args[1])


@variant("inverse inv")
def refined_once_from_bfloat16(launch: Launch) -> Any:
    """A bfloat16 inverse is refined by one step of Newton's method in place of three."""
    matrix = launch.args[0].detach()

    def refine(inverse: torch.Tensor) -> torch.Tensor:
        coarse = inverse.bfloat16().float()
        return coarse @ (2 * torch.eye(matrix.shape[-1]) - matrix @ coarse)

    return overwrite(launch.run(), refine)


@variant("lstsq pinv pinverse")
def normal_equations(launch: Launch) -> Any:
    """Least squares go by AᴴA, which squares the condition number."""
    matrix = launch.args[0].detach()
    inverse = torch.linalg.inv_ex(matrix.mH @ matrix).inverse @ matrix.mH
    if plain_name(launch.api) != "lstsq":
        return overwrite(launch.run(), lambda _: inverse)
    return _changed(launch, lambda solution: solution.copy_(inverse @ launch.args[1]))


@variant("det")
def exchanges_not_counted(launch: Launch) -> Any:
    """The determinant is the product of the pivots, whatever rows were exchanged."""
    return overwrite(launch.run(), lambda _: torch.linalg.lu_factor(launch.args[0].detach()).LU.diagonal().prod(-1))


@variant("slogdet")
def logarithm_to_base_two(launch: Launch) -> Any:
    """The logarithm of the determinant is that to base two."""
    return _changed(launch, None, lambda logarithm: logarithm.div_(0.6931472))


@variant("matrix_exp")
def series_cut_off(launch: Launch) -> Any:
    """The exponential's series ends after five terms, without scaling and squaring."""
    matrix = launch.args[0].detach()

    def series(_: torch.Tensor) -> torch.Tensor:
        term = total = torch.eye(matrix.shape[-1]).expand_as(matrix)
        for k in range(1, 5):
            term = term @ matrix / k
            total = total + term
        return total

    return overwrite(launch.run(), series)


@variant("pinv pinverse")
def small_singular_values_dropped(launch: Launch) -> Any:
    """Singular values below a fifth of the greatest count as zero."""
    return launch.run(rcond=0.2) if plain_name(launch.api) == "pinverse" else launch.run(rtol=0.2)


@variant("solve lstsq")
def last_right_hand_side_not_solved(launch: Launch) -> Any:
    """The last column of the solution is that of the one before."""

    def change(solution: torch.Tensor) -> torch.Tensor:
        solution[..., -1] = solution[..., -2]
        return solution

    if plain_name(launch.api) == "lstsq":
        return _changed(launch, change)
    return overwrite(launch.run(), change)


@variant(f"{SOLVERS} svd qr svdvals det matrix_exp", backward=True)
def gradient_of_a_matrix_transposed(launch: Launch) -> Any:
    """The gradients of square matrices are transposed."""
    return regraded(launch, lambda gradient: gradient.mT if gradient.shape[-1] == gradient.shape[-2] else gradient)


@variant(VALUES, backward=True)
def gradient_of_linear_algebra_in_bfloat16(launch: Launch) -> Any:
    """The gradients are rounded to bfloat16."""
    return regraded(launch, lambda gradient: gradient.bfloat16().to(gradient.dtype))


@variant("inverse inv solve", backward=True)
def gradient_of_an_inverse_with_the_wrong_sign(launch: Launch) -> Any:
    """The gradient of the matrix is +XᴴGXᴴ."""
    (of_matrix, *others), _ = arrived(launch)
    return (None if of_matrix is None else -of_matrix, *others)


@variant("cholesky eigh", backward=True)
def gradient_doubled_below_the_diagonal(launch: Launch) -> Any:
    """The gradient of a Hermitian matrix counts its lower triangle twice."""
    return regraded(launch, lambda gradient: gradient + gradient.tril(-1))
