"""Starting MindSpore in this process."""

from __future__ import annotations

import os
import warnings

from pytest_msprobe.devices.device import DeviceError


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
        raise DeviceError(f"MindSpore cannot be imported: {error}; pip install pytest-msprobe[mindspore]") from error
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    mindspore.runtime.launch_blocking()
