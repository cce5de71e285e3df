"""Calls of MindSpore in another precision, and their side effects, as far as names and primitives show them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mindspore
from mindspore import Tensor
from mindspore.ops import Primitive

from msprobe_hooks.dump.names import is_distributed, is_in_place
from msprobe_hooks.errors import ConfigError
from msprobe_hooks.extensions.mindspore.call_recording import Finishing
from msprobe_hooks.extensions.mindspore.recorder import same_bits
from msprobe_hooks.recording.backward import mapped, tensors_in
from msprobe_hooks.recording.upcasts import CallCache, NothingToRaiseError, Precision, UnraisedError

_TO_FLOAT32 = {mindspore.float16: mindspore.float32, mindspore.bfloat16: mindspore.float32}
_TO_FLOAT64 = dict.fromkeys((*_TO_FLOAT32, mindspore.float32), mindspore.float64)
_FLOATS = (*_TO_FLOAT64, mindspore.float64)

_DRAWING = frozenset(
    """
    bernoulli bernoulli_ choice_with_mask dropout dropout1d dropout2d dropout3d exponential_ fractional_max_pool3d gamma
    gumbel_softmax laplace log_uniform_candidate_sampler multinomial multinomial_with_replacement normal normal_ rand
    rand_like randint randint_like randn randn_like random_ random_categorical random_gamma random_poisson randperm
    rrelu shuffle standard_laplace standard_normal uniform uniform_ uniform_candidate_sampler
    """.split()
)


class MindSporeRaising:
    """Makes calls in another precision, and returns what they give in the dtypes that they would have given.

    Raises ConfigError for ``cpu`` unless MindSpore computes there: a function runs where its process does.
    """

    def __init__(self, to: Precision) -> None:
        target = mindspore.get_context("device_target")
        if to == "cpu" and target != "CPU":
            raise ConfigError("to", to, f"float32 or float64, as MindSpore computes on {target}")
        self._dtypes: Mapping[Any, Any] = _TO_FLOAT64 if to == "float64" else _TO_FLOAT32
        self._dtypes_of_results = CallCache[Sequence[Any]]()

    def require(self, called: str, function: Any, args: Any, kwargs: Any) -> Sequence[Any]:
        """Return the dtypes of the tensors that a call gives as it is.

        A call that none was like is also made on copies. Raises UnraisedError where it cannot be
        raised, or would be none the better for it.
        """
        if not any(tensor.dtype in self._dtypes for tensor in tensors_in((args, kwargs), Tensor)):
            raise NothingToRaiseError("no argument has a lower precision")
        reason = why_once(called, function)
        if reason is not None:
            raise UnraisedError(reason)
        if is_in_place(called):
            raise UnraisedError("it overwrites its arguments")
        return self._dtypes_of_results.of(
            (called, _form(args), _form(kwargs)), lambda: self._tried(function, args, kwargs)
        )

    def make(self, called: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Make a call in this precision. Raises UnraisedError as ``require``, and where it fails so."""
        dtypes = self.require(called, function, args, kwargs)
        raised = {id(tensor): self._cast(tensor) for tensor in tensors_in((args, kwargs), Tensor)}
        try:
            result = _with(raised, function, args, kwargs)
        except Exception as error:
            raise UnraisedError(f"in the other precision it raises {type(error).__name__}") from error
        narrow = [dtype for dtype in dtypes if dtype in self._dtypes]
        if narrow and all(tensor.dtype not in self._dtypes.values() for tensor in tensors_in(result, Tensor)):
            # As in a cell with to_float, which casts below what is seen of its calls.
            raise UnraisedError("its result stays in the lower precision")
        as_given = iter(dtypes)
        return mapped(lambda tensor: _as(tensor, next(as_given)), Tensor, result)

    def _cast(self, tensor: Tensor) -> Tensor:
        return tensor.astype(self._dtypes[tensor.dtype]) if tensor.dtype in self._dtypes else tensor

    def _tried(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Sequence[Any]:
        with mindspore._no_grad():
            originals = {id(tensor): tensor for tensor in tensors_in((args, kwargs), Tensor)}
            copies = {key: tensor.copy() for key, tensor in originals.items()}
            try:
                result = _with(copies, function, args, kwargs)
            except Exception as error:
                raise UnraisedError("its result is not known in advance") from error
            if not all(same_bits(originals[key], copy) for key, copy in copies.items()):
                raise UnraisedError("it overwrites its arguments")
        outputs = tensors_in(result, Tensor)
        if not any(output.dtype in _FLOATS for output in outputs):
            raise NothingToRaiseError("it returns no floating-point tensor")
        memory = {copy.untyped_storage().data_ptr() for copy in copies.values()}
        if any(output.untyped_storage().data_ptr() in memory for output in outputs):
            raise NothingToRaiseError("it returns its argument's memory and computes nothing")
        return [output.dtype for output in outputs]


def _with(tensors: Mapping[int, Tensor], function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call a function with other tensors in the place of its own, by their ids, and wait for it."""
    args, kwargs = (mapped(lambda tensor: tensors[id(tensor)], Tensor, tree) for tree in (args, kwargs))
    return Finishing(function)(*args, **kwargs)


def _as(tensor: Tensor, dtype: Any) -> Tensor:
    return tensor if tensor.dtype == dtype else tensor.astype(dtype)


def _form(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.dtype, value.shape
    if isinstance(value, (list, tuple)):
        return type(value), tuple(map(_form, value))
    if isinstance(value, dict):
        return tuple((key, _form(item)) for key, item in value.items())
    # A float may be another one at each step.
    return type(value), None if type(value) is float else value


def why_once(called: str, function: Any) -> str | None:
    """Return why a call cannot be made a second time without the program noticing, None where it can.

    ``called`` is its name, ``Type.api``, and ``function`` what is called.
    """
    kind, _, api = called.partition(".")
    if kind == "Jit":
        return "it is compiled, and may change parameters that are not its arguments"
    if is_distributed(called):
        return "it communicates"
    # MindSpore's kernels keep generators of their own, whose states cannot be read.
    if api in _DRAWING or (isinstance(function, Primitive) and "side_effect_hidden" in function.attrs):
        return "it draws random numbers"
    return None
