"""The bits of recorded tensors, as short texts."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from msprobe_hooks.dump.schema import TensorElement


@functools.lru_cache(256)
def digest_of(element: TensorElement, folder: Path) -> str | None:
    """Return a digest of a recorded tensor's elements; None where its file is missing or it has no plain layout.

    Raises DumpError where the file is not what the dump says.
    """
    import torch

    from msprobe_standards.tensor_layouts import is_plain
    from pytest_msprobe.engine.values.tensor_files import load_tensor
    from pytest_msprobe.results.skips import Skip

    try:
        tensor = load_tensor(element, folder)
    except Skip:
        return None
    if not is_plain(tensor):
        return None
    elements = tensor.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.blake2b(elements.numpy().data, digest_size=6).hexdigest()
