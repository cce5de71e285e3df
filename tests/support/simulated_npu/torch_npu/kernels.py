"""The part in C++, compiled once for a torch and these sources."""

from __future__ import annotations

import fcntl
import hashlib
import os
from pathlib import Path

import torch

_SOURCES = sorted((Path(__file__).parent / "csrc").iterdir())


def load() -> None:
    """Load the kernels into this process, compiled before if no process has done so.

    They are kept where torch keeps extensions that it compiles, by default in ``~/.cache/torch_extensions``.
    """
    folder = _folder()
    library = folder / "simulated_npu.so"
    folder.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        # Without it, a second process would load what the first is still writing.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if library.exists():
            torch.ops.load_library(library)
        else:
            _compile(folder)


def _folder() -> Path:
    digest = hashlib.sha256(torch.__version__.encode())
    for source in _SOURCES:
        digest.update(source.read_bytes())
    home = os.environ.get("TORCH_EXTENSIONS_DIR", Path.home() / ".cache" / "torch_extensions")
    return Path(home) / f"simulated_npu_{digest.hexdigest()[:16]}"


def _compile(folder: Path) -> None:
    # Importing the builder takes as long as the rest of a start, and is needed once only.
    from torch.utils import cpp_extension

    cpp_extension.load(
        name="simulated_npu",
        sources=[str(source) for source in _SOURCES if source.suffix == ".cpp"],
        build_directory=str(folder),
        extra_cflags=["-O0"],
        is_python_module=False,
    )
