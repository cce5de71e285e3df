"""Defects in which a kernel reads memory for the elements of a tensor that it has not resolved."""

from __future__ import annotations

from typing import Any

import torch

from pytest_msprobe.engine.values.pytree import map_tensors
from tests.corpus.fault import Launch, variant


def _without_conj(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.conj() if tensor.is_conj() else tensor


def _without_neg(tensor: torch.Tensor) -> torch.Tensor:
    return torch._neg_view(tensor) if tensor.is_neg() else tensor


def _last_of_each_place(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_sparse or tensor.is_coalesced():
        return tensor
    indices, values = tensor._indices(), tensor._values()
    last = {tuple(place): number for number, place in enumerate(indices.t().tolist())}
    kept = torch.tensor([*last.values()])
    return torch.sparse_coo_tensor(indices[:, kept], values[kept], tensor.shape, check_invariants=False)


@variant("matmul mul exp sum einsum")
def conjugate_bit_ignored(launch: Launch) -> Any:
    """Memory of lazily conjugated arguments is read as it is."""
    return launch.run(*map_tensors(_without_conj, launch.args))


@variant("exp softmax")
def negative_bit_ignored(launch: Launch) -> Any:
    """Memory of lazily negated arguments is read as it is."""
    return launch.run(*map_tensors(_without_neg, launch.args))


@variant("sin", backward=True)
def conjugate_bit_of_arriving_gradient_ignored(launch: Launch) -> Any:
    """Memory of a gradient that arrives lazily conjugated is read as it is."""
    return launch.run(launch.args[0], map_tensors(_without_conj, launch.args[1]))


@variant("mm add to_dense coalesce")
def sparse_tensor_taken_for_coalesced(launch: Launch) -> Any:
    """Of elements of a sparse tensor that have one place, the last one counts."""
    return launch.run(*map_tensors(_last_of_each_place, launch.args))
