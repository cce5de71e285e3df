"""What a trial tries: functions, arguments, and the gradients that arrive."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from pytest_msprobe.engine.replay.call import Call, operation
from pytest_msprobe.engine.replay.calls.arguments import Arguments
from pytest_msprobe.engine.replay.calls.laid_out_tensors import Memory


@dataclass(frozen=True, slots=True)
class Subject:
    """What is tried. ``key`` is the record's name without direction; ``api`` the name that the policy knows.

    ``grad_outputs`` makes the gradients of a run's results, by path, as CPU tensors; None where there is
    no backward. ``output_dtypes`` are the recorded ones, empty where nothing was recorded; ``seed`` is for what
    the API itself draws. ``stand_in`` is that of `Functions`. ``changed`` says which argument is not the recorded one,
    as ``dropout_p=0``. ``call`` is the recorded one, for a remote device, to which no function can be sent; None where
    nothing was recorded. ``drawn`` is the seed of the arguments and whether they are from narrow ranges; None where
    they were not drawn. ``drawn_again`` draws the same arguments once more; None where that is not to be done.
    ``memory`` is that of `ReplayConfig`.
    ``is_given`` says that a test gives the arguments as they are: golden has to take them, and fails the test if not.
    """

    key: str
    api: str
    target: Callable[..., Any]
    golden: Callable[..., Any]
    arguments: Arguments
    grad_outputs: Callable[[Any], Mapping[str, torch.Tensor]] | None = None
    autocast: torch.dtype | None = None
    output_dtypes: tuple[str, ...] = ()
    seed: int = 0
    stand_in: Callable[[], str] = str
    changed: str = ""
    call: Call | None = None
    drawn: tuple[int, bool] | None = None
    drawn_again: Callable[[], Arguments] | None = None
    is_given: bool = False
    memory: Memory = "recorded"

    @property
    def operation(self) -> str:
        """The API's name without namespace and overload."""
        return operation(self.api)


class CheckError(Exception):
    """A test's own check has nothing to compare, on any device; what golden raised, if anything, is the cause."""


class TargetError(Exception):
    """The function raised on the device, though the CPU computes it."""
