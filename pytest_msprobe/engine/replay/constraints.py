"""What random arguments must satisfy beyond their recorded ranges: indices in range, offsets sorted, and the like.

Statistics cannot tell these things, and real data never come here. Which operation has which constraint stands in
``traits``.
"""

from __future__ import annotations

import contextlib
from typing import Any

from pytest_msprobe.engine.replay.drawn import Drawn
from pytest_msprobe.engine.replay.traits import traits_of
from pytest_msprobe.engine.values.failures import REFUSALS


def constrain(
    api: str, args: tuple[Any, ...], kwargs: dict[str, Any], seed: int
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the drawn arguments of an API, mended in place where the API promises nothing for what was drawn.

    Arguments that the API does not take stay as they are: the CPU refuses them, and says why.
    """
    constraint = traits_of(api).constraint
    if constraint is None:
        return args, kwargs
    drawn = Drawn(args, kwargs, seed)
    with contextlib.suppress(*REFUSALS):
        constraint(drawn)
    return tuple(drawn.args), drawn.kwargs
