"""Import of torch, which takes a second and half of the memory of a small check."""

from __future__ import annotations

import atexit
import gc
import os
import re
from types import ModuleType

from pytest_msprobe.errors import DeviceError

_OLDEST = (2, 3)  # torch 2.1 and 2.2 lack dtypes that rebuilt inputs need


def import_torch() -> ModuleType:
    """Import torch in the way that suits checks. Raises DeviceError where it cannot be imported or is too old."""
    # torch reads this once. Huge pages halve the time of large records, half of which is page faults without them.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    # torch makes 165 000 objects that live as long as the process: collecting them is wasted, now and later.
    collects = gc.isenabled()
    gc.disable()
    try:
        import torch
    except (ImportError, OSError, RuntimeError) as error:
        raise DeviceError(
            f"torch cannot be imported: {error}",
            remedy="install torch, or, where a device extension is at fault, set TORCH_DEVICE_BACKEND_AUTOLOAD=0",
        ) from error
    finally:
        if collects:
            gc.enable()
    gc.freeze()
    # As it ends, Python looks for garbage once more, among all that a run has made.
    atexit.register(gc.freeze)
    # Not by comparing versions: 2.3.0a0, as vendors call their builds, is older than 2.3 only for packaging.
    if tuple(int(number) for number in re.findall(r"\d+", torch.__version__)[:2]) < _OLDEST:
        raise DeviceError(f"torch {torch.__version__} is too old", remedy="install torch 2.3 or newer")
    return torch
