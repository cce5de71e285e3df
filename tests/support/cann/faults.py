"""Faults that ``SIMULATED_CANN_FAULTS`` plants by operator, as in ``exp=wrong,log@1=out-of-memory,mm=wrong-once:3``.

A process that ran operators names at its end the faults that none of its calls reached.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from tests.support.cann import runtime_calls

NONE = ""
KINDS = frozenset("missing fails fails-later out-of-memory loses-card kills hangs slow wrong wrong-once".split())
_AICORE_EXCEPTION = 507015


@dataclass
class Fault:
    """A fault of one operator: on one card or all of them, in each call or the one of a number, from 1."""

    kind: str
    card: int | None = None
    call: int | None = None
    has_struck: bool = field(default=False, init=False)
    _calls: int = field(default=0, init=False)

    def now(self, card: int) -> str:
        """Count a call on a card, and return the kind of fault that it has, if any."""
        if self.card not in (None, card):
            return NONE
        self._calls += 1
        if self.call not in (None, self._calls):
            return NONE
        self.has_struck = True
        return self.kind


def planted(operator: str) -> Fault | None:
    """Return the fault of an operator such as ``aten::exp`` or ``npu::npu_swiglu``."""
    return _all().get(operator.partition("::")[2])


def fail_before(kind: str, operator: str, card: int) -> None:
    """Do what a fault does in place of a result, or beforehand."""
    name = operator.partition("::")[2]
    function = "aclnn" + "".join(part.capitalize() for part in name.removeprefix("npu_").split("_"))
    match kind:
        case "missing":
            raise RuntimeError(
                f"{function} or {function}GetWorkspaceSize not in libopapi.so, or libopapi.so not found."
            )
        case "fails":
            raise RuntimeError(f"call {function} failed, detail:EZ9999: Inner Error! error code is 561000")
        case "fails-later":
            message = f"EZ9999: kernel {operator}: the aicore execution is abnormal"
            runtime_calls.fail_later(card, _AICORE_EXCEPTION, message)
        case "out-of-memory":
            torch.empty(1 << 50, dtype=torch.uint8, device=f"npu:{card}")
        case "loses-card":
            runtime_calls.lose_card(card)
            runtime_calls.wait_for(card)
        case "kills":
            signal.raise_signal(signal.SIGSEGV)
        case "hangs":
            runtime_calls.hang(card)


def do_after(kind: str, results: Any, card: int) -> None:
    """Do what a fault does to the results, or what was written where nothing is returned, or to the card's clock."""
    if kind == "slow":
        runtime_calls.keep_busy(card, float(os.environ.get("SIMULATED_CANN_SLOW", "1")))
    if kind in ("wrong", "wrong-once"):
        _spoil(results)


def _spoil(results: Any) -> None:
    """Make the first element of the first result clearly wrong: one more, twice as much, or with another bit."""
    from tests.support.cann.kernels.memory import seen_by_host

    first = next(leaf for leaf in tree_leaves(results) if isinstance(leaf, Tensor) and leaf.numel())
    host = seen_by_host(first)
    element = host.as_strided((), (), host.storage_offset())
    if element.element_size() == 1 and element.dtype != torch.bool:
        element.view(torch.uint8).bitwise_xor_(0x40)
    elif element.is_floating_point():
        element.add_(element.abs().clamp(min=1))
    else:
        element.add_(1)


@cache
def _all() -> dict[str, Fault]:
    text = os.environ.get("SIMULATED_CANN_FAULTS", "")
    faults = dict(_read(word) for word in text.split(",") if word)
    atexit.register(lambda: sys.stderr.writelines(_unreached(faults)))
    return faults


def _unreached(faults: dict[str, Fault]) -> Iterator[str]:
    """Yield a line for each fault that no call of this process reached."""
    for operator, fault in faults.items():
        if not fault.has_struck:
            yield (
                f"SIMULATED_CANN_FAULTS: no call of process {os.getpid()} reached {operator}={fault.kind}; "
                "operators have the names of torch's schemas, as _softmax\n"
            )


def _read(word: str) -> tuple[str, Fault]:
    """Return an operator and its fault. Raises ValueError for a kind of fault that there is not."""
    where, _, what = word.partition("=")
    operator, _, card = where.partition("@")
    kind, _, call = what.partition(":")
    if kind not in KINDS:
        raise ValueError(f"SIMULATED_CANN_FAULTS: {word!r} is none of {', '.join(sorted(KINDS))}")
    return operator, Fault(kind, int(card) if card else None, int(call) if call else None)
