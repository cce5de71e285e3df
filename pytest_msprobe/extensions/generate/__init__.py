"""Records of a dump become stand-alone tests that a person can read, change and pass on.

``command`` takes these steps: which records (``failures``), what is written for them (``plan``,
``module``, ``spelling``, ``functions``, ``layout``), where (``folder``), and whether they fail (``fresh_run``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.commands.registry import CommandRegistry


def pytest_msprobe_register_commands(registry: CommandRegistry) -> None:
    """Add ``generate``."""
    from pytest_msprobe.commands.registry import RESULTS, Command

    registry.add(
        RESULTS,
        "generate",
        Command(
            "write stand-alone tests for records of a dump and run them",
            "dump.json -k softmax -o generated_tests",
            "generated-tests.md",
            f"{__name__}.generate_command",
        ),
    )
