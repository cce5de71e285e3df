"""Seeds of MindSpore, which make a run repeatable."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import mindspore
from mindspore import nn, ops
from mindspore.ops.function import nn_func

from msprobe_hooks.recording.seeds import seed_python


def seed_all(seed: int = 1234, mode: bool = False, rm_dropout: bool = True) -> None:
    """Seed Python, numpy and MindSpore; ``mode`` asks for deterministic kernels.

    ``rm_dropout`` lets every dropout keep all elements, compiled ones too, but what was compiled before this call, and
    primitives that were made before it outside of MindSpore's own cells. Raises ConfigError for a wrong argument.
    """
    seed_python(seed, mode=mode, rm_dropout=rm_dropout)
    os.environ["HCCL_DETERMINISTIC"] = str(mode).lower()
    mindspore.set_seed(seed)
    mindspore.set_deterministic(mode)
    if rm_dropout:
        _silence_dropout()


@functools.cache
def _silence_dropout() -> None:
    for primitive in (ops.Dropout, ops.Dropout2D, ops.Dropout3D):
        primitive.__init__ = _with_keep_prob_one(primitive.__init__)
    # Cells that were made before hold primitives that drop.
    for cell in (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d):
        cell.construct = _construct_unchanged
    # What mint's functions and cells call, each where it is looked up.
    for name in ("func_dropout_ext_op", "dropout2d_ext_op"):
        for module in (nn_func, ops.auto_generate):
            if hasattr(module, name):
                setattr(module, name, _unchanged)


def _with_keep_prob_one(make: Callable[..., None]) -> Callable[..., None]:
    # Functions too make a primitive for each call. A function in their place would have no source for the compiler.
    @functools.wraps(make)
    def make_keeping(primitive: Any, keep_prob: float = 0.5, *args: Any, **kwargs: Any) -> None:
        make(primitive, 1.0, *args, **kwargs)

    return make_keeping


def _construct_unchanged(self: nn.Cell, x: Any) -> Any:
    return x


def _unchanged(tensor: Any, *_: Any) -> Any:
    return tensor
