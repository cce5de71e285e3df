"""Start of MindSpore in this process, and of MindTorch: a package of its own, or a ``torch`` that comes before PyTorch.

PyTorch is needed as well: it computes the golden results. Nothing is imported to find either.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

from pytest_msprobe.errors import DeviceError


def start() -> None:
    """Import MindSpore and make each call wait for its kernels, so that an error belongs to the call that made it.

    Raises DeviceError where it cannot be imported.
    """
    # Its native log repeats what exceptions say; 4 leaves critical messages.
    os.environ.setdefault("GLOG_v", "4")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import mindspore
    except (ImportError, OSError, RuntimeError) as error:
        raise DeviceError(f"MindSpore cannot be imported: {error}; pip install 'pytest-msprobe[mindspore]'") from error
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    with unlogged():
        mindspore.runtime.launch_blocking()


@contextlib.contextmanager
def unlogged() -> Iterator[None]:
    """Keep MindSpore from logging that there is no Ascend, where the program imported it with a log of its own."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)


def use(target: str, index: int) -> None:
    """Make ``CPU`` or a card of ``Ascend`` what MindSpore computes on.

    Raises DeviceError where it cannot, or where this process has used another device: MindSpore chooses once.
    """
    import mindspore

    on_target = mindspore.get_context("device_target") == target
    if on_target and (target == "CPU" or mindspore.get_context("device_id") == index):
        return
    try:
        mindspore.set_device(target, None if target == "CPU" else index)
        mindspore.runtime.synchronize()
    except (RuntimeError, ValueError) as error:
        raise DeviceError(f"MindSpore cannot compute on {target} {index}: {error}") from error


# The packages that bring it, and what of them has torch's names.
_PACKAGES = {"mindtorch": ("torch",), "msadapter": ("torch", "pytorch")}


def find_mindtorch() -> str | None:
    """Return the module or, where that is called ``torch``, the folder that holds MindTorch; None for none."""
    for package, names in _PACKAGES.items():
        spec = PathFinder.find_spec(package)
        for folder in (spec and spec.submodule_search_locations) or ():
            for name in names:
                if (Path(folder) / name / "__init__.py").is_file():
                    return f"{package}.{name}"
    return next((folder for folder in sys.path if _is_of_mindspore(folder)), None)


def put_pytorch_first() -> None:
    """Make ``import torch`` mean PyTorch: folders that hold MindTorch under that name go to the end of the path."""
    sys.path.sort(key=_is_of_mindspore)


def load_mindtorch() -> ModuleType:
    """Return MindTorch's module with torch's names; ``torch`` goes on to be PyTorch. Raises ImportError."""
    place = find_mindtorch()
    if place is None:
        raise ImportError("neither a package mindtorch nor a torch of MindSpore's is on the path")
    if not Path(place).is_dir():
        return importlib.import_module(place)
    with _torch_of(place):
        return importlib.import_module("torch")


@contextlib.contextmanager
def _torch_of(folder: str) -> Iterator[None]:
    """Replace ``torch`` by what a folder has of that name, and restore it afterwards."""
    former = {name: sys.modules.pop(name) for name in list(sys.modules) if _is_torch(name)}
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
        # Its modules bear PyTorch's names: each later `import torch` in this process would get MindSpore's.
        for name in [name for name in sys.modules if _is_torch(name)]:
            del sys.modules[name]
        sys.modules.update(former)


def _is_torch(module: str) -> bool:
    return module.partition(".")[0] == "torch"


def _is_of_mindspore(folder: str) -> bool:
    """Return whether a folder holds a package ``torch`` that is not PyTorch, which has a core in C++."""
    package = Path(folder or ".") / "torch"
    return (package / "__init__.py").is_file() and not any(package.glob("_C.*"))
