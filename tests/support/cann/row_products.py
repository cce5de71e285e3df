"""Products of rows with the weight of the group of each, computed one row at a time."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

ACTIVATIONS = {
    "relu": lambda x: max(x, 0.0),
    "gelu_tanh": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "fastgelu": lambda x: x / (1 + math.exp(-1.702 * x)),
    "silu": lambda x: x / (1 + math.exp(-x)),
}


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def close(actual: Tensor, expected: object) -> None:
    np.testing.assert_allclose(actual.detach().numpy(), np.asarray(expected), rtol=1e-12, atol=1e-13)


def row_by_row(x: Tensor, weight: Tensor, bias: Tensor, owner: list[int]) -> np.ndarray:
    return np.stack([x[i].numpy() @ weight[g].numpy() + bias[g].numpy() for i, g in enumerate(owner)])


X, WEIGHT, BIAS = draw(5, 4), draw(3, 4, 2, seed=1), draw(3, 2, seed=2)
# The second group is empty.
OWNER, ENDS, SIZES = [0, 0, 2, 2, 2], [2, 2, 5], [2, 0, 3]
