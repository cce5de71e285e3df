"""Calls of hyper-connections: the documentation's examples, with fewer tokens and features."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from tests.support.cann.draws import draw
from tests.support.cann.example_call import Call
from tests.support.cann.operators import hyper_connections

_STREAMS, _FEATURES = 4, 32


def _pre_tensors(generator: Generator, leading: tuple[int, ...], dtype: torch.dtype) -> tuple[Tensor, ...]:
    rows = _STREAMS * _STREAMS + 2 * _STREAMS
    x = draw(generator, *leading, _STREAMS, _FEATURES, dtype=dtype)
    phi = draw(generator, rows, _STREAMS * _FEATURES) / 8
    return x, phi, torch.tensor([1.1, 0.9, 1.05]), draw(generator, rows) * 0.1


def _pre(leading: tuple[int, ...], flag: int, dtype: torch.dtype, scaled: bool = True) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        gamma = {"gamma": draw(generator, _STREAMS, _FEATURES)} if scaled else {}
        # without its intermediate results the operator has no gradient
        return Call(_pre_tensors(generator, leading, dtype), {"out_flag": flag, **gamma}, flag == 1)

    return call


def _pre_backward(leading: tuple[int, ...], whole: bool) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        x, phi, alpha, bias = _pre_tensors(generator, leading, torch.bfloat16)
        gamma = draw(generator, _STREAMS, _FEATURES) if whole else None
        results = hyper_connections.npu_mhc_pre(x, phi, alpha, bias, gamma=gamma)
        _, h_post, _, inv_rms, h_mix, h_pre = results
        grads = [draw(generator, *result.shape, dtype=result.dtype) for result in results[:3]]
        options = {"gamma": gamma, "grad_x_post": draw(generator, *x.shape, dtype=x.dtype)} if whole else {}
        return Call((x, phi, alpha, *grads, inv_rms, h_mix, h_pre, h_post), options)

    return call


def _post(leading: tuple[int, ...], mixed: bool, backward: bool, dtype: torch.dtype) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        x = draw(generator, *leading, _STREAMS, _FEATURES, dtype=dtype)
        h_res = torch.rand(*leading, _STREAMS, _STREAMS, generator=generator) if mixed else None
        h_out = draw(generator, *leading, _FEATURES, dtype=dtype)
        rest = (x, h_res, h_out, torch.rand(*leading, _STREAMS, generator=generator))
        grads = (draw(generator, *x.shape, dtype=dtype),) if backward else ()
        return Call((*grads, *rest), {}, not backward and mixed)

    return call


def _sinkhorn(shape: tuple[int, ...], flag: int, **options: int) -> Callable[[Generator], Call]:
    return lambda generator: Call((draw(generator, *shape),), {"out_flag": flag, **options}, flag == 1)


EXAMPLES: dict[str, Callable[[Generator], Call]] = {
    "npu_mhc_pre": _pre((8,), 1, torch.bfloat16),
    "npu_mhc_pre-batched": _pre((2, 3), 1, torch.float16, scaled=False),
    "npu_mhc_pre-inference": _pre((4,), 0, torch.bfloat16),
    "npu_mhc_pre_backward": _pre_backward((2, 3), whole=True),
    "npu_mhc_pre_backward-plain": _pre_backward((5,), whole=False),
    "npu_mhc_post": _post((2, 3), mixed=True, backward=False, dtype=torch.float16),
    "npu_mhc_post-unmixed": _post((5,), mixed=False, backward=False, dtype=torch.bfloat16),
    "npu_mhc_post_backward": _post((5,), mixed=True, backward=True, dtype=torch.bfloat16),
    "npu_mhc_post_backward-unmixed": _post((2, 3), mixed=False, backward=True, dtype=torch.bfloat16),
    "npu_mhc_sinkhorn": _sinkhorn((1, 8, 4, 4), 0),
    "npu_mhc_sinkhorn-training": _sinkhorn((6, 6, 6), 1, num_iters=5),
}
