"""Screening as a strategy of a check: it answers for the products that it clears."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from pytest_msprobe.extensions.screening.convolution import structure_of
from pytest_msprobe.extensions.screening.screen_trial import cleared
from pytest_msprobe.extensions.screening.screened_output import SCREENED

if TYPE_CHECKING:
    from pytest_msprobe.engine.replay.calls.arguments import Arguments
    from pytest_msprobe.engine.replay.prepared_call import DirectionCheck
    from pytest_msprobe.results.result import OutputResult


def judge_by_screening(check: DirectionCheck) -> list[OutputResult] | None:
    """Return the verdicts on a product that screening clears, whose inputs show what the recorded ones did."""
    prepared, direction = check.prepared, check.direction
    if check.recorded is not None or not prepared.may_be_screened:
        return None
    passed = cleared(prepared.trial, direction, partial(prepared.selection.select, direction), prepared.setup)
    if passed and prepared.has_informative_inputs(direction):
        screened = [output.screened for output in passed if output.screened is not None]
        if screened:
            check.extras[SCREENED] = msgspec.to_builtins(screened)
            check.properties[SCREENED] = "; ".join(map(str, screened))
        return [output.result for output in passed]
    prepared.trial.redraw_inputs()
    return None


def is_product(operation: str, arguments: Arguments) -> bool:
    """Return whether a call is a product, which no CPU rejects whose shapes and dtypes fit."""
    return structure_of(operation, arguments) is not None
