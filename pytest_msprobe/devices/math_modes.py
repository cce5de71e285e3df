"""The switches that change how a device computes without changing its dtypes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

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
)


def environment_modes() -> dict[str, str]:
    """Return the environment variables that are set and choose a math mode; known without torch."""
    return {name: os.environ[name] for name in _VARIABLES if os.environ.get(name)}


def math_modes(device: Device | None = None) -> dict[str, str]:
    """Return the math modes of this process by name: the device's own, torch's, and those of the environment.

    A device tells its own where it has a method ``math_modes() -> dict[str, str]``.
    """
    import torch

    own: Callable[[], Mapping[str, str]] = getattr(device, "math_modes", dict)
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    deterministic = "warn only" if warns else on_off(torch.are_deterministic_algorithms_enabled())
    return {
        **own(),
        "float32 matmul precision": _matmul_precision(),
        **_cpu_modes(),
        "deterministic": deterministic,
        **environment_modes(),
    }


def on_off(enabled: object) -> str:
    """Return a switch's state in words."""
    return "on" if enabled else "off"


def _matmul_precision() -> str:
    import torch

    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        # torch answers no longer once the newer switches, one for each backend and operation, were used.
        return "set by backend"


def _cpu_modes() -> dict[str, str]:
    """Return where oneDNN may round float32 to a shorter dtype; nothing for torch that has no such switches."""
    import torch

    modes = {}
    for operation in ("matmul", "conv", "rnn"):
        precision = fp32_precision(getattr(torch.backends.mkldnn, operation, None))
        if precision in ("tf32", "bf16"):
            modes[f"oneDNN {operation}"] = precision
    return modes


def fp32_precision(switches: Any) -> str | None:
    """Return how float32 is computed by what ``switches`` of ``torch.backends`` govern: ``ieee``, ``tf32``, ``bf16``.

    ``none`` leaves the choice to torch; None is returned where this torch has no such switch.
    """
    precision: str | None = getattr(switches, "fp32_precision", None)
    return precision
