"""Blocks of a call laid side by side, next to the whole."""

from __future__ import annotations

import torch

from pytest_msprobe.engine.replay.ops.cuts import Cut
from pytest_msprobe.engine.replay.partition import Plan, cuts_of
from pytest_msprobe.engine.replay.trials.block_trial import blocks
from pytest_msprobe.engine.replay.trials.trial import Trial


def laid_side_by_side(trial: Trial, cut: Cut, size: int) -> dict[str, torch.Tensor]:
    """Return golden's result, gradients and what it changed as blocks give them, of what is not cut the sum of all."""
    found: dict[str, list[torch.Tensor]] = {}
    for direction in ("forward", "backward"):
        for block in blocks(trial, Plan(cut, size, 0), direction):
            for path, tensor in (block.of_golden() or {}).items():
                found.setdefault(path, []).append(tensor)
    dims = {f"{kind}.{path}": dim for path, dim in cut.inputs.items() for kind in ("grad", "changed")}
    dims |= {} if cut.is_reduced else {"output.0": cut.dim}
    return {
        path: torch.cat(parts, dims[path]) if path in dims else torch.stack(parts).sum(0)
        for path, parts in found.items()
    }


def assert_blocks_are_the_whole(trial: Trial, size: int) -> None:
    """Hold what blocks of so many slices give, by every cut of a call, to what it gives as a whole."""
    whole = {"output.0": trial.golden.output.detach()}
    whole |= {f"changed.{path}": tensor for path, tensor in trial.golden.changed.items()}
    whole |= {f"grad.{path}": gradient for path, gradient in trial.golden_gradients.items() if gradient is not None}
    cuts = cuts_of(trial.subject.operation, trial.subject.arguments)
    assert cuts
    for cut in cuts:
        found = laid_side_by_side(trial, cut, size)
        assert found.keys() == whole.keys()
        for path, tensor in found.items():
            tolerance = 64 * torch.finfo(tensor.dtype).eps
            torch.testing.assert_close(
                tensor, whole[path], rtol=tolerance, atol=tolerance * float(whole[path].abs().max())
            )
