from __future__ import annotations

from mindspore import Tensor, mint


def softmax(input: Tensor, dim: int = -1) -> Tensor:  # noqa: A002
    return mint.nn.functional.softmax(input, dim)


def relu(input: Tensor) -> Tensor:  # noqa: A002
    return mint.nn.functional.relu(input)
