"""Records ``tests/data/verdict_quality/lazy_bits`` and ``lazy_bits_values``: lazy bits, and sparse tensors.

Run it as ``python -m tests.corpus.record_lazy_bits FOLDER``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import torch
import torch.nn.functional as F

from msprobe_hooks import record
from tests.corpus.differentiated import backward

_TASKS: tuple[tuple[str, Literal["statistics", "tensor"]], ...] = (
    ("lazy_bits", "statistics"),
    ("lazy_bits_values", "tensor"),
)


def main() -> None:
    """Record the same calls with statistics, and with values."""
    for name, task in _TASKS:
        torch.manual_seed(0)
        with record(Path(sys.argv[1]) / name, level="L1", task=task):
            conjugated()
            negated()
            sparse()


def conjugated() -> None:
    """Operations on lazily conjugated tensors, and a gradient that arrives conjugated."""
    torch.matmul(_complex(6, 5), _complex(4, 5).mH)
    torch.mul(_complex(4, 5), _complex(4, 5).conj())
    torch.exp(_complex(4, 5).conj())
    torch.sum(_complex(8, 5).conj(), 0)
    torch.einsum("ij,kj->ik", _complex(3, 5), _complex(4, 5).conj())
    backward(torch.sin(_complex(4, 5).requires_grad_()).conj())


def negated() -> None:
    """Operations on lazily negated tensors: imaginary parts of conjugates."""
    torch.exp(_complex(4, 5).conj().imag)
    F.softmax(_complex(4, 5).conj().imag, -1)


def sparse() -> None:
    """Operations on sparse tensors, in which two elements have one place."""
    indices = torch.tensor([[0, 0, 1, 2, 4, 4], [1, 1, 2, 3, 0, 5]])
    matrix = torch.sparse_coo_tensor(indices, torch.randn(6), (5, 6))
    torch.mm(matrix, torch.randn(6, 3))
    torch.add(torch.randn(5, 6), matrix)
    matrix.to_dense()
    matrix.coalesce()


def _complex(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.complex64)


if __name__ == "__main__":
    main()
