"""MindSpore and MindTorch: their functions as the target, torch's on the CPU as the golden definition.

Dumps that they recorded are checked with it, and the kernels that a static graph executed. It needs ``mindspore``
(``pip install 'pytest-msprobe[mindspore]'``) to run calls, and nothing for recorded kernels. It adds no option and no
command, and writes no file. The hook library's extension of the same name records and reads the dumps.

Take it out by deleting this folder, that extension, tests/extensions/mindspore and tests/mindspore; a dump of MindSpore
is then refused with "unknown framework".

Importing its modules loads mindspore, msgspec, pytest and torch.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.commands.registry import CommandRegistry
    from pytest_msprobe.engine.frameworks import FrameworkRegistry
    from pytest_msprobe.engine.replay.framework import Framework
    from pytest_msprobe.modes.check.dump_checks import DumpCheckRegistry


def pytest_msprobe_register_frameworks(registry: FrameworkRegistry) -> None:
    """Add MindSpore, MindTorch and recorded kernels, which need nothing to be installed."""
    from msprobe_hooks.dump.names import mindspore_dtype_name
    from pytest_msprobe.engine.framework_names import KERNELS, MINDSPORE, MINDTORCH
    from pytest_msprobe.engine.frameworks import FrameworkEntry, TableForm
    from pytest_msprobe.extensions.mindspore.runtime import put_pytorch_first

    columns = {"Cosine": "cosine_sim", "MaxAbsErr": "max_abs_err", "MaxRelativeErr": "max_rel_error"}
    tables = TableForm("API Name", "Tested Dtype", columns, mindspore_dtype_name)
    registry.add(MINDSPORE, FrameworkEntry(_open_mindspore, _missing_mindspore, table_form=tables))
    registry.add(MINDTORCH, FrameworkEntry(_open_mindtorch, _missing_mindtorch, put_pytorch_first, tables))
    registry.add(KERNELS, FrameworkEntry(_open_kernels))


def pytest_msprobe_register_dump_checks(registry: DumpCheckRegistry) -> None:
    """Add the check of the kernels of a static graph."""
    from pytest_msprobe.extensions.mindspore.kernels.items import KernelChecks

    registry.add("static graph", KernelChecks())


def pytest_msprobe_register_commands(registry: CommandRegistry) -> None:
    """Add ``code-mapping``."""
    from pytest_msprobe.commands.registry import Command

    registry.add_of_msprobe(
        "code-mapping",
        Command(
            "find the source lines of the kernels of a MindSpore graph",
            "dump/rank_0 --output tables",
            "mindspore.md",
            f"{__name__}.code_mapping_command",
        ),
    )


def _missing_mindspore() -> str | None:
    if find_spec("mindspore") is None:
        return "MindSpore is not installed; pip install 'pytest-msprobe[mindspore]'"
    return None


def _missing_mindtorch() -> str | None:
    from pytest_msprobe.extensions.mindspore.runtime import find_mindtorch

    if find_mindtorch() is None:
        return "MindTorch is not installed: neither a package mindtorch nor a torch of MindSpore's is on the path"
    return _missing_mindspore()


def _open_mindspore() -> Framework:
    from pytest_msprobe.extensions.mindspore.runtime import start

    start()
    from pytest_msprobe.extensions.mindspore.framework import MindSporeFramework

    return MindSporeFramework()


def _open_mindtorch() -> Framework:
    from pytest_msprobe.extensions.mindspore.runtime import put_pytorch_first, start

    put_pytorch_first()
    start()
    from pytest_msprobe.extensions.mindspore.framework import MindTorchFramework

    return MindTorchFramework()


def _open_kernels() -> Framework:
    from pytest_msprobe.extensions.mindspore.kernels.check import RecordedKernels

    return RecordedKernels()
