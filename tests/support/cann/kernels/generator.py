"""What operators draw: from the card's own generator, whose seed and offset make the CPU's for one call."""

from __future__ import annotations

import threading
from typing import Any

import torch

from tests.support.cann.kernels.launch import Compute

_lock = threading.Lock()
#: By how much a call moves a generator on, as Philox counts.
_STEP = 4


def drawn_from_card(operator: torch._ops.OpOverload) -> Compute:
    """Return what computes an operator that draws, by numbers of the card's generator or of the one that is given."""
    takes_generator = any(argument.name == "generator" for argument in operator._schema.arguments)

    def compute(*args: Any, **kwargs: Any) -> Any:
        given = kwargs.get("generator") if takes_generator else None
        with _lock:
            host = torch.default_generator
            former = host.get_state()
            host.manual_seed(_seed(given))
            try:
                return operator(*args, **(kwargs | {"generator": None} if takes_generator else kwargs))
            finally:
                host.set_state(former)

    return compute


def next_seed() -> int:
    """Return a seed that the current card's generator has not given before."""
    return _seed(None)


def _seed(given: torch.Generator | None) -> int:
    card = torch.npu.current_device()  # type: ignore[attr-defined,unused-ignore]
    generator = given or torch.npu.default_generators[card]  # type: ignore[attr-defined,unused-ignore]
    if generator.device.type == "cpu":
        return int(torch.randint(1 << 62, (), generator=generator))
    offset = generator.get_offset()  # type: ignore[attr-defined,unused-ignore]
    generator.set_offset(offset + _STEP)  # type: ignore[attr-defined,unused-ignore]
    return hash((generator.initial_seed(), offset)) & (1 << 62) - 1
