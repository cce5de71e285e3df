"""Reduced precision of a device, as the device itself reports it: fewer bits than its dtypes have."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pytest_msprobe.errors import DeviceError
from pytest_msprobe.messages import not_one_of
from pytest_msprobe.results.outcomes import describe_error

if TYPE_CHECKING:
    from pytest_msprobe.devices.device import Device

MathMode = Literal["auto", "strict"]
"""Whether verdicts take into account the modes that the device says are on, or judge by the dtypes alone."""

#: Stored bits of the significand that float32 operands are rounded to, by the name of the format.
OPERAND_BITS = {"tf32": 10, "hf32": 11, "bf16": 7}

#: What reports call a mode, by the name that policies give it.
MODE_WORDS = {
    "tf32": "TF32",
    "hf32": "HF32",
    "bf16": "BF16 operands",
    "fp16_reduction": "fp16 reduced-precision reduction",
    "bf16_reduction": "bf16 reduced-precision reduction",
    "fp16_accumulation": "fp16 accumulation",
    "saturation": "saturation",
}

_OPERATIONS = ("matmul", "conv", "rnn")
_SWITCHES = ("fp16_reduction", "bf16_reduction", "fp16_accumulation", "saturation")


@dataclass(frozen=True, slots=True)
class ReducedPrecision:
    """The modes that are on; the defaults say that none is.

    ``matmul``, ``conv`` and ``rnn`` name the format that the float32 operands of products, convolutions and recurrent
    layers are rounded to: ``tf32``, ``hf32`` or ``bf16``, empty where they are not rounded. ``fp16_reduction`` and
    ``bf16_reduction`` let products of that dtype round partial sums over parts of the inner dimension,
    ``fp16_accumulation`` after every few products. ``saturation``: what overflows becomes the greatest finite value.

    Raises DeviceError for an unknown format.
    """

    matmul: str = ""
    conv: str = ""
    rnn: str = ""
    fp16_reduction: bool = False
    bf16_reduction: bool = False
    fp16_accumulation: bool = False
    saturation: bool = False

    def __post_init__(self) -> None:
        for operation in _OPERATIONS:
            name = getattr(self, operation)
            if name and name not in OPERAND_BITS:
                raise DeviceError(f"math mode {name!r} of {operation}: {not_one_of(name, OPERAND_BITS)}")

    def words(self) -> dict[str, str]:
        """Return the modes that are on, as reports name them."""
        formats = {operation: getattr(self, operation) for operation in _OPERATIONS}
        operands = {f"{MODE_WORDS[name]} {operation}": "on" for operation, name in formats.items() if name}
        return operands | {MODE_WORDS[name]: "on" for name in _SWITCHES if getattr(self, name)}


def reduced_precision(device: Device | None) -> ReducedPrecision:
    """Return the modes that a device says are on: by a method ``reduced_precision()``, which it need not have.

    Raises DeviceError where the method raises, or returns anything else.
    """
    own: Callable[[], object] | None = getattr(device, "reduced_precision", None)
    if own is None:
        return ReducedPrecision()
    method = f"device {getattr(device, 'name', '')!r}: reduced_precision()"
    try:
        stated = own()
    except Exception as error:
        # What a device of somebody else's raises is that device's matter, whatever it is.
        problem = str(error) if isinstance(error, DeviceError) else describe_error(error)
        raise DeviceError(f"{method} raises {problem}") from error
    if not isinstance(stated, ReducedPrecision):
        raise DeviceError(f"{method} returns a {type(stated).__name__}; expected a ReducedPrecision")
    return stated


def ascend_saturates() -> bool:
    """Return whether the environment puts Ascend's cards into saturation mode."""
    return os.environ.get("INF_NAN_MODE_ENABLE") == "0" or os.environ.get("INF_NAN_MODE_FORCE_DISABLE") == "1"


def read_modes(text: str) -> ReducedPrecision:
    """Read modes as ``conv=hf32,matmul=tf32,fp16_reduction``. Raises DeviceError that says what is allowed."""
    modes: dict[str, Any] = {}
    for word in filter(None, map(str.strip, text.split(","))):
        name, _, value = word.partition("=")
        if name not in (_OPERATIONS if value else _SWITCHES):
            allowed = [*(f"{operation}=FORMAT" for operation in _OPERATIONS), *_SWITCHES]
            raise DeviceError(f"math mode {word!r}: {not_one_of(word, allowed)}")
        modes[name] = value or True
    return ReducedPrecision(**modes)
