"""NVIDIA and AMD GPUs through ``torch.cuda``."""

from __future__ import annotations

from typing import Any

from pytest_msprobe.devices.accelerator import Accelerator
from pytest_msprobe.devices.math_modes import fp32_precision, on_off
from pytest_msprobe.errors import DeviceError


class CudaDevice(Accelerator):
    """GPUs; CUDA_VISIBLE_DEVICES chooses among them as in any torch program."""

    name = "cuda"

    def runtime(self) -> Any:
        """Return ``torch.cuda``. Raises DeviceError where this torch was built without it."""
        import torch

        if torch.version.cuda is None and torch.version.hip is None:
            raise DeviceError(f"device 'cuda': torch {torch.__version__} was built without CUDA; install a CUDA build")
        return torch.cuda

    def math_modes(self) -> dict[str, str]:
        """Return the switches of cuBLAS and cuDNN by name."""
        import torch

        matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
        return {
            "TF32 matmul": on_off(_uses_tf32(matmul, matmul)),
            "TF32 conv": on_off(_uses_tf32(getattr(cudnn, "conv", None), cudnn)),
            "fp16 reduced-precision reduction": on_off(matmul.allow_fp16_reduced_precision_reduction),
            "bf16 reduced-precision reduction": on_off(matmul.allow_bf16_reduced_precision_reduction),
            "cuDNN deterministic": on_off(cudnn.deterministic),
            "cuDNN benchmark": on_off(cudnn.benchmark),
        }


def _uses_tf32(switches: Any, legacy: Any) -> bool:
    # The older switch raises once the newer one was used.
    precision = fp32_precision(switches)
    return precision == "tf32" if precision else bool(legacy.allow_tf32)
