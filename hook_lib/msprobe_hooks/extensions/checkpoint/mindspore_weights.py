"""The weights of MindSpore cells, parameter dicts and streams of tensors, one at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from mindspore import Tensor, nn
from numpy.typing import NDArray

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.extensions.checkpoint.weights_file import Digest, WrittenParameter, digest, matrix_shape
from msprobe_hooks.recording.array_statistics import measure

_BLOCK = 1 << 18
_WANTED = "a cell, a list of cells, a dict of parameters, or pairs of names and tensors"
_WIDER = ("float32", "float64")


class ArrayElements:
    """The elements of a matrix of numpy."""

    def __init__(self, matrix: NDArray[Any]) -> None:
        size = matrix.dtype.itemsize
        self._bits = np.ascontiguousarray(matrix).view(np.int16 if size > 1 else np.int8)
        self.rows, self.columns = matrix.shape
        self.digits = max(size // 2, 1)
        self.block = _BLOCK

    def read(self, start: int, stop: int) -> NDArray[np.float64]:
        """Return the digits of some rows in float64."""
        return self._bits[start:stop].astype(np.float64)

    def place(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the numbers."""
        return numbers

    def fetch(self, arrays: Sequence[NDArray[np.float64]]) -> NDArray[np.int64]:
        """Return the numbers one after another."""
        return np.concatenate(arrays).astype(np.int64)


class MindSporeWeight:
    """One tensor with its name; ``written`` says all of it that needs no values."""

    def __init__(self, name: str, tensor: Tensor, chunk: int) -> None:
        self._tensor = tensor
        dtype = str(tensor.dtype).lower().removeprefix("mindspore.")
        self.written = WrittenParameter(name, tuple(tensor.shape), dtype, chunk=chunk)

    def digests(self) -> list[Digest]:
        """Compute the digests of its matrices."""
        return self._digests(self._array())

    def rounded(self) -> list[Digest]:
        """Compute the digests that it has in bfloat16, none where it is no wider."""
        return self._digests(_rounded(self._array())) if self.written.dtype in _WIDER else []

    def statistics(self) -> dict[str, float | None]:
        """Measure max, min, mean and norm."""
        found = measure(np.asarray(self._tensor.float().asnumpy()))
        numbers = {name: getattr(found, name) for name in ("max", "min", "mean", "norm")}
        return {name: None if value is None else float(value) for name, value in numbers.items()}

    def bits(self) -> NDArray[Any]:
        """Return its elements as bytes."""
        return np.ascontiguousarray(self._array()).reshape(-1).view(np.uint8)

    def _array(self) -> NDArray[Any]:
        return np.asarray(self._tensor.asnumpy())

    def _digests(self, array: NDArray[Any]) -> list[Digest]:
        stack = array.reshape(matrix_shape(array.shape))
        return [digest(ArrayElements(each)) for each in stack]


def mindspore_weights(weights: Any) -> Iterator[MindSporeWeight | str]:
    """Yield each parameter, or the name of what is no tensor. Raises ConfigError."""
    cells = weights if isinstance(weights, (list, tuple)) and weights else [weights]
    if all(isinstance(each, nn.Cell) for each in cells):
        for number, cell in enumerate(cells):
            for parameter in cell.get_parameters():
                yield MindSporeWeight(parameter.name, parameter, number)
    elif isinstance(weights, (Mapping, Iterable)):
        for pair in weights.items() if isinstance(weights, Mapping) else weights:
            if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not isinstance(pair[0], str):
                raise ConfigError("weights", pair, _WANTED)
            yield MindSporeWeight(pair[0], pair[1], 0) if isinstance(pair[1], Tensor) else pair[0]
    else:
        raise ConfigError("weights", weights, _WANTED)


def _rounded(array: NDArray[Any]) -> NDArray[np.uint16]:
    """Return the bits of bfloat16 nearest to each element, of two that are as near the even one."""
    bits = array.astype(np.float32).view(np.uint32).astype(np.uint64)
    even = bits >> np.uint64(16) & np.uint64(1)
    rounded: NDArray[np.uint16] = ((bits + np.uint64(0x7FFF) + even) >> np.uint64(16)).astype(np.uint16)
    return rounded
