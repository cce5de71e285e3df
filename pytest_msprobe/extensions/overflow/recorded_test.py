"""Tests that fail at the first call in which inf or nan arises: recordings with task ``overflow_check``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_msprobe.extensions.overflow.nonfinite_origins import Origin, describe_finding, origin_lines, place_lines

if TYPE_CHECKING:
    from msprobe_hooks.extensions.overflow.recorder import Overflow, OverflowRecorder
    from msprobe_hooks.recording.session import Session


def fail_at_overflow(session: Session) -> None:
    """Fail the test that runs within the call in which inf or nan arises, where that is looked for."""
    recorder = _looking_for_overflow(session)
    if recorder is not None:
        recorder.on_overflow = _fail


def fail_after_overflow(session: Session) -> None:
    """Fail the test that has run where inf or nan arose in a call that was looked at late, as those of a device are."""
    __tracebackhide__ = True
    recorder = _looking_for_overflow(session)
    if recorder is not None and recorder.overflows:
        _fail(recorder.overflows[0])


def _looking_for_overflow(session: Session) -> OverflowRecorder | None:
    # Loaded with a recording: it needs numpy, which a run that records nothing does without.
    from msprobe_hooks.extensions.overflow.recorder import OverflowRecorder

    return session.recorder if isinstance(session.recorder, OverflowRecorder) else None


def _fail(overflow: Overflow) -> None:
    __tracebackhide__ = True
    finding = overflow.finding
    story = [
        f"{overflow.name}: {describe_finding(finding)}",
        *place_lines(finding.outputs),
        *place_lines(overflow.inputs),
        *origin_lines(Origin(overflow.frames, (), ())),
        f"its tensors are in {overflow.folder}",
    ]
    pytest.fail("\n".join(story), pytrace=False)
