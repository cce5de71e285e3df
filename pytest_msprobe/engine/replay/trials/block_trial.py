"""A trial of one block of a call: golden and baseline on a part of the arguments, without a run of the target."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch

from msprobe_hooks.dump.names import Direction
from pytest_msprobe.engine.replay.calls.side import Gradients, Run
from pytest_msprobe.engine.replay.ops.cuts import Cut, block_of
from pytest_msprobe.engine.replay.partition import Plan, arguments_of_block, divisor_of
from pytest_msprobe.engine.replay.trials.trial import Trial

#: Results of a block by the path under which they are judged.
Tensors = dict[str, torch.Tensor]


class BlockTrial(Trial):
    """The golden and the baseline run of the slices from ``start`` of a call, with their gradients where asked for."""

    def __init__(self, whole: Trial, cut: Cut, start: int, size: int, direction: Direction) -> None:
        subject = whole.subject
        arguments = arguments_of_block(cut, subject.arguments, start, size)
        is_forward = direction == "forward"
        super().__init__(
            replace(subject, arguments=arguments, grad_outputs=None if is_forward else subject.grad_outputs),
            whole.device,
        )
        if whole.has_raised_golden:
            self.raise_golden()
        self.start = start
        self._whole, self._cut, self._size, self._is_forward = whole, cut, size, is_forward

    @functools.cached_property
    def grad_outputs(self) -> Mapping[str, torch.Tensor]:
        """The block of the gradient that arrives; of one number all of it."""
        arriving = self._whole.grad_outputs.items()
        if self._cut.is_reduced:
            return dict(arriving)
        return {path: block_of(gradient, self._cut.dim, self.start, self._size) for path, gradient in arriving}

    def of_golden(self) -> Tensors | None:
        """Return golden's results; None where they are not those of a block. Raises as `Trial` does."""
        return self._judged(self.golden, None if self._is_forward else self.golden_gradients)

    def of_baseline(self) -> Tensors | None:
        """Return the baseline's results; None where there are none."""
        if self.baseline is None:
            return None
        return self._judged(self.baseline, None if self._is_forward else self.baseline_gradients)

    def _judged(self, run: Run, gradients: Gradients | None) -> Tensors | None:
        output, cut = run.output, self._cut
        shape = () if cut.is_reduced else (*cut.shape[: cut.dim], self._size, *cut.shape[cut.dim + 1 :])
        if {*run.written} != {*cut.written} or not isinstance(output, torch.Tensor) or output.shape != shape:
            return None
        if self._is_forward:
            changed = {f"changed.{path}": tensor.detach() for path, tensor in run.changed.items()}
            return self._divided({"output.0": output.detach(), **changed})
        if gradients is None or any(gradient is None for gradient in gradients.values()):
            return None
        return self._divided({f"grad.{path}": grad for path, grad in gradients.items() if grad is not None})

    def _divided(self, results: Tensors) -> Tensors:
        """Return a block's share of what the whole call gives, which may be a mean over all blocks."""
        whole = self._whole.subject
        divisor = divisor_of(whole.operation, whole.arguments) if self._cut.is_reduced else None
        return (
            results
            if divisor is None
            else {path: (result / divisor).to(result.dtype) for path, result in results.items()}
        )


def blocks(trial: Trial, plan: Plan, direction: Direction) -> Iterator[BlockTrial]:
    """Yield a trial for each block, which is to be dropped before the next."""
    for start, size in plan.cut.ranges(plan.size):
        yield BlockTrial(trial, plan.cut, start, size, direction)
