"""Python arguments of a recorded call, and the subject of a trial: functions, arguments, arriving gradients."""

from __future__ import annotations

import contextlib
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import torch

from msprobe_hooks.dump.memory_layouts import Layout
from msprobe_hooks.dump.schema import (
    Element,
    ForwardRecord,
    MappingElement,
    TensorElement,
    ValueElement,
    tensors_of,
    walk_tensors,
)
from msprobe_standards.tensor_layouts import is_plain
from pytest_msprobe.engine.replay.call import Call, operation
from pytest_msprobe.engine.replay.calls.laid_out_tensors import Memory, in_memory, lay_out_all, layouts_of
from pytest_msprobe.engine.replay.inputs.constraints.drawn import DrawnArguments
from pytest_msprobe.engine.replay.inputs.large_tensors import Undrawn, undrawn_tensor
from pytest_msprobe.engine.replay.inputs.random_tensors import narrowed, random_tensor, stream_seed
from pytest_msprobe.engine.replay.inputs.sparse_reads import draw_what_is_read
from pytest_msprobe.engine.replay.ops.op_info import op_info
from pytest_msprobe.engine.values.dtypes import dtype_named
from pytest_msprobe.engine.values.error_kinds import REFUSALS
from pytest_msprobe.engine.values.pytree import map_leaves, map_with_paths, tensors_with_paths
from pytest_msprobe.engine.values.strides import resolved
from pytest_msprobe.engine.values.tensor_files import load_tensor
from pytest_msprobe.results.outcomes import Skip, SkipReason

TensorSource: TypeAlias = Callable[[TensorElement, str], torch.Tensor]

_INT64 = torch.iinfo(torch.int64)
# Names under which quantizing operators take a dtype, which msprobe records as an empty object.
_DTYPES_OF_THE_FIRST_RESULT = frozenset({"dst_dtype", "dst_type", "output_dtype", "y_dtype"})
# With the index of a card any backend's.
_DEVICE_NAME = re.compile(r"(cpu|cuda|npu|xpu|mps|hpu|mlu|musa|gcu|privateuseone|sim)(:\d+)?|\w+:\d+")


