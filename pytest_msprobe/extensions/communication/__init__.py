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

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.run.mode import ModeRegistry


def pytest_msprobe_register_modes(registry: ModeRegistry) -> None:
    """Add the mode."""
    from pytest_msprobe.extensions.communication.options import COMMUNICATION

    registry.add(COMMUNICATION)
