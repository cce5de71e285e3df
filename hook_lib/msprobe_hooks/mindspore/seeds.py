"""Making a run repeatable."""

from __future__ import annotations

import os
import random

import mindspore
import numpy as np

from msprobe_hooks.errors import ConfigError

_MAX_SEED = 2**32 - 1


def seed_all(seed: int = 1234, mode: bool = False) -> None:
    """Seed Python, numpy and MindSpore; ``mode`` asks for deterministic kernels.

    Raises ConfigError for a wrong argument.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= _MAX_SEED:
        raise ConfigError("seed", seed, f"an integer from 0 to {_MAX_SEED}")
    if not isinstance(mode, bool):
        raise ConfigError("mode", mode, "True or False")
    os.environ["PYTHONHASHSEED"] = str(seed)
    os.environ["HCCL_DETERMINISTIC"] = str(mode).lower()
    random.seed(seed)
    np.random.seed(seed)
    mindspore.set_seed(seed)
    mindspore.set_deterministic(mode)