def constrain(
    api: str, args: tuple[Any, ...], kwargs: dict[str, Any], seed: int
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the drawn arguments of an API, mended in place where the API promises nothing for what was drawn.

    Arguments that the API does not take stay as they are: the CPU refuses them, and says why.
    """
    constraint = op_info(api).constraint
    if constraint is None:
        return args, kwargs
    drawn = DrawnArguments(args, kwargs, seed)
    with contextlib.suppress(*REFUSALS):
        constraint(drawn)
    return tuple(drawn.args), drawn.kwargs


@dataclass(frozen=True, slots=True)
class DeviceArgument:
    """Represents a recorded device; each side of the check puts its own device there."""


@dataclass(frozen=True)
class Arguments:
    """A call's arguments as CPU values in the recorded dtypes.

    ``differentiable`` holds the paths of the tensors whose gradients were wanted: ``args.0``, ``kwargs.weight``.
    ``layouts`` are those of tensors that lie in memory as they were recorded; ``tied`` the paths of those that golden
    needs in the same memory, as they have elements in common or the call reads how they lie.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    differentiable: frozenset[str]
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    tied: frozenset[str] = frozenset()

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the tensors, and the numpy arrays as tensors, with their paths: ``args.0``, ``kwargs.weight``."""
        for name, tree in (("args", self.args), ("kwargs", self.kwargs)):
            yield from tensors_with_paths(map_leaves(_as_tensor, tree), name)

    @cached_property
    def tensor_dtypes(self) -> frozenset[torch.dtype]:
        """The dtypes of all tensors among the arguments, nested ones included."""
        return frozenset(tensor.dtype for _, tensor in tensors_with_paths([self.args, self.kwargs]))

    @property
    def has_rounded_scalars(self) -> bool:
        """Return whether a number is passed that a device may round before it computes: any but a power of two."""
        return any(map(_is_rounded, (*self.args, *self.kwargs.values())))

    def laid_out(self, layouts: Mapping[str, Layout], operation: str, *, in_memory: bool) -> Arguments:
        """Return them with the tensors at these paths in memory of those layouts.

        Not ``in_memory``, only the values are what they can be there: those of one place are the same.
        """
        tensors = dict(self.tensors())
        # What is given with strides of its own keeps them.
        fresh = {path: layout for path, layout in layouts.items() if _is_to_be_laid_out(tensors[path], layout)}
        result = lay_out_all(tensors, fresh, op_info(operation).storage)
        placed = result.tensors
        if not in_memory:
            values = {path: placed.get(path, tensors[path]) for path in layouts if is_plain(tensors[path])}
            placed = {path: resolved(tensor).contiguous() for path, tensor in values.items()}

        def put(path: str, leaf: Any) -> Any:
            return placed.get(path, leaf) if isinstance(leaf, torch.Tensor) else leaf

        args, kwargs = map_with_paths(put, self.args, "args"), map_with_paths(put, self.kwargs, "kwargs")
        if not in_memory:
            return replace(self, args=args, kwargs=kwargs)
        in_memory_layouts = {path: layout for path, layout in layouts.items() if path in placed or path not in fresh}
        return replace(self, args=args, kwargs=kwargs, layouts=in_memory_layouts, tied=result.tied)


def _is_to_be_laid_out(tensor: torch.Tensor, layout: Layout) -> bool:
    return is_plain(tensor) and (tensor.is_contiguous() or tensor.stride() == layout.stride)


def _as_tensor(leaf: Any) -> Any:
    return torch.from_numpy(leaf) if isinstance(leaf, np.ndarray) else leaf


def _is_rounded(value: Any) -> bool:
    if isinstance(value, float):
        return abs(math.frexp(value)[0]) not in (0.0, 0.5)
    return isinstance(value, int) and abs(value) & (abs(value) - 1) != 0


def build_arguments(
    call: Call,
    *,
    seed: int,
    real_data: bool,
    narrow: bool = False,
    source: TensorSource | None = None,
    memory: Memory = "recorded",
) -> Arguments:
    """Rebuild the arguments of a call, from its tensor files where there are any and ``real_data`` allows them.

    Others are drawn, from their whole recorded range or a ``narrow`` one. Tensors that a ``source`` gives are taken as
    they are, but for the ``memory`` in which tensors are to lie.

    Raises Skip where an argument cannot be rebuilt, DumpError where a tensor file is unusable.
    """
    record = call.forward
    if not (record.args or record.kwargs) and record.output == []:
        raise Skip(SkipReason.NO_ARGUMENTS)
    is_supplied, undrawn = source is not None, list[Undrawn]()
    traits = op_info(call.api)
    reads = traits.reads
    if source is None:
        postpone = undrawn.append if reads else None
        source = tensor_source(call, seed=seed, real_data=real_data, narrow=narrow, postpone=postpone)
    args = tuple(_positional(call, source))
    kwargs = {key: _named(call, element, key, source) for key, element in record.kwargs.items()}
    if traits.class_targets:
        args, kwargs = tuple(map(_widened, args)), {key: _widened(value) for key, value in kwargs.items()}
    if traits.constraint is not None and not is_supplied and (not real_data or _draws_numbers(call)):
        args, kwargs = constrain(call.api, args, kwargs, stream_seed(seed, str(call.name), "constraints"))
    recorded = [*walk_tensors(record.args, "args"), *walk_tensors(record.kwargs, "kwargs")]
    is_loaded = real_data and any(element.data_name for _, element in recorded)
    # MindSpore defines results there by itself.
    if traits.points and not (is_supplied or is_loaded or "mindspore.Tensor" in {e.type for _, e in recorded}):
        with contextlib.suppress(*REFUSALS):
            traits.points(DrawnArguments(args, kwargs, stream_seed(seed, str(call.name), "points")))
    if reads and undrawn:
        draw_what_is_read(undrawn, reads, DrawnArguments(args, kwargs, seed))
    arguments = Arguments(args, kwargs, _differentiable(record, recorded))
    layouts = layouts_of(recorded, arguments.tensors() if is_loaded else ())
    if not layouts or memory == "given":
        return arguments
    shapes = {path: element.shape for path, element in recorded}
    fitting = {path: tuple(tensor.shape) == shapes.get(path) for path, tensor in arguments.tensors()}
    layouts = {path: layout for path, layout in layouts.items() if fitting.get(path)}
    return arguments.laid_out(in_memory(layouts, memory), operation(call.api), in_memory=memory != "contiguous")


def has_tensor_files(call: Call) -> bool:
    """Return whether the values of a call's tensors were recorded."""
    return any(tensor.data_name for tensor in tensors_of([*call.forward.args, *call.forward.kwargs.values()]))


def _draws_numbers(call: Call) -> bool:
    """Return whether no values of a call's tensors were recorded, or not those of one that holds whole numbers."""
    tensors = tensors_of([*call.forward.args, *call.forward.kwargs.values()])
    unknown = [tensor for tensor in tensors if not tensor.data_name]
    return len(unknown) == len(tensors) or any("int" in tensor.dtype.lower() for tensor in unknown)


def tensor_source(
    call: Call, *, seed: int, real_data: bool, narrow: bool = False, postpone: Callable[[Undrawn], None] | None = None
) -> TensorSource:
    """Return the function that makes the tensor for an element at a path of this call.

    A distributed one is drawn: its file has a part. Large ones that can be drawn in parts are given to ``postpone``.
    """

    def make(element: TensorElement, path: str) -> torch.Tensor:
        if real_data and element.data_name and not element.type.endswith("DTensor"):
            return load_tensor(element, call.tensor_folder)
        element, own_seed = narrowed(element) if narrow else element, stream_seed(seed, call.name.key, path)
        is_dense = element.layout is None and element.nnz is None
        undrawn = undrawn_tensor(element, own_seed) if postpone is not None and is_dense else None
        if undrawn is None or postpone is None:
            return random_tensor(element, own_seed)
        postpone(undrawn)
        return undrawn.tensor

    return make


def _positional(call: Call, source: TensorSource) -> list[Any]:
    recorded = call.forward.args
    args = [
        unrecoverable_argument(call, i) if element == MappingElement({}) else _argument(element, f"args.{i}", source)
        for i, element in enumerate(recorded)
    ]
    if call.api == "to":
        args[1:] = [DeviceArgument() if _names_device(value) else value for value in args[1:]]
    if op_info(call.api).index and len(args) > 1 and isinstance(args[1], list) and not _is_position_list(call):
        # JSON turned the tuple of indices into an array, which torch would take for a list of positions.
        args[1] = tuple(args[1])
    return args


def _named(call: Call, element: Element, key: str, source: TensorSource) -> Any:
    if key == "device" and element is not None:
        return DeviceArgument()
    if key in _DTYPES_OF_THE_FIRST_RESULT and element == MappingElement({}):
        return unrecoverable_argument(call, len(call.forward.args))
    return _argument(element, f"kwargs.{key}", source)


def _widened(value: Any) -> Any:
    # Devices take class numbers of any width, torch's CPU of 64 bits only.
    return value.long() if isinstance(value, torch.Tensor) and value.dtype in (torch.int32, torch.int16) else value


def _names_device(value: Any) -> bool:
    named = isinstance(value, str) and _DEVICE_NAME.fullmatch(value) is not None
    return named or value == torch._C._get_privateuse1_backend_name()


def _is_position_list(call: Call) -> bool:
    """Return whether an index of whole numbers was a list, ``x[[0, 2]]``, and not a tuple, ``x[0, 2]``."""
    source, index = call.forward.args[:2]
    if not (isinstance(source, TensorElement) and isinstance(index, list)):
        return False
    if not all(isinstance(part, ValueElement) and part.type == "int" for part in index):
        return False
    output = next(iter(tensors_of(call.forward.output)), None)
    as_list = (len(index), *source.shape[1:])
    return len(index) > len(source.shape) or (output is not None and output.shape == as_list)


def unrecoverable_argument(call: Call, position: int) -> Any:
    """Return the dtype or device that msprobe recorded as an empty object, where the output shows it."""
    record = call.forward
    outputs, inputs = (tensors_of(part) for part in (record.output, record.args))
    if not outputs:
        raise Skip(SkipReason.LOST_ARGUMENT, "a positional dtype or device")
    is_followed = record.args[position + 1 : position + 2] == [MappingElement({})]
    if call.api == "to" and (is_followed or (inputs and outputs[0].dtype == inputs[0].dtype)):
        return DeviceArgument()
    return dtype_named(outputs[0].dtype)


def _argument(element: Element, path: str, source: TensorSource) -> Any:
    if element is None:
        return None
    if isinstance(element, TensorElement):
        tensor = source(element, path)
        return tensor.numpy() if element.type == "numpy.ndarray" else tensor
    if isinstance(element, list):
        return [_argument(item, f"{path}.{i}", source) for i, item in enumerate(element)]
    if isinstance(element, MappingElement):
        return {key: _argument(item, f"{path}.{key}", source) for key, item in element.items.items()}
    return _value(element, path)


def _value(element: ValueElement, path: str) -> Any:
    value = element.value
    if element.type in _FROM_LIST and isinstance(value, list):
        try:
            return _FROM_LIST[element.type](value)
        except (TypeError, ValueError, OverflowError):
            raise Skip(SkipReason.LOST_ARGUMENT, f"{path} of type {element.type}") from None
    if element.type == "ellipsis":
        return ...
    if element.type == "torch.dtype":
        return dtype_named(str(value))
    if element.type == "torch.device":
        return DeviceArgument()
    if element.type == "torch.memory_format":
        return _torch_constant(value, torch.memory_format, path)
    if element.type == "torch.layout":
        return _torch_constant(value, torch.layout, path)
    if isinstance(value, (bool, int, float, str)):
        return value
    raise Skip(SkipReason.LOST_ARGUMENT, f"{path} of type {element.type}")


def _slice(parts: list[Any]) -> slice:
    start, stop, step = (None if part is None else operator.index(part) for part in parts)
    return slice(start, stop, step)


def _size(parts: list[Any]) -> torch.Size:
    # torch takes a whole number of any length here, and fails where it is read.
    if any(abs(part) > _INT64.max for part in parts):
        raise ValueError
    return torch.Size(parts)


def _complex(parts: list[Any]) -> complex:
    # What is not finite stands in JSON as text.
    real, imag = map(float, parts)
    return complex(real, imag)


_FROM_LIST: dict[str, Callable[[list[Any]], Any]] = {"slice": _slice, "torch.Size": _size, "complex": _complex}


def _torch_constant(name: object, kind: type, path: str) -> Any:
    constant = getattr(torch, str(name).removeprefix("torch."), None)
    if not isinstance(constant, kind):
        raise Skip(SkipReason.LOST_ARGUMENT, f"{path}: {name!r} is not a {kind.__name__}")
    return constant


def _differentiable(record: ForwardRecord, recorded: Iterable[tuple[str, TensorElement]]) -> frozenset[str]:
    # torch refuses to differentiate through out=; functions in Python pass on out=None.
    is_written = record.kwargs.get("out") is not None
    return frozenset() if is_written else frozenset(path for path, tensor in recorded if tensor.requires_grad)


@dataclass(frozen=True, slots=True)
class Origin:
    """Recorded call that arguments were made for; a remote device makes them by it, and released ones are drawn anew.

    ``memory`` is that of `ReplayConfig`. ``drawn`` is the seed of the arguments and whether they are from narrow
    ranges; None where they were not drawn. ``drawn_again`` draws the same arguments; None where that is not to be done.
    """

    call: Call
    memory: Memory
    drawn: tuple[int, bool] | None = None
    drawn_again: Callable[[], Arguments] | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """Call under trial. ``key`` is the record's name without direction; ``api`` the name that the policy knows.

    ``grad_outputs`` makes the gradients of a run's results, by path, as CPU tensors; None where there is
    no backward. ``output_dtypes`` are the recorded ones, empty where nothing was recorded; ``seed`` is for what
    the API itself draws. ``changed`` says which argument is not the recorded one, as ``dropout_p=0``. ``origin`` is
    None where nothing was recorded.
    ``is_given`` says that a test gives the arguments as they are: golden has to take them, and fails the test if not.
    ``draws_from_generator`` says that what the target draws at random comes from torch's generators, and from no seed
    of its own.
    """

    key: str
    api: str
    target: Callable[..., Any]
    golden: Callable[..., Any]
    arguments: Arguments
    grad_outputs: Callable[[Any], Mapping[str, torch.Tensor]] | None = None
    autocast: torch.dtype | None = None
    output_dtypes: tuple[str, ...] = ()
    seed: int = 0
    changed: str = ""
    origin: Origin | None = None
    is_given: bool = False
    draws_from_generator: bool = False

    @property
    def operation(self) -> str:
        """The API's name without namespace and overload."""
        return operation(self.api)


class CheckError(Exception):
    """A test's own check has nothing to compare, on any device; what golden raised, if anything, is the cause."""


class TargetError(Exception):
    """The function raised on the device, though the CPU computes it."""
