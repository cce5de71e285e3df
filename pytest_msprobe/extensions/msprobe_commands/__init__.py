"""Commands of msprobe on finished runs, and a package in place of its own for programs that import it.

``pytest-msprobe msprobe precision-compare A B`` judges a finished run by another, such as NPU by GPU, from the folders
that ``--msprobe-save-baseline`` and ``--msprobe-csv`` wrote, and writes msprobe's tables.
``pytest-msprobe msprobe merge-results`` merges the comparison tables of many ranks into one workbook, which needs
XlsxWriter and openpyxl. ``pytest-msprobe msprobe stand-in FOLDER`` writes the package.

None adds an option to pytest. Take it out by deleting this folder and tests/extensions/msprobe_commands.

Importing its modules loads msgspec, pytest, torch and yaml.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.commands.registry import CommandRegistry


def pytest_msprobe_register_commands(registry: CommandRegistry) -> None:
    """Add ``precision-compare``, ``merge-results`` and ``stand-in``."""
    from pytest_msprobe.commands.registry import Command

    registry.add_of_msprobe(
        "precision-compare",
        Command(
            "judge a finished run by another, such as NPU by GPU",
            "npu.msprobe gpu.msprobe",
            "baselines.md",
            f"{__name__}.precision_compare_command",
        ),
    )
    registry.add_of_msprobe(
        "merge-results",
        Command(
            "merge the comparison tables of many ranks into one workbook",
            "-i tables -o merged -config merge.yaml",
            "comparing.md",
            f"{__name__}.merge_results_command",
        ),
    )
    registry.add_of_msprobe(
        "stand-in",
        Command(
            "write a package named msprobe, by which programs written for it use this recorder",
            "as_msprobe",
            "integrations.md",
            f"{__name__}.stand_in",
        ),
    )
