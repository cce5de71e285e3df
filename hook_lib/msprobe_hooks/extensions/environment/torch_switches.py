"""The switches of torch that choose how it computes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any

import torch


def torch_switches() -> dict[str, str]:
    """Return torch's switches and math modes, versions below it and the card, each in words.

    Nothing is started for it: a card is named only where the program uses it already.
    """
    states = {name: _read(read) for name, read in _SWITCHES.items()}
    states |= {f"backends.{place}": _read(partial(_at, torch.backends, place)) for place in _BACKENDS}
    states |= _card()
    return {name: state for name, state in states.items() if state is not None}


def _read(read: Callable[[], Any]) -> str | None:
    try:
        return str(read())
    except Exception:
        # Another torch lacks the switch, or refuses the older spelling of one that was set by the newer.
        return None


_SWITCHES: dict[str, Callable[[], Any]] = {
    "default dtype": torch.get_default_dtype,
    "default device": torch.get_default_device,
    "float32 matmul precision": torch.get_float32_matmul_precision,
    "deterministic algorithms": torch.are_deterministic_algorithms_enabled,
    "deterministic algorithms warn only": torch.is_deterministic_algorithms_warn_only_enabled,
    "anomaly detection": torch.is_anomaly_enabled,
    "autocast": lambda: [f"{kind}: {torch.get_autocast_dtype(kind)}" for kind in _autocast_kinds()] or "off",
    "threads": torch.get_num_threads,
    "interop threads": torch.get_num_interop_threads,
    "CPU capability": torch.backends.cpu.get_cpu_capability,
    "CUDA": lambda: torch.version.cuda,
    "ROCm": lambda: torch.version.hip,
    "deterministic fill": lambda: torch.utils.deterministic.fill_uninitialized_memory,  # type: ignore[attr-defined]
}

_BACKENDS = (
    *("fp32_precision", "cuda.matmul.allow_tf32", "cuda.matmul.fp32_precision", "cuda.matmul.allow_fp16_accumulation"),
    "cuda.matmul.allow_fp16_reduced_precision_reduction",
    "cuda.matmul.allow_bf16_reduced_precision_reduction",
    *("cuda.preferred_linalg_library()", "cuda.flash_sdp_enabled()", "cuda.mem_efficient_sdp_enabled()"),
    *("cuda.math_sdp_enabled()", "cuda.cudnn_sdp_enabled()", "cuda.preferred_blas_library()"),
    *("cudnn.enabled", "cudnn.benchmark", "cudnn.deterministic", "cudnn.allow_tf32", "cudnn.version()"),
    *("cudnn.conv.fp32_precision", "cudnn.rnn.fp32_precision"),
    *("mkldnn.enabled", "mkldnn.deterministic", "mkldnn.matmul.fp32_precision", "mkldnn.conv.fp32_precision"),
)


_OF_CARDS: dict[str, tuple[str, ...]] = {"cuda": (), "npu": ("matmul.allow_hf32", "conv.allow_hf32")}


def _at(library: Any, place: str) -> Any:
    value = attrgetter(place.removesuffix("()"))(library)
    return value() if place.endswith("()") else value


def _autocast_kinds() -> list[str]:
    return [kind for kind in ("cpu", "cuda", "npu") if _is_autocast(kind)]


def _is_autocast(kind: str) -> bool:
    try:
        return torch.is_autocast_enabled(kind)
    except RuntimeError:
        return False


def _card() -> dict[str, str | None]:
    for kind in _OF_CARDS:
        library: Any = getattr(torch, kind, None)
        if library is not None and library.is_initialized():
            switches = {place: _read(partial(_at, library, place)) for place in _OF_CARDS[kind]}
            return {"card": _read(library.get_device_name), **switches}
    return {}
