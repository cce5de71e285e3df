"""A call of an operator by which its golden definition, the simulated card's kernel and a check are tried."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Call:
    """Arguments of an operator, tensors on the CPU in its dtypes; ``differentiate`` where gradients flow."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    differentiate: bool = False
