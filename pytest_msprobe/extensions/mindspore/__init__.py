"""MindSpore and MindTorch: their functions as the target, torch's on the CPU as the golden definition.

Dumps that they recorded are checked with it, and the kernels that a static graph executed. It needs ``mindspore``
(``pip install 'pytest-msprobe[mindspore]'``) to run calls, and nothing for recorded kernels. It adds no option and no
command, and writes no file. The hook library's extension of the same name records and reads the dumps.

Take it out by deleting this folder, that extension, tests/extensions/mindspore and tests/mindspore; a dump of MindSpore
is then refused with "unknown framework".

Importing its modules loads mindspore, msgspec, pytest and torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.commands.registry import CommandRegistry
    from pytest_msprobe.engine.frameworks import FrameworkRegistry
    from pytest_msprobe.modes.check.dump_checks import DumpCheckRegistry


def pytest_msprobe_register_frameworks(registry: FrameworkRegistry) -> None:
    """Add MindSpore, MindTorch and recorded kernels."""
    from pytest_msprobe.extensions.mindspore.openers import add_frameworks

    add_frameworks(registry)


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
