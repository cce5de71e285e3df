"""Seeds of PyTorch, which make a run repeatable, and the random generators that a call can draw from."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from msprobe_hooks.recording.interposition import Interposition
from msprobe_hooks.recording.seeds import seed_python
from msprobe_hooks.torch.no_dispatch import NoDispatch

_PLACED = (Tensor, torch.device)

_silenced: list[Interposition] = []


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


def _silence_dropout() -> None:
    if not _silenced:
        _silenced.extend(Interposition(one, _with_p_zero) for one in (F.dropout, F.dropout1d, F.dropout2d, F.dropout3d))


def _with_p_zero(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    if len(args) > 1:
        return function(args[0], 0.0, *args[2:], **kwargs)
    return function(*args, **{**kwargs, "p": 0.0})


class Generators:
    """The states of the generators that a call with these arguments can draw from, as they were when this was made.

    Arguments may be devices.
    """

    def __init__(self, leaves: Sequence[Any]) -> None:
        with NoDispatch():
            self._before = [(generator, generator.get_state()) for generator in _generators(leaves)]

    def have_moved(self) -> bool:
        """Return whether numbers were drawn since."""
        with NoDispatch():
            return any(not torch.equal(generator.get_state(), state) for generator, state in self._before)

    def restore(self) -> None:
        """Undo what was drawn since."""
        with NoDispatch():
            for generator, state in self._before:
                generator.set_state(state)


def _generators(leaves: Sequence[Any]) -> Iterator[torch.Generator]:
    yield torch.default_generator
    yield from (leaf for leaf in leaves if isinstance(leaf, torch.Generator))
    devices = {leaf.device if isinstance(leaf, Tensor) else leaf for leaf in leaves if isinstance(leaf, _PLACED)}
    for device in devices:
        module: Any = getattr(torch, device.type, None)
        if device.index is not None and hasattr(module, "default_generators"):
            yield from module.default_generators[device.index :][:1]
        elif hasattr(module, "_get_default_mps_generator"):
            # torch names the one of a Mac apart; a backend without any draws its numbers on the host.
            yield module._get_default_mps_generator()
