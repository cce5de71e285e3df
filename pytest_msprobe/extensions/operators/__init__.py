"""Operators without a model: torch's own, from the database by which torch tests itself, MindSpore's, and others.

Those of MindSpore are called on samples of a table, `mindspore.yaml`; libraries and files add theirs.

``pytest-msprobe operators`` writes dumps of them; ``pytest --msprobe-operators DTYPES`` writes them into pytest's cache
and checks them. ``pytest-msprobe report --operators JOURNAL`` writes a table: which operators of which dtypes are
right, wrong or not judged, and why; of two journals, what has changed. The keys of the ini file begin with
``msprobe_operator_``. Each dump has a file ``operators.json``: what of each operator was recorded, and what was not.

Take it out by deleting this folder and tests/extensions/operators.

Importing its modules loads isal, mindspore, msgspec, pytest, torch and yaml.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

    from pytest_msprobe.commands.registry import CommandRegistry
    from pytest_msprobe.run.mode import ModeRegistry


def pytest_msprobe_register_modes(registry: ModeRegistry) -> None:
    """Add the option, to runs of every mode: what it records is checked like any dump."""
    from pytest_msprobe.extensions.operators.options import OperatorsOptions
    from pytest_msprobe.run.option_data import WHAT

    registry.add_options(OperatorsOptions, WHAT)


def pytest_configure(config: pytest.Config) -> None:
    """Record the operators before dumps are opened: in the controller, which sends workers the paths."""
    if config.option.msprobe_operators:
        from pytest_msprobe.extensions.operators.options import add_dumps

        add_dumps(config)


def pytest_msprobe_register_commands(registry: CommandRegistry) -> None:
    """Add ``operators``, and ``report --operators``."""
    from pytest_msprobe.commands.registry import MACHINE, Command

    registry.add(
        MACHINE,
        "operators",
        Command(
            "record operators of torch, MindSpore or a library to check",
            "--dtype bfloat16 --op 'nn.functional.*' -o operators",
            "new-accelerator.md",
            f"{__name__}.operators_command",
        ),
    )
    registry.add_to_report(f"{__name__}.operators_report")
