"""Two folders or files of weights, compared parameter by parameter."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from pytest_msprobe.extensions.checkpoint.items import judge_parameter
from pytest_msprobe.extensions.checkpoint.same_model import EarlierSteps, paired
from pytest_msprobe.extensions.checkpoint.weights_folder import main_file, read_checkpoint
from pytest_msprobe.extensions.model_names.model_names import model_names


def compared(target: Path, golden: Path) -> dict[str, tuple[str, str]]:
    """Return outcome and reason of each parameter that does not pass; of one that a side lacks, what it is."""
    sides = [read_checkpoint(main_file(each)) for each in (target, golden)]
    pairs = paired(sides[0], sides[1], model_names())
    earlier = EarlierSteps(sides[0], sides[1].siblings, model_names())
    found = {}
    for name, (ours, theirs) in pairs.items():
        if ours is None or theirs is None:
            present = ours or theirs
            assert present is not None
            found[name] = "lacks", present.optional
            continue
        verdict = judge_parameter(name, ours, theirs, 0.0, partial(earlier.of, name)).verdict
        if verdict.outcome != "pass":
            found[name] = verdict.outcome, verdict.reason
    return found
