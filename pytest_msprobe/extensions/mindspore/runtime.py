"""Start of MindSpore in this process."""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Iterator

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
