"""Tokens for which two runs choose other experts, though their routers agree within the precision."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from pytest_msprobe.modes.compare.inference.run_values import RunValues
from pytest_msprobe.modes.compare.inference.token_errors import aligned_rows
from pytest_msprobe.modes.compare.inference.token_pairs import TokenPairs


def changed_choices(name: str, target: RunValues, golden: RunValues, pairs: TokenPairs) -> NDArray[np.bool_]:
    """Return for each pair of tokens whether the greatest scores of a router are of other experts.

    How many experts a token has is known where a run recorded their numbers; otherwise nothing is said.
    """
    changed = np.zeros(len(pairs), dtype=bool)
    count = golden.experts_per_token(name) or target.experts_per_token(name)
    if not count:
        return changed
    for numbers, mine, theirs in aligned_rows(name, target, golden, pairs):
        if count >= mine.shape[1]:
            return changed
        chosen = [torch.topk(each, count, dim=1).indices.sort(dim=1).values for each in (mine, theirs)]
        changed[numbers] = (chosen[0] != chosen[1]).any(dim=1).numpy()
    return changed
