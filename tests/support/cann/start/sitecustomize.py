"""On PYTHONPATH, has a process's torch_npu compute by the simulated cards' kernels as soon as it is imported."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType


class _AfterTorchNpu(MetaPathFinder):
    """Finds torch_npu as it would have been found, with kernels to register once it is there."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "torch_npu":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _WithKernels(spec.loader)
        return spec


class _WithKernels(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        from tests.support.cann.kernels.registration import register

        register()


sys.meta_path.insert(0, _AfterTorchNpu())
