"""A call of MindSpore that is made a second time, unseen by the program: with copies of its inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mindspore import Tensor, ops

from msprobe_hooks.dump.names import is_in_place, split_called
from msprobe_hooks.extensions.free_benchmark.argument_changes import (
    Arguments,
    NotPerturbedError,
    mapped,
    without_overwritten,
)
from msprobe_hooks.extensions.free_benchmark.mindspore_perturbations import perturb
from msprobe_hooks.extensions.free_benchmark.rerun import summed
from msprobe_hooks.extensions.mindspore.call_recording import Finishing
from msprobe_hooks.extensions.mindspore.gradients import is_awaited
from msprobe_hooks.extensions.mindspore.recorder import MindSporeRecorder
from msprobe_hooks.extensions.mindspore.side_effects import why_once
from msprobe_hooks.recording.backward import tensors_in


class MindSporeAgain:
    """A call before it is made: copies of its arguments, as MindSpore does not say what a call overwrites.

    It can be made again once, since that may write over the copies.
    """

    draws = False

    def __init__(self, recorder: MindSporeRecorder, name: str, function: Finishing, args: Any, kwargs: Any) -> None:
        """Take the arguments. Raises NotPerturbedError where the call cannot be made twice."""
        called = self._called = split_called(name)[0]
        reason = why_once(called, function.function)
        if reason is not None:
            raise NotPerturbedError(reason)
        self._recorder = recorder
        self._function = function
        self.writes = is_in_place(called)
        tensors = tensors_in((args, kwargs), Tensor)
        self._differentiated = [id(tensor) for tensor in tensors if is_awaited(tensor)]
        self._flags = [is_awaited(tensor) for tensor in tensors]
        with recorder.quiet():
            self._arguments: Arguments = mapped(_copy, Tensor, (tuple(args), dict(kwargs)))

    def after_call(self) -> None:
        """Do nothing: what draws is known by its name."""

    def results(self, perturbation: str) -> Any:
        """Make the call with perturbed inputs. Raises NotPerturbedError where these cannot be perturbed."""
        with self._recorder.quiet():
            kept, read = without_overwritten(self._called, perturbation, *self._arguments)
            args, kwargs = perturb(perturbation, *read)
            return self._function(*kept, *args, **kwargs)

    def gradients(self, perturbation: str, grad_outputs: list[Any]) -> list[Any]:
        """Return the gradients of perturbed inputs, for those of the outputs that arrived. Raises as ``results``."""
        with self._recorder.quiet():
            arguments = perturb(perturbation, *self._arguments)
        leaves = [leaf for leaf, flag in zip(tensors_in(arguments, Tensor), self._flags, strict=True) if flag]
        with self._recorder.suspended():
            # Of the sum of products with the gradients that arrived, each output's gradient is that which arrived.
            found = ops.GradOperation(get_all=True)(self._products(arguments, grad_outputs))(*leaves)
            return summed(found, self._differentiated)

    def _products(self, arguments: Arguments, grad_outputs: list[Any]) -> Callable[..., Tensor]:
        def products(*leaves: Tensor) -> Tensor:
            flags, given = iter(self._flags), iter(leaves)
            args, kwargs = mapped(lambda tensor: next(given) if next(flags) else tensor, Tensor, arguments)
            outputs = self._recorder.differentiated(self._function(*args, **kwargs))
            pairs = [(one, grad) for one, grad in zip(outputs, grad_outputs, strict=True) if grad is not None]
            return ops.addn([(one * grad.astype(one.dtype)).sum().float() for one, grad in pairs])

        return products


def _copy(tensor: Tensor) -> Tensor:
    return tensor.copy()
