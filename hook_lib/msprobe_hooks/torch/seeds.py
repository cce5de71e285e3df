"""Seeds of PyTorch, which make a run repeatable."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from msprobe_hooks.recording.interposition import Interposition
from msprobe_hooks.recording.seeds import seed_python


def seed_everything(seed: int, mode: bool, rm_dropout: bool) -> None:
    """Seed Python, numpy and torch, and ask for deterministic kernels. Raises ConfigError for a wrong argument."""
    seed_python(seed, mode=mode, rm_dropout=rm_dropout)
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    os.environ["HCCL_DETERMINISTIC"] = str(mode)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(mode)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    if rm_dropout:
        _silence_dropout()


_silenced: list[Interposition] = []


def _silence_dropout() -> None:
    if not _silenced:
        _silenced.extend(Interposition(one, _with_p_zero) for one in (F.dropout, F.dropout1d, F.dropout2d, F.dropout3d))


def _with_p_zero(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    if len(args) > 1:
        return function(args[0], 0.0, *args[2:], **kwargs)
    return function(*args, **{**kwargs, "p": 0.0})
