"""NVIDIA and AMD GPUs through ``torch.cuda``."""

from __future__ import annotations

from typing import Any

from pytest_msprobe.devices.accelerator import Accelerator
from pytest_msprobe.devices.device import DeviceError


class CudaDevice(Accelerator):
    """GPUs; CUDA_VISIBLE_DEVICES chooses among them as in any torch program."""

    name = "cuda"

    def runtime(self) -> Any:
        """Return ``torch.cuda``. Raises DeviceError where this torch was built without it."""
        import torch

        if torch.version.cuda is None and torch.version.hip is None:
            raise DeviceError(f"device 'cuda': torch {torch.__version__} was built without CUDA; install a CUDA build")
        return torch.cuda
