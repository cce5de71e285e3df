"""The switches that change how a device computes without changing its dtypes."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pytest_msprobe.devices.reduced_precision import reduced_precision

if TYPE_CHECKING:
    from pytest_msprobe.devices.device import Device

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
