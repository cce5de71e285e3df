"""Math modes: the switches that change how a device computes, and the reduced precision that it reports itself."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pytest_msprobe.errors import DeviceError, not_one_of
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


# Read by libraries below torch, or by torch before anyone can ask it.
_VARIABLES = (
    "NVIDIA_TF32_OVERRIDE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "CUBLAS_WORKSPACE_CONFIG",
    "DNNL_DEFAULT_FPMATH_MODE",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "HCCL_DETERMINISTIC",
    "LCCL_DETERMINISTIC",
    "INF_NAN_MODE_ENABLE",
    "INF_NAN_MODE_FORCE_DISABLE",
)
_FULL, _BY_BACKEND = "highest", "set by backend"
_UNREDUCED = (_FULL, _BY_BACKEND)
_REDUCED = ("tf32", "bf16")


def environment_modes() -> dict[str, str]:
    """Return the environment variables that are set and choose a math mode; known without torch."""
    return {name: os.environ[name] for name in _VARIABLES if os.environ.get(name)}


def math_modes(device: Device | None = None) -> dict[str, str]:
    """Return the math modes of this process by name: the device's own, torch's, and those of the environment.

    A device adds its own where it has a method ``math_modes() -> dict[str, str]``, and those that verdicts take into
    account by ``reduced_precision()``.
    """
    import torch

    own: Callable[[], Mapping[str, str]] = getattr(device, "math_modes", dict)
    on_cpu = {f"oneDNN {operation}": fp32_precision(switches) for operation, switches in _cpu_switches().items()}
    reduced = {name: precision for name, precision in on_cpu.items() if precision in _REDUCED}
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    deterministic = "warn only" if warns else on_off(torch.are_deterministic_algorithms_enabled())
    modes = {
        **own(),
        **reduced_precision(device).words(),
        "float32 matmul precision": _general_precision(),
        **reduced,
        "deterministic": deterministic,
        **environment_modes(),
    }
    # A device of another process reports the switches of that one.
    return modes | dict(own())


def on_off(enabled: object) -> str:
    """Return a switch's state in words."""
    return "on" if enabled else "off"


def is_full_precision() -> bool:
    """Return whether the process computes float32 on the CPU as float32 anyway."""
    if _general_precision() not in _UNREDUCED:
        return False
    return all(fp32_precision(switches) not in _REDUCED for switches in _cpu_switches().values())


@contextlib.contextmanager
def full_precision() -> Iterator[None]:
    """Compute float32 on the CPU as float32 within, whatever the process allows."""
    import torch

    general = _general_precision()
    reduced: dict[Any, str] = {}
    if general not in _UNREDUCED:
        torch.set_float32_matmul_precision(_FULL)
    for switches in _cpu_switches().values():
        precision = fp32_precision(switches)
        if precision in _REDUCED:
            reduced[switches] = precision
            switches.fp32_precision = "ieee"
    try:
        yield
    finally:
        for switches, precision in reduced.items():
            switches.fp32_precision = precision
        if general not in _UNREDUCED:
            torch.set_float32_matmul_precision(general)


def fp32_precision(switches: Any) -> str:
    """Return how float32 is computed by what ``switches`` of ``torch.backends`` govern: ``ieee``, ``tf32``, ``bf16``.

    ``none`` leaves the choice to torch; an empty text is returned where this torch has no such switch.
    """
    return getattr(switches, "fp32_precision", "")


def _general_precision() -> str:
    import torch

    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        # torch answers no longer once the newer switches, one for each backend and operation, were used.
        return _BY_BACKEND


@functools.cache
def _cpu_switches() -> dict[str, Any]:
    """Return the switches of oneDNN by operation, as far as this torch has them."""
    import torch

    operations = ("matmul", "conv", "rnn")
    switches_of = {operation: getattr(torch.backends.mkldnn, operation, None) for operation in operations}
    return {operation: switches for operation, switches in switches_of.items() if switches is not None}
