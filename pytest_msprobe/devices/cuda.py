"""NVIDIA and AMD GPUs through ``torch.cuda``."""

from __future__ import annotations

import os
from typing import Any

from pytest_msprobe.devices.accelerator import Accelerator
from pytest_msprobe.devices.math_modes import ReducedPrecision, fp32_precision, on_off
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

        cudnn = torch.backends.cudnn
        stated = self.reduced_precision()
        return {
            "TF32 matmul": on_off(stated.matmul),
            "TF32 conv": on_off(stated.conv),
            "TF32 rnn": on_off(stated.rnn),
            "fp16 reduced-precision reduction": on_off(stated.fp16_reduction),
            "bf16 reduced-precision reduction": on_off(stated.bf16_reduction),
            "cuDNN deterministic": on_off(cudnn.deterministic),
            "cuDNN benchmark": on_off(cudnn.benchmark),
        }

    def reduced_precision(self) -> ReducedPrecision:
        """Return what cuBLAS and cuDNN may round, by torch's switches and the driver's."""
        import torch

        matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
        return ReducedPrecision(
            matmul=_operands(matmul, matmul),
            conv=_operands(getattr(cudnn, "conv", None), cudnn),
            rnn=_operands(getattr(cudnn, "rnn", None), cudnn),
            fp16_reduction=_is_allowed(matmul.allow_fp16_reduced_precision_reduction),
            bf16_reduction=_is_allowed(matmul.allow_bf16_reduced_precision_reduction),
            fp16_accumulation=bool(getattr(matmul, "allow_fp16_accumulation", False)),
        )


def _operands(switches: Any, legacy: Any) -> str:
    # 0 overrules every switch of torch; no other value does.
    is_overruled = os.environ.get("NVIDIA_TF32_OVERRIDE") == "0"
    return "tf32" if not is_overruled and _uses_tf32(switches, legacy) else ""


def _is_allowed(switch: Any) -> bool:
    # A torch that distinguishes reductions from splitting the inner dimension gives a pair.
    return bool(switch[0] if isinstance(switch, tuple) else switch)


def _uses_tf32(switches: Any, legacy: Any) -> bool:
    # The older switch raises once the newer one was used.
    precision = fp32_precision(switches)
    return precision == "tf32" if precision else bool(legacy.allow_tf32)
