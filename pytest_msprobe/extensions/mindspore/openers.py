"""Start of MindSpore, MindTorch and recorded kernels in a process; nothing of them is imported before."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from msprobe_hooks.dump.names import mindspore_dtype_name
from pytest_msprobe.engine.framework_names import KERNELS, MINDSPORE, MINDTORCH
from pytest_msprobe.engine.frameworks import FrameworkEntry, FrameworkRegistry, TableForm
from pytest_msprobe.extensions.mindspore.runtime import find_mindtorch, put_pytorch_first

if TYPE_CHECKING:
    from pytest_msprobe.engine.replay.framework import Framework


_COLUMNS = {"Cosine": "cosine_sim", "MaxAbsErr": "max_abs_err", "MaxRelativeErr": "max_rel_error"}
_TABLES = TableForm("API Name", "Tested Dtype", _COLUMNS, mindspore_dtype_name)


def add_frameworks(registry: FrameworkRegistry) -> None:
    """Add the frameworks; recorded kernels need nothing to be installed."""
    registry.add(MINDSPORE, FrameworkEntry(_open_mindspore, _missing_mindspore, table_form=_TABLES))
    registry.add(MINDTORCH, FrameworkEntry(_open_mindtorch, _missing_mindtorch, put_pytorch_first, _TABLES))
    registry.add(KERNELS, FrameworkEntry(_open_kernels))


def _missing_mindspore() -> str | None:
    if find_spec("mindspore") is None:
        return "MindSpore is not installed; pip install 'pytest-msprobe[mindspore]'"
    return None


def _missing_mindtorch() -> str | None:
    if find_mindtorch() is None:
        return "MindTorch is not installed: neither a package mindtorch nor a torch of MindSpore's is on the path"
    return _missing_mindspore()


def _open_mindspore() -> Framework:
    from pytest_msprobe.extensions.mindspore.runtime import start

    start()
    from pytest_msprobe.extensions.mindspore.framework import MindSporeFramework

    return MindSporeFramework()


def _open_mindtorch() -> Framework:
    put_pytorch_first()
    from pytest_msprobe.extensions.mindspore.runtime import start

    start()
    from pytest_msprobe.extensions.mindspore.framework import MindTorchFramework

    return MindTorchFramework()


def _open_kernels() -> Framework:
    from pytest_msprobe.extensions.mindspore.kernels.check import RecordedKernels

    return RecordedKernels()
