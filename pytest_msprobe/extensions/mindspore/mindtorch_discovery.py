"""Discovery of MindTorch: a package of its own, or one that is called ``torch`` as PyTorch is and comes first.

PyTorch is needed as well: it computes the golden results. Nothing is imported to find either.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

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
