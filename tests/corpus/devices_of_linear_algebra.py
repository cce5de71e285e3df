"""Devices that factorize and solve another way, with errors that a backward stable algorithm may have."""

from __future__ import annotations

from typing import Any

import torch

from tests.corpus.fault import Launch, overwrite, plain_name, variant

SOLVERS = "inverse inv solve pinverse pinv lstsq det slogdet logdet"
VALUES = f"{SOLVERS} svd eigh qr cholesky svdvals eigvalsh matrix_exp cholesky_solve solve_triangular cond matrix_power"
VECTORS = "svd eigh qr"


def _is_float32(launch: Launch) -> bool:
    return isinstance(launch.args[0], torch.Tensor) and launch.args[0].dtype == torch.float32


def _rounded(output: Any) -> Any:
    """Return results that were computed in float64 as those of float32."""
    if isinstance(output, tuple):
        return tuple(map(_rounded, output))
    return output.float() if output.dtype == torch.float64 else output


def _doubled(argument: Any) -> Any:
    return argument.double() if isinstance(argument, torch.Tensor) and argument.is_floating_point() else argument


@variant(VALUES)
def linear_algebra_in_float64(launch: Launch) -> Any:
    """Matrices are factorized in float64, gradients included, and results rounded once."""
    return _rounded(launch.run(*map(_doubled, launch.args))) if _is_float32(launch) else launch.run()


def _inputs_rounded_again(launch: Launch, seed: int) -> Any:
    """Run on inputs of which each element is one rounding unit off, up or down: a backward error of one unit."""
    generator = torch.Generator().manual_seed(seed)

    def moved(argument: Any) -> Any:
        wide = _doubled(argument)
        if wide is argument:
            return argument
        signs = torch.randint(0, 2, wide.shape, generator=generator) * 2 - 1
        return wide * (1 + signs * 2.0**-24)

    return _rounded(launch.run(*map(moved, launch.args))) if _is_float32(launch) else launch.run()


@variant(VALUES)
def one_backward_error(launch: Launch) -> Any:
    """Results are right for inputs that are one rounding unit off."""
    return _inputs_rounded_again(launch, 11)


@variant(VALUES)
def another_backward_error(launch: Launch) -> Any:
    """Results are right for inputs that are one rounding unit off, by another draw."""
    return _inputs_rounded_again(launch, 12)


@variant(VECTORS)
def other_signs(launch: Launch) -> Any:
    """Every second vector is the negative one, with what it is multiplied with."""
    output = launch.run()
    name = plain_name(launch.api)
    vectors = output[1] if name == "eigh" else output[0]
    signs = torch.ones(vectors.shape[-1])
    signs[::2] = -1
    if name == "eigh":
        return output[0], vectors * signs
    if name == "qr":
        return vectors * signs, output[1] * signs[: output[1].shape[-2], None]
    first = signs[: output[1].shape[-1]]
    if not hasattr(output, "Vh"):
        return vectors * signs, output[1], output[2] * first
    rest = torch.ones(output[2].shape[-2] - len(first))
    return vectors * signs, output[1], output[2] * torch.cat([first, rest])[:, None]


@variant("inverse inv solve pinverse pinv lstsq det slogdet logdet qr svd svdvals")
def rows_reversed(launch: Launch) -> Any:
    """Matrices are factorized with their rows from the last to the first."""
    matrix, name = launch.args[0], plain_name(launch.api)
    turned = matrix.flip(-2)
    if name in ("inverse", "inv", "pinverse", "pinv"):
        return launch.run(turned).flip(-1)
    if name in ("solve", "lstsq"):
        return launch.run(turned, launch.args[1].flip(-2))
    output = launch.run(turned)
    sign = (-1) ** (matrix.shape[-1] // 2)
    if name == "slogdet":
        return output[0] * sign, output[1]
    if name == "svd":
        return output[0].flip(-2), output[1], output[2]
    if name == "qr":
        return output[0].flip(-2), output[1]
    if name == "logdet":
        return torch.linalg.slogdet(turned)[1]
    return output * sign if name == "det" else output


@variant("inverse inv solve pinverse pinv")
def solved_by_qr(launch: Launch) -> Any:
    """Systems are solved by Q and R in place of L and U; gradients follow the usual way."""
    matrix = launch.args[0]
    if matrix.shape[-1] != matrix.shape[-2]:
        return launch.run()
    q, r = torch.linalg.qr(matrix)
    right = launch.args[1] if plain_name(launch.api) == "solve" else torch.eye(matrix.shape[-1]).expand_as(matrix)
    solution = torch.linalg.solve_triangular(r, q.mH @ right, upper=True).detach()
    return overwrite(launch.run(), lambda _: solution)


@variant("svd svdvals")
def factorized_transposed(launch: Launch) -> Any:
    """The transpose is decomposed."""
    matrix = launch.args[0]
    if plain_name(launch.api) == "svdvals":
        return launch.run(matrix.mT)
    output = launch.run(matrix.mT)
    return (output[2].mH, output[1], output[0].mH) if hasattr(output, "Vh") else (output[2], output[1], output[0])


@variant("cholesky")
def column_by_column(launch: Launch) -> Any:
    """Cholesky's factor is computed one column after the other; gradients follow the usual way."""
    matrix = launch.args[0].detach()
    columns: list[torch.Tensor] = []
    for k in range(matrix.shape[-1]):
        rest = matrix[..., :, k] - sum((each * each[..., k : k + 1] for each in columns), torch.zeros(()))
        column = rest / rest[..., k : k + 1].sqrt()
        below = torch.arange(matrix.shape[-1]) >= k
        columns.append(torch.where(below, column, torch.zeros(())))
    return overwrite(launch.run(), lambda _: torch.stack(columns, -1))
