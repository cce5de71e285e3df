"""Stand-alone tests of a dump's records, which a person can read, change and pass on. Needs the extension mindspore.

``pytest-msprobe generate DUMP FOLDER`` takes these steps: which records (``generator``), what is written for them
(``module_plan``, ``inputs``, ``language``), where (``output_folder``), and whether they fail (``subprocess_run``). It
writes modules ``test_*.py`` and what they share into the folder, with the recorded tensors where that is asked for.
Records of PyTorch need no other extension.

Take it out by deleting this folder and tests/extensions/generate.

Importing its modules loads mindspore, msgspec, pytest and torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.commands.registry import CommandRegistry

#: Commands of pages on a record.
NEXT_STEPS = (("Write a test of it", ("pytest-msprobe", "generate", "<dump>", "-k", "<call>")),)


def pytest_msprobe_register_commands(registry: CommandRegistry) -> None:
    """Add ``generate``."""
    from pytest_msprobe.commands.registry import RESULTS, Command

    registry.add(
        RESULTS,
        "generate",
        Command(
            "write stand-alone tests for records of a dump and run them",
            "dump.json -k softmax -o generated_tests",
            "failing-cases.md",
            f"{__name__}.generate_command",
        ),
    )
