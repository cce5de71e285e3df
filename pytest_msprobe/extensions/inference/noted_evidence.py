"""What programs noted of their tokens and a comparison does not use, or that their own records contradict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Literal

import numpy as np

from msprobe_hooks.messages import counted
from pytest_msprobe.extensions.inference.log_probabilities import LogProbabilities, by_logits
from pytest_msprobe.extensions.inference.precision_limits import UNIT_ROUNDOFF
from pytest_msprobe.extensions.inference.run_values import LOGITS, RunValues
from pytest_msprobe.extensions.inference.token_pairs import TokenPairs

SideName = Literal["target", "golden run"]
#: How both runs are called, in the order of their columns.
SIDES: tuple[SideName, SideName] = ("target", "golden run")

# Log probabilities of the same logits differ by roundings of their dtype, and by a sum over the vocabulary.
_ROUNDINGS = 8.0
_SUMMED = 1e-3
# More than one in so many is no chance.
_OTHER_TOKENS = 10


def contradicted(side: SideName, run: RunValues, pairs: TokenPairs) -> Iterator[str]:
    """Yield a line where noted log probabilities are not those of the run's own logits.

    Raises UnalignedError, DumpError where the logits cannot be read.
    """
    noted = pairs.logprobs[:, SIDES.index(side)]
    if np.isnan(noted).all():
        return
    own = by_logits(run, pairs.target if side == "target" else pairs.golden, pairs)
    known = ~np.isnan(noted) & ~np.isnan(own)
    distance = np.abs(noted[known] - own[known])
    limit = _SUMMED + _ROUNDINGS * UNIT_ROUNDOFF[run.dtype(LOGITS) or "float32"] * np.maximum(np.abs(own[known]), 1)
    # NaN, as of two infinities, is no difference.
    others = int((distance > limit).sum())
    if others * _OTHER_TOKENS > len(distance):
        yield (
            f"the log probabilities that the {side} noted are not those of its own logits ({others} of "
            f"{counted(len(distance), 'token')}, median difference {np.nanmedian(distance):.2e}): a temperature, "
            "top-p, a scale behind the head, or a shift by one token"
        )


def unused(pairs: TokenPairs, found: LogProbabilities | None) -> Iterator[str]:
    """Yield a line where noted log probabilities are not compared."""
    is_noted = ~np.isnan(pairs.logprobs)
    if found is not None and found.source != "from the logits":
        is_noted[found.pairs] = False
    counts = [(side, int(is_noted[:, number].sum())) for number, side in enumerate(SIDES)]
    alone = [f"{count} of the {side}" for side, count in counts if count]
    if alone:
        yield (
            f"noted log probabilities not compared: {' and '.join(alone)}, of tokens that the other run neither noted "
            "nor has logits for"
            if found is None or found.source != "noted by both runs"
            else f"noted log probabilities not compared: {' and '.join(alone)}, which the other run did not note"
        )


def layout_notes(side: SideName, run: RunValues) -> Iterator[str]:
    """Yield what was noted or given of the tokens and is not used, and how many passes have no tokens."""
    notes = Counter(note for each in run.passes if each.layout is not None for note in each.layout.notes)
    for note, count in notes.items():
        yield f"{side}: {note}" + (f" ({count} passes)" if count > 1 else "")
    if run.left_out:
        yield f"{side}: {run.left_out} of {run.left_out + len(run.passes)} passes left out: nothing says their tokens"
