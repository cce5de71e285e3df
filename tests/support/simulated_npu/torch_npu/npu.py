"""``torch.npu``: the runtime of the simulated cards, with the functions and switches that torch_npu's has."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch

_runtime = torch.ops.npu_runtime

is_available = is_initialized = lambda: device_count() > 0


def device_count() -> int:
    return int(_runtime.card_count())


def current_device() -> int:
    return int(_runtime.current_card())


def set_device(device: int | str | torch.device) -> None:
    _runtime.select_card(_index(device))


class device:  # noqa: N801
    """The card within a ``with`` block."""

    def __init__(self, device: int | str | torch.device) -> None:
        self._index = _index(device)

    def __enter__(self) -> None:
        self._former = current_device()
        set_device(self._index)

    def __exit__(self, *_: object) -> None:
        set_device(self._former)


def synchronize(device: int | str | torch.device | None = None) -> None:
    _runtime.wait_for_card()


def get_device_name(device: int | str | torch.device | None = None) -> str:
    """Return a name that tells which of all cards it is, whatever ASCEND_RT_VISIBLE_DEVICES makes of its index."""
    visible = os.environ.get("ASCEND_RT_VISIBLE_DEVICES")
    index = _index(device)
    return f"Simulated card {visible.split(',')[index] if visible else index}"


# Memory. Nothing is kept for reuse, so what is reserved is what tensors hold.


def memory_allocated(device: int | str | torch.device | None = None) -> int:
    return int(_runtime.allocated_bytes(_index(device)))


memory_reserved = memory_allocated


def mem_get_info(device: int | str | torch.device | None = None) -> tuple[int, int]:
    total = int(_runtime.total_bytes())
    return total - memory_allocated(device), total


def empty_cache() -> None:
    pass


# Random numbers: each card draws its own.

default_generators = tuple(_runtime.default_generator(card) for card in range(device_count()))


def manual_seed(seed: int) -> None:
    default_generators[current_device()].manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    for generator in default_generators:
        generator.manual_seed(seed)


def get_rng_state(device: int | str | torch.device = "npu") -> torch.Tensor:
    return default_generators[_index(device)].get_state()


def set_rng_state(state: torch.Tensor, device: int | str | torch.device = "npu") -> None:
    default_generators[_index(device)].set_state(state)


def _is_in_bad_fork() -> bool:
    return False


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.float16, torch.bfloat16, torch.float32]


# Switches, with torch_npu's defaults.

_options = {"matmul": False, "conv": True, "jit_compile": False, "internal_format": True}


class _AllowHf32:
    def __init__(self, operation: str) -> None:
        vars(self)["operation"] = operation

    def __getattr__(self, name: str) -> Any:
        # torch_npu answers None to every other name.
        return _options[self.operation] if name == "allow_hf32" else None

    def __setattr__(self, name: str, value: bool) -> None:
        if name == "allow_hf32":
            _options[self.operation] = value
            _runtime.set_hf32(_options["matmul"], _options["conv"])


class _Config:
    """Settings that torch_npu takes and does not tell."""

    def __setattr__(self, name: str, value: bool) -> None:
        if name == "allow_internal_format":
            _options["internal_format"] = value


matmul, conv, config = _AllowHf32("matmul"), _AllowHf32("conv"), _Config()


def set_compile_mode(jit_compile: bool = False) -> None:
    synchronize()
    _options["jit_compile"] = jit_compile


def is_jit_compile_false() -> bool:
    return not _options["jit_compile"]


# Dumps of kernels, as CANN names the files that it writes; what would be in them is not simulated.


def init_dump() -> None:
    _dump.clear()


def set_dump(config: str) -> None:
    _dump.append(Path(json.loads(Path(config).read_text())["dump"]["dump_path"]))
    _runtime.set_dumping(True)


def finalize_dump() -> None:
    folder = _dump.pop() / "20260101000000" / str(current_device())
    folder.mkdir(parents=True, exist_ok=True)
    for task, operation in enumerate(_runtime.set_dumping(False)):
        kind = operation.partition("::")[2]
        (folder / f"{kind}.{kind}_{task}.{task}.0.1767225600000000").touch()


_dump: list[Path] = []


# What a test wants to know.


def host_copies() -> int:
    """Return how many tensors, or numbers of one, left the cards so far; what kernels do does not count."""
    return int(_runtime.host_copies())


def _index(device: int | str | torch.device | None) -> int:
    if isinstance(device, int):
        return device
    index = None if device is None else torch.device(device).index
    return current_device() if index is None else index
