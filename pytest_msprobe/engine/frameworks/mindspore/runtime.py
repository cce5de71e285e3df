"""Starting MindSpore in this process."""

from __future__ import annotations

import os
import warnings

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
    mindspore.runtime.launch_blocking()


def use(target: str, index: int) -> None:
    """Make ``CPU`` or a card of ``Ascend`` what MindSpore computes on.

    Raises DeviceError where it cannot, or where this process has computed elsewhere before: MindSpore chooses once.
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
