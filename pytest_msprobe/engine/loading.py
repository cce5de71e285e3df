"""Loading torch, which takes longer than all else that happens before the first check."""

from __future__ import annotations

import gc
import os
from types import ModuleType

from pytest_msprobe.devices.device import DeviceError


def import_torch() -> ModuleType:
    """Import torch in the way that suits checks. Raises DeviceError where it cannot be imported."""
    # torch reads this once. Huge pages halve the time of large records, half of which is page faults without them.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    # torch makes 165 000 objects that live as long as the process: collecting them is wasted, now and later.
    collects = gc.isenabled()
    gc.disable()
    try:
        import torch
    except (ImportError, OSError, RuntimeError) as error:
        raise DeviceError(
            f"torch cannot be imported: {error}; install torch, or, where a device extension is at fault, "
            "set TORCH_DEVICE_BACKEND_AUTOLOAD=0"
        ) from error
    finally:
        if collects:
            gc.enable()
    gc.freeze()
    return torch
