"""Public names for programs of MindSpore."""

from __future__ import annotations

import msprobe_hooks.mindspore


def test_names_of_mindspore_are_listed() -> None:
    names = {"MsprobeStep", "PrecisionDebugger", "TrainerMon", "seed_all"}
    assert {*msprobe_hooks.mindspore.__all__} == names
    assert names <= {*dir(msprobe_hooks.mindspore)}
