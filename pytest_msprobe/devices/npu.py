"""Ascend NPUs through ``torch_npu``."""

from __future__ import annotations

import importlib.util
from typing import Any

from pytest_msprobe.devices.accelerator import Accelerator
from pytest_msprobe.devices.math_modes import on_off
from pytest_msprobe.errors import DeviceError


class NpuDevice(Accelerator):
    """NPUs; ASCEND_RT_VISIBLE_DEVICES chooses among them as in any torch_npu program."""

    name = "npu"

    def runtime(self) -> Any:
        """Return ``torch.npu``. Raises DeviceError that names the missing package or library."""
        import torch

        if not hasattr(torch, "npu"):
            _load_torch_npu()
        return torch.npu  # type: ignore[attr-defined,unused-ignore]

    def math_modes(self) -> dict[str, str]:
        """Return torch_npu's switches by name."""
        runtime = self.runtime()
        return {"HF32 matmul": on_off(runtime.matmul.allow_hf32), "HF32 conv": on_off(runtime.conv.allow_hf32)}


def _load_torch_npu() -> None:
    if importlib.util.find_spec("torch_npu") is None:
        raise DeviceError("device 'npu': the package torch_npu is not installed")
    try:
        import torch_npu  # noqa: F401
    except (ImportError, OSError, RuntimeError) as error:
        raise DeviceError(
            f"device 'npu': torch_npu is installed but cannot be loaded: {error}; "
            "source CANN's set_env.sh so that its libraries are found"
        ) from error
