"""Communication between ranks, judged over the dumps of all ranks. Needs the extension npu_operators.

Items fail where ranks disagree on a collective's order, shape, dtype or group, where a call has no partner, and where
the values received are not those sent. Operators that compute and communicate at once (``npu_mm_all_reduce_base`` and
its kin) are computed again over all ranks by their golden definitions, which is what npu_operators is needed for.

Mode: ``--msprobe-communication PATH``, the folder of a step or of all steps; with ``--msprobe-html`` it writes a page
of lanes, one a rank. It has no other option and writes no other file.
Take it out by deleting this folder and tests/extensions/communication.

Importing its modules loads msgspec and pytest.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.run.mode import DeclaredMode, ModeRegistry


@cache
def declaration() -> DeclaredMode:
    """Return the declaration of the mode, which is loaded when a run has it."""
    from pytest_msprobe.run.mode import DeclaredMode
    from pytest_msprobe.run.shared_options import HTML

    return DeclaredMode(
        name="communication",
        flag="--msprobe-communication",
        flag_help="judge the communication between ranks: the folder of one step or of all steps, or one rank's "
        "dump.json",
        home="pytest_msprobe.extensions.communication.mode:CommunicationMode",
        shared_options=(HTML,),
    )


def pytest_msprobe_register_modes(registry: ModeRegistry) -> None:
    """Add the mode."""
    registry.add(declaration())
