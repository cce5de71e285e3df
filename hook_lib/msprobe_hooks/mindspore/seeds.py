"""Making a run repeatable."""

from __future__ import annotations

import os

import mindspore

from msprobe_hooks.recording.seeds import seed_python


def seed_all(seed: int = 1234, mode: bool = False) -> None:
    """Seed Python, numpy and MindSpore; ``mode`` asks for deterministic kernels.

    Raises ConfigError for a wrong argument.
    """
    seed_python(seed, mode=mode)
    os.environ["HCCL_DETERMINISTIC"] = str(mode).lower()
    mindspore.set_seed(seed)
    mindspore.set_deterministic(mode)
