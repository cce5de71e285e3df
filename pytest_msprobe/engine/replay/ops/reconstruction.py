"""Reconstruction of a matrix from its factors, which is well-conditioned even where the factors are not.

A backward stable factorization may give vectors far from golden's, but they are orthonormal and give the matrix back,
to a few roundings (Higham, Accuracy and Stability of Numerical Algorithms, 2002, chapters 10, 18 and 19).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch

from pytest_msprobe.engine.values.error_kinds import REFUSALS

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


def of_singular_vectors(outputs: Any, golden: Any) -> Mapping[str, torch.Tensor]:
    """Return UᴴU, VᴴV and U S Vᴴ; golden's own type says whether it holds V or its adjoint."""
    u, values, v = map(_wide, outputs)
    v = v if hasattr(golden, "V") else v.mH
    rank = values.shape[-1]
    whole = (u[..., :rank] * values.unsqueeze(-2)) @ v[..., :rank].mH
    return {"UhU": u.mH @ u, "VhV": v.mH @ v, "USVh": whole}


def of_eigenvectors(outputs: Any, golden: Any) -> Mapping[str, torch.Tensor]:
    """Return VᴴV and V L Vᴴ of a Hermitian matrix."""
    values, vectors = map(_wide, outputs)
    whole = (vectors * values.unsqueeze(-2)) @ vectors.mH
    return {"VhV": vectors.mH @ vectors, "VLVh": whole}


def of_orthogonal_factor(outputs: Any, golden: Any) -> Mapping[str, torch.Tensor]:
    """Return QᴴQ and QR."""
    q, r = map(_wide, outputs)
    return {"QhQ": q.mH @ q, "QR": q @ r} if q.numel() else {}


def of_cholesky_factor(outputs: Any, golden: Any) -> Mapping[str, torch.Tensor]:
    """Return the matrix that a lower or upper factor belongs to."""
    factor = _wide(outputs[0])
    is_upper = not factor.tril(-1).any()
    return {"LLh": factor.mH @ factor if is_upper else factor @ factor.mH}


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def in_precision_of(output: torch.Tensor, product: torch.Tensor) -> torch.Tensor:
    """Return a product rounded to the precision of an output that it was made of."""
    real = output.dtype.to_real()
    return product.to(real.to_complex() if product.is_complex() else real)
