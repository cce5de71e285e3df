"""The smallest explored input that fails, as a result and a journal hold it: from it a test can be written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from pytest_msprobe.engine.values.plain_tensors import SMALLEST_INPUT, SmallestInput, plain_tensor

if TYPE_CHECKING:
    from msprobe_hooks.dump.names import Direction
    from pytest_msprobe.extensions.explore.explore import Finding

# A journal is to stay small: what is larger is in a saved case, where the run saves them.
_MOST_BYTES = 16 * 2**10


def smallest_input(finding: Finding, direction: Direction) -> dict[str, Any]:
    """Return the extras that hold a finding's input; none where it is too large for a journal."""
    tensors = finding.replay.input_tensors(direction)
    if sum(tensor.nbytes for tensor in tensors.values()) + len(finding.body) > _MOST_BYTES:
        return {}
    plain = SmallestInput(finding.body.decode(), {path: plain_tensor(tensor) for path, tensor in tensors.items()})
    return {SMALLEST_INPUT: msgspec.to_builtins(plain)}
