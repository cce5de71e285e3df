"""Search for the call whose precision moves a number, over runs of a command. Needs the extension fix.

``pytest-msprobe bisect --metric 'loss: (.*)' -- python train.py`` runs a command again and again, each time with some
of its calls in a higher precision (the hook library's extension fix), until one call is left.
It adds no option to pytest. ``-o FOLDER`` keeps a journal of the runs, from which a search that was stopped goes on,
and what each run printed.

Take it out by deleting this folder and tests/extensions/bisect.

Importing its modules loads msgspec.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.commands.registry import CommandRegistry


def pytest_msprobe_register_commands(registry: CommandRegistry) -> None:
    """Add ``bisect``."""
    from pytest_msprobe.commands.registry import TRAININGS, Command

    registry.add(
        TRAININGS,
        "bisect",
        Command(
            "find the call whose precision changes a number of a program",
            "--metric 'loss: (.*)' -- python train.py",
            "bisect.md",
            f"{__name__}.bisect_command",
        ),
    )
