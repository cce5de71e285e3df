"""Contents of tensors: of a file, a record or a saved case, and of two of them. Needs the extension checkpoint.

``pytest-msprobe show A`` prints one, ``pytest-msprobe show A B`` where two differ, of which ``--html FILE``
writes a page and ``--csv FILE`` a table.
A tensor is named by its file, by ``dump.json::RECORD`` or by the folder of a saved case.
It adds no option to pytest.

Take it out by deleting this folder and tests/extensions/show.

Importing its modules loads msgspec, pytest, torch and yaml.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.commands.registry import CommandRegistry

#: Commands of pages on a record.
NEXT_STEPS = (("Show its tensors", ("pytest-msprobe", "show", "<dump>::<record>")),)


def pytest_msprobe_register_commands(registry: CommandRegistry) -> None:
    """Add ``show``."""
    from pytest_msprobe.commands.registry import RECORDED, Command

    registry.add(
        RECORDED,
        "show",
        Command(
            "inspect a tensor, a record or a saved case; compare two",
            "ours.npy theirs.npy",
            "tools.md",
            f"{__name__}.show_command",
        ),
    )
