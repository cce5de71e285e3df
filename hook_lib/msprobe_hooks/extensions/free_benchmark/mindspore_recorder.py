"""The free benchmark of MindSpore's dynamic graph mode: perturbations, reruns and the ratio of results."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mindspore
import numpy as np
from mindspore import Tensor, ops

from msprobe_hooks.dump.names import is_in_place, split_called
from msprobe_hooks.extensions.free_benchmark.argument_changes import (
    NOTHING_NARROW,
    Arguments,
    Judging,
    NotPerturbedError,
    dtype_name,
    noise_for,
    on_all_tensors,
    on_first_tensor,
    swapped_places,
    without_overwritten,
)
from msprobe_hooks.extensions.free_benchmark.config import BenchmarkSettings
from msprobe_hooks.extensions.free_benchmark.recorder import (
    BenchmarkedCall,
    BenchmarkRecorder,
    summed,
)
from msprobe_hooks.extensions.free_benchmark.table import FILE_NAME, MINDSPORE_FORM
from msprobe_hooks.extensions.mindspore.call_recording import Finishing
from msprobe_hooks.extensions.mindspore.gradients import is_awaited
from msprobe_hooks.extensions.mindspore.recorder import MindSporeRecorder, host
from msprobe_hooks.extensions.mindspore.upcast import MindSporeRaising, why_once
from msprobe_hooks.recording.array_statistics import Array
from msprobe_hooks.recording.backward import mapped, tensors_in
from msprobe_hooks.recording.config import Settings
from msprobe_hooks.recording.upcasts import UnraisedError

# Elements that are looked at at once. Which number this is changes no verdict.
_CHUNK = 2**22


class MindSporeJudging(Judging):
    """Judges tensors of MindSpore."""

    tensor_class = Tensor

    def is_compared(self, tensor: Tensor) -> bool:
        """Return whether a tensor is of real numbers and not empty."""
        return bool(tensor.is_floating_point()) and tensor.size > 0

    def largest_ratio(self, original: Tensor, perturbed: Tensor, tolerance: float) -> float | None:
        """Return the largest quotient, or None where a sign changes."""
        originals, others = host(original.astype(perturbed.dtype)).reshape(-1), host(perturbed).reshape(-1)
        wide = np.float64 if others.dtype == np.float64 else np.float32
        largest = 1.0
        with np.errstate(all="ignore"):
            for start in range(0, others.size, _CHUNK):
                a, b = (values[start : start + _CHUNK].astype(wide) for values in (originals, others))
                if (a * b < -(tolerance**2)).any():
                    return None
                ratio = np.abs(a).clip(min=tolerance) / np.abs(b).clip(min=tolerance)
                ratio[np.isnan(ratio)] = 1.0
                least = float(ratio.min())
                largest = max(largest, float(ratio.max()), 1 / least if least else math.inf)
        return largest


_BITS = {2: np.int16, 4: np.int32, 8: np.int64}
_SMALLEST_NORMAL = {"bfloat16": 2.0**-126, "float16": 2.0**-14, "float32": 2.0**-126, "float64": 2.0**-1022}
_NARROW = (mindspore.float16, mindspore.bfloat16)


def perturb(perturbation: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """Return the arguments of a call, perturbed by the perturbation of that name.

    Raises NotPerturbedError, with the reason, where these arguments cannot take it.
    """
    return _PERTURBATIONS[perturbation](args, kwargs)


def add_noise(tensor: Tensor) -> Tensor:
    """Return x + e where abs(x) > sqrt(e), else x; e is the noise of the dtype, and often too small to be seen."""
    values = _wide(tensor)
    noise = noise_for(tensor.dtype, lambda: _largest(values))
    return Tensor(np.where(np.abs(values) > noise**0.5, values + noise, values)).astype(tensor.dtype)


def bit_noise(tensor: Tensor) -> Tensor:
    """Return x with its last bit flipped, but for zeros and subnormal numbers."""
    values = _wide(tensor)
    noise_for(tensor.dtype, lambda: _largest(values))
    # The array of bfloat16 has a dtype that only MindSpore knows, of two bytes.
    array = tensor.asnumpy()
    bits = _BITS[array.itemsize]
    flipped = np.abs(values) > _SMALLEST_NORMAL[dtype_name(tensor.dtype)]
    return Tensor((np.ascontiguousarray(array).view(bits) ^ flipped.astype(bits)).view(array.dtype))


def change_value(tensor: Tensor) -> Tensor:
    """Return x with its first and last elements swapped; with two dimensions or more, x[0][0] and x[-1][-1]."""
    first, last = swapped_places(tuple(tensor.shape))
    array = tensor.asnumpy()
    swapped = array.copy()
    swapped[first], swapped[last] = array[last], array[first]
    return Tensor(swapped)


def no_change(tensor: Tensor) -> Tensor:
    """Return x: whatever differs then, differs by itself."""
    return tensor


def _wide(tensor: Tensor) -> Array:
    return host(tensor).astype(np.float64)


def _largest(values: Array) -> float | None:
    return float(np.abs(values).max()) if values.size else None


def _widened(tensor: Tensor) -> Tensor:
    return tensor.astype(mindspore.float32) if tensor.dtype in _NARROW else tensor


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and bool(value.is_floating_point())


_PERTURBATIONS: Mapping[str, Callable[..., Arguments]] = {
    "improve_precision": on_all_tensors(_widened, Tensor, NOTHING_NARROW),
    "add_noise": on_first_tensor(add_noise, _is_float),
    "bit_noise": on_first_tensor(bit_noise, _is_float),
    "change_value": on_first_tensor(change_value, _is_float),
    "no_change": on_first_tensor(no_change, _is_float),
}


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
            overwritten, read = without_overwritten(self._called, perturbation, *self._arguments)
            args, kwargs = perturb(perturbation, *read)
            return self._function(*overwritten, *args, **kwargs)

    def gradients(self, perturbation: str, grad_outputs: list[Any]) -> list[Any]:
        """Return the gradients of perturbed inputs, for those of the outputs that arrived. Raises as ``results``."""
        with self._recorder.quiet():
            arguments = perturb(perturbation, *self._arguments)
        leaves = [leaf for leaf, flag in zip(tensors_in(arguments, Tensor), self._flags, strict=True) if flag]
        with self._recorder.suspended():
            # Of the sum of products with the gradients that arrived, each output's gradient is that which arrived.
            gradients = ops.GradOperation(get_all=True)(self._products(arguments, grad_outputs))(*leaves)
            return summed(gradients, self._differentiated)

    def _products(self, arguments: Arguments, grad_outputs: list[Any]) -> Callable[..., Tensor]:
        def products(*leaves: Tensor) -> Tensor:
            flags, differentiated = iter(self._flags), iter(leaves)
            args, kwargs = mapped(lambda tensor: next(differentiated) if next(flags) else tensor, Tensor, arguments)
            outputs = self._recorder.differentiated(self._function(*args, **kwargs))
            pairs = [(one, grad) for one, grad in zip(outputs, grad_outputs, strict=True) if grad is not None]
            return ops.addn([(one * grad.astype(one.dtype)).sum().float() for one, grad in pairs])

        return products


def _copy(tensor: Tensor) -> Tensor:
    return tensor.copy()


class FixedCall(BenchmarkedCall):
    """A call that is made in float32 in the first place: the values of a tensor here cannot be replaced unseen."""

    __slots__ = ()

    _recorder: MindSporeBenchmarkRecorder

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Make the call in float32 where it is wanted and can be."""
        recorder = self._recorder
        if self.is_wanted:
            try:
                result = recorder.raising.make(split_called(self.name)[0], func.function, args, kwargs)
            except UnraisedError as reason:
                recorder.leave_out(str(reason))
            except Exception as error:
                self._note_error_before(error)
            else:
                recorder.note_fixed()
                return result
        return func(*args, **kwargs)


class MindSporeBenchmarkRecorder(BenchmarkRecorder, MindSporeRecorder):
    """Makes calls of MindSpore again."""

    judging = MindSporeJudging()
    form = MINDSPORE_FORM
    fixed_call = FixedCall

    def __init__(self, settings: Settings, benchmark: BenchmarkSettings) -> None:
        super().__init__(settings, benchmark)
        self.raising = MindSporeRaising("float32")

    def again(self, name: str, func: Any, args: Any, kwargs: Any) -> MindSporeAgain:
        """Return a call that is about to be made."""
        return MindSporeAgain(self, name, func, args, kwargs)

    def table(self, folder: Path) -> Path:
        """Return the one table of all steps and ranks."""
        return self.settings.dump_path / FILE_NAME
