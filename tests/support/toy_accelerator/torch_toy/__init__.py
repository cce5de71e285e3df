"""The accelerator ``toy``: what a backend registers with torch, and no more. Its library is compiled by `process`."""

from __future__ import annotations

import os
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any

import torch


def _loaded(library: str) -> Any:
    spec = spec_from_file_location("_toy", library, loader=ExtensionFileLoader("_toy", library))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_backend = _loaded(os.environ["TOY_LIBRARY"])


class _Runtime(ModuleType):
    """``torch.toy``. Cards are chosen and waited for by the guard in C++, of which torch.accelerator knows."""

    @property
    def default_generators(self) -> list[torch.Generator]:
        return [_backend.default_generator(card) for card in range(self.device_count())]

    def device_count(self) -> int:
        return int(_backend.count())

    def is_available(self) -> bool:
        return self.device_count() > 0

    def manual_seed_all(self, seed: int) -> None:
        for generator in self.default_generators:
            generator.manual_seed(seed)

    def get_rng_state(self, device: object = "toy") -> torch.Tensor:
        return self._generator(device).get_state()

    def set_rng_state(self, state: torch.Tensor, device: object = "toy") -> None:
        self._generator(device).set_state(state)

    def _generator(self, device: Any) -> torch.Generator:
        index = device if isinstance(device, int) else torch.device(device).index
        return self.default_generators[torch.accelerator.current_device_index() if index is None else index]

    def take_counts(self) -> dict[str, int]:
        """Return how often each thing was done since this was last asked, as ``backend.cpp`` names it."""
        return dict(_backend.take_counts())

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]

    def _is_in_bad_fork(self) -> bool:
        return False


torch.utils.rename_privateuse1_backend("toy")
torch._register_device_module("toy", _Runtime("torch.toy"))
torch.utils.generate_methods_for_privateuse1_backend()
