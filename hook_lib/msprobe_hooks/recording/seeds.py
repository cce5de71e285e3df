"""Seeds of Python and numpy, which make a run repeatable."""

from __future__ import annotations

import os
import random

import numpy as np

from msprobe_hooks.errors import ConfigError

_MAX_SEED = 2**32 - 1


def seed_python(seed: int, **switches: bool) -> None:
    """Seed Python and numpy. Raises ConfigError for a wrong seed, or for a switch that is not a bool, by its name."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= _MAX_SEED:
        raise ConfigError("seed", seed, f"an integer from 0 to {_MAX_SEED}")
    for key, value in switches.items():
        if not isinstance(value, bool):
            raise ConfigError(key, value, "true or false")
    os.environ["PYTHONHASHSEED"] = str(seed)
    random.seed(seed)
    np.random.seed(seed)
