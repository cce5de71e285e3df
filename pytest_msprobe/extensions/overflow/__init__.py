"""Origins of inf and nan: records judged by their statistics, over all ranks, and replayed.

The mode ``--msprobe-overflow DUMP`` judges each record of a dump; its options are in ``options``. It writes the page of
``--msprobe-html`` and the JSON file that ``--msprobe-json`` names. Tests marked ``msprobe_record`` with task
``overflow_check`` fail at the call in which inf or nan arises, and leave its tensors in a folder of their own.

Take it out by deleting this folder, the hook library's extension of the same name, and tests/extensions/overflow.

Importing its modules loads msgspec, pytest and torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from msprobe_hooks.recording.session import Session
    from pytest_msprobe.run.mode import ModeRegistry


def pytest_msprobe_recording_started(session: Session) -> None:
    """Fail the test within the call in which inf or nan arises, where that is looked for."""
    from pytest_msprobe.extensions.overflow.recorded_test import fail_at_overflow

    fail_at_overflow(session)


def pytest_msprobe_recording_ended(session: Session) -> None:
    """Fail the test where inf or nan arose in a call that was looked at late."""
    __tracebackhide__ = True
    from pytest_msprobe.extensions.overflow.recorded_test import fail_after_overflow

    fail_after_overflow(session)


def pytest_msprobe_register_modes(registry: ModeRegistry) -> None:
    """Add the mode."""
    from pytest_msprobe.extensions.overflow.options import OVERFLOW

    registry.add(OVERFLOW)
