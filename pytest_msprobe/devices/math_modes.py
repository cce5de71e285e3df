"""The switches that change how a device computes without changing its dtypes."""

from __future__ import annotations

import os

import torch


def math_modes() -> list[str]:
    """Return the math modes of this process in words, those that depart from full precision first."""
    modes = []
    if torch.cuda.is_available():
        matmul = torch.backends.cuda.matmul
        modes.append(f"TF32 matmul {_on_off(matmul.allow_tf32)}, TF32 conv {_on_off(torch.backends.cudnn.allow_tf32)}")
        modes.append(f"fp16 reduced-precision reduction {_on_off(matmul.allow_fp16_reduced_precision_reduction)}")
    if hasattr(torch, "npu"):
        modes.append(
            f"HF32 matmul {_on_off(torch.npu.matmul.allow_hf32)}, HF32 conv {_on_off(torch.npu.conv.allow_hf32)}"
        )
    modes.append(f"float32 matmul precision {torch.get_float32_matmul_precision()}")
    modes.append(f"deterministic {_on_off(torch.are_deterministic_algorithms_enabled())}")
    override = os.environ.get("NVIDIA_TF32_OVERRIDE")
    return [*modes, f"NVIDIA_TF32_OVERRIDE={override}"] if override else modes


def _on_off(enabled: bool) -> str:
    return "on" if enabled else "off"
