"""Calls of the LSTM and the GRU: op-plugin's tests' shapes, and their modes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from tests.support.cann.example_call import Call
from tests.support.cann.operators import recurrent

_INPUT, _HIDDEN, _BATCH, _STEPS = 10, 5, 3, 5


def _draw(generator: Generator, *shape: int, dtype: torch.dtype = torch.float16) -> Tensor:
    return (torch.rand(shape, generator=generator) * 2 - 1).to(dtype)


def _lstm_tensors(generator: Generator, dtype: torch.dtype) -> tuple[Tensor, ...]:
    shapes = ((_STEPS, _BATCH, _INPUT), (_INPUT + _HIDDEN, 4 * _HIDDEN), (4 * _HIDDEN,))
    states = ((1, _BATCH, _HIDDEN), (1, _BATCH, _HIDDEN))
    return tuple(_draw(generator, *shape, dtype=dtype) for shape in (*shapes, *states))


def _lengths() -> tuple[Tensor, Tensor]:
    """Return how many sequences have each step, and the mask of that."""
    sizes = torch.tensor([3, 3, 2, 1, 1])
    mask = (torch.arange(_BATCH) < sizes[:, None])[..., None].expand(-1, -1, _HIDDEN)
    return sizes, mask.int().contiguous()


def _lstm(dtype: torch.dtype, packed: bool = False, backwards: bool = False) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        x, weight, bias, h, c = _lstm_tensors(generator, dtype)
        mask = _lengths()[1] if packed else torch.zeros(0, dtype=torch.int32)
        plain = not (packed or backwards)
        return Call((x, weight, bias, mask, h, c, True, 1, 0.0, True, False, False, packed, backwards), {}, plain)

    return call


def _lstm_data(backwards: bool) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        x, weight, bias, h, c = _lstm_tensors(generator, torch.float16)
        sizes, mask = _lengths()
        switches = (True, 1, 0.0, True, False, False, True, backwards)
        return Call((x, sizes, weight, bias, mask, h, c, *switches), {}, True)

    return call


def _lstm_backward(which: tuple[bool, bool, bool]) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        x, weight, bias, h, c = _lstm_tensors(generator, torch.float32)
        results = recurrent.npu_lstm(x, weight, bias, x, h, c, True, 1, 0.0, True, False, False, False, False)
        grads = [_draw(generator, _STEPS, _BATCH, _HIDDEN, dtype=torch.float32) if on else None for on in which]
        return Call((*grads, x, weight, bias, h, c, *results))

    return call


def _lstm_data_backward(backwards: bool) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        x, weight, bias, h, c = _lstm_tensors(generator, torch.float32)
        sizes, mask = _lengths()
        results = recurrent.npu_lstm(x, weight, bias, mask, h, c, True, 1, 0.0, True, False, False, True, backwards)
        grads = [_draw(generator, _STEPS, _BATCH, _HIDDEN, dtype=torch.float32) for _ in range(3)]
        return Call((*grads, x, sizes, weight, bias, h, c, *results, backwards))

    return call


def _cell(biases: bool) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        shapes = ((3, 8), (8, 28), (7, 28), (3, 7), (3, 7), *([(28,), (28,)] if biases else []))
        return Call(tuple(_draw(generator, *shape) for shape in shapes), {}, True)

    return call


def _cell_backward(generator: Generator) -> Call:
    shapes = ((3, 8), (8, 28), (7, 28), (3, 7), (3, 7), (28,), (28,))
    tensors = [_draw(generator, *shape, dtype=torch.float32) for shape in shapes]
    grads = [_draw(generator, *shape, dtype=torch.float32) for shape in ((1, 3, 7), (3, 7), (3, 7))]
    return Call((*grads, *tensors[:5], *recurrent.npu_lstm_cell(*tensors)))


_GRU_SWITCHES = (True, 1, 0.0, True, False, False)


def _gru_tensors(generator: Generator, dtype: torch.dtype) -> tuple[Tensor, ...]:
    shapes = ((6, 3, 10), (1, 3, 6), (10, 18), (6, 18), (18,), (18,))
    return tuple(_draw(generator, *shape, dtype=dtype) for shape in shapes)


def _gru(dtype: torch.dtype, flat: bool = False) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        x, h, *weights = _gru_tensors(generator, dtype)
        return Call((x, h[0] if flat else h, *weights, torch.tensor([6], dtype=torch.int32), *_GRU_SWITCHES), {}, True)

    return call


def _gru_backward(generator: Generator) -> Call:
    x, h, *weights = _gru_tensors(generator, torch.float32)
    length = torch.tensor([6], dtype=torch.int32)
    results = recurrent.npu_gru(x, h, *weights, length, *_GRU_SWITCHES)
    grads = [_draw(generator, 6, 3, 6, dtype=torch.float32) for _ in range(2)]
    return Call((*grads, x, *weights, length, h, *results))


def _stack(
    dtype: torch.dtype, layers: int, both: bool, biases: bool = True, train: bool = True, batch_first: bool = False
) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        ways, width, params = 1 + both, 8, []
        for layer in range(layers):
            size = width if layer == 0 else 4 * ways
            for _ in range(ways):
                shapes = ((16, size), (16, 4), *([(16,), (16,)] if biases else []))
                params += [_draw(generator, *shape, dtype=dtype) for shape in shapes]
        x = _draw(generator, *((2, 3) if batch_first else (3, 2)), width, dtype=dtype)
        hx = [_draw(generator, layers * ways, 2, 4, dtype=dtype) for _ in range(2)]
        return Call((x, hx, params, biases, layers, 0.0, train, both), {"batch_first": batch_first})

    return call


def _stack_backward(both: bool) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        forward = _stack(torch.float32, 2, both)(generator)
        results = recurrent._lstm_npu(*forward.args, **forward.kwargs)
        grads = [_draw(generator, *result.shape, dtype=torch.float32) for result in results[:3]]
        return Call((*grads, *forward.args[:3], *results[3:], *forward.args[3:]), forward.kwargs)

    return call


EXAMPLES: dict[str, Callable[[Generator], Call]] = {
    "npu_lstm": _lstm(torch.float16),
    "npu_lstm-float32": _lstm(torch.float32),
    "npu_lstm-backwards": _lstm(torch.float32, backwards=True),
    "npu_lstm-packed": _lstm(torch.float16, packed=True),
    "npu_lstm_data": _lstm_data(False),
    "npu_lstm_data-backwards": _lstm_data(True),
    "npu_lstm_backward": _lstm_backward((True, True, True)),
    "npu_lstm_backward-of_the_state": _lstm_backward((False, True, False)),
    "npu_lstm_data_backward": _lstm_data_backward(False),
    "npu_lstm_data_backward-backwards": _lstm_data_backward(True),
    "_lstm_npu": _stack(torch.float32, 2, True),
    "_lstm_npu-inference": _stack(torch.float16, 2, False, biases=False, train=False, batch_first=True),
    "_lstm_npu_backward": _stack_backward(True),
    "_lstm_npu_backward-one_direction": _stack_backward(False),
    "npu_lstm_cell": _cell(True),
    "npu_lstm_cell-without_bias": _cell(False),
    "npu_lstm_cell_backward": _cell_backward,
    "npu_gru": _gru(torch.float16),
    "npu_gru-float32": _gru(torch.float32),
    "npu_gru-as_torch_calls_it": _gru(torch.float32, flat=True),
    "npu_gru_backward": _gru_backward,
}
