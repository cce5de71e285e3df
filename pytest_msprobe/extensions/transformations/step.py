"""Steps of a transformation, and their fields in a YAML file: numbers, choices, arrays of a file, and scales."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol

from msprobe_hooks.errors import DumpError
from msprobe_hooks.regular_files import require_regular
from pytest_msprobe.engine.import_torch import import_torch
from pytest_msprobe.errors import OptionError, not_one_of, unknown

if TYPE_CHECKING:
    import torch

    from pytest_msprobe.yaml_with_lines import Part


Side = Literal["target", "golden"]
SIDES: Final[tuple[Side, ...]] = ("target", "golden")
Shape = tuple[int, ...]

#: The statistics that a step does not change, by their names in `rows.STATISTICS`.
ALL_KEPT: Final = frozenset({"max", "min", "mean", "norm"})
NORM_KEPT: Final = frozenset({"norm"})
NONE_KEPT: Final[frozenset[str]] = frozenset()

_SUFFIXES = (".npy", ".safetensors", ".pt", ".pth")
_REMEDY = "name a .npy file, or the tensor in a .safetensors or .pt file by its key"

# No model has as many layers or experts.
_MOST = 100_000

_KEYS = ("scale", "zero_point", "axis", "group")


class StepError(ValueError):
    """A step does not fit a tensor; the text says why, as a part of a sentence."""


class CallTensors(Protocol):
    """The other recorded tensors of the call that a value belongs to."""

    def tensor(self, place: str) -> torch.Tensor:
        """Return the tensor in a place of the call, such as ``input.1``. Raises StepError where there is none."""


class Step(Protocol):
    """One step of a transformation: a tensor in, a tensor out."""

    @property
    def says(self) -> str:
        """Return what it does to a tensor, after "target" or "golden": ``rotated by Q.npy``."""

    @property
    def keeps(self) -> frozenset[str]:
        """The statistics that a tensor has after the step as before it."""

    @property
    def files(self) -> Sequence[Path]:
        """The files that it reads."""

    def shape(self, shape: Shape) -> Shape:
        """Return the shape of what a tensor of a shape becomes. Raises StepError where the step does not fit."""

    def apply(self, tensor: torch.Tensor, call: CallTensors) -> torch.Tensor:
        """Return what a plain CPU tensor becomes; a step that computes does so in float64.

        Raises StepError where the step does not fit.
        """


def axis_of(axis: int, shape: Shape) -> int:
    """Return an axis counted from the first. Raises StepError where a tensor of this shape has none of that number."""
    if not -len(shape) <= axis < len(shape):
        raise StepError(f"there is no axis {axis} in shape {list(shape)}")
    return axis % len(shape)


@dataclass(frozen=True)
class ArrayFile:
    """An array in a file; ``key`` is its name there, empty for a file of one array. ``place`` is the line that says so.

    Pickled objects are not read, and neither is code.
    """

    path: Path
    key: str
    place: str

    @property
    def name(self) -> str:
        """The name of the file, with that of the array where it has one."""
        return f"{self.path.name}[{self.key}]" if self.key else self.path.name

    @cached_property
    def tensor(self) -> torch.Tensor:
        """The array. Raises OptionError that names line, file and problem."""
        import_torch()
        try:
            return self._read()
        except OSError as error:
            raise self._refuse(f"cannot be read: {error.strerror or error}") from None
        except DumpError as error:
            raise OptionError(str(error), file=self.place) from None
        except OptionError:
            raise
        except Exception as error:
            # Bytes that are no array make the readers raise almost anything.
            first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise self._refuse(f"not a readable array: {first_line}") from None

    def _read(self) -> torch.Tensor:
        import numpy as np
        import torch

        if self.path.suffix == ".npy":
            if self.key:
                raise self._refuse("a .npy file holds one array; leave the key out")
            require_regular(self.path)
            # Copied where it is written to, which torch asks for and nothing does.
            return torch.from_numpy(np.load(self.path, mmap_mode="c", allow_pickle=False))
        if self.path.suffix == ".safetensors":
            return self._of_safetensors()
        if self.path.suffix not in _SUFFIXES:
            raise self._refuse(f"{self.path.suffix or 'no suffix'} is not one of {', '.join(_SUFFIXES)}")
        from msprobe_hooks.torch.torch_files import load_torch_file

        loaded = load_torch_file(self.path, mapped=True)
        if isinstance(loaded, dict):
            loaded = loaded[self._key_among(list(map(str, loaded)))]
        if not isinstance(loaded, torch.Tensor):
            raise self._refuse(f"holds a {type(loaded).__name__}, not a tensor")
        return loaded.detach()

    def _of_safetensors(self) -> torch.Tensor:
        from msprobe_hooks.dump.containers import tensor_names
        from pytest_msprobe.engine.values.tensor_files import read_contained

        return read_contained(self.path, self._key_among(tensor_names(self.path)), mapped=True)

    def _key_among(self, names: list[str]) -> str:
        if not self.key and len(names) == 1:
            return names[0]
        if not self.key:
            raise self._refuse(f"holds {len(names)} tensors; say which by its key")
        if self.key not in names:
            raise self._refuse(f"its key {self.key!r} is {not_one_of(self.key, names[:20])}")
        return self.key

    def _refuse(self, problem: str) -> OptionError:
        return OptionError(f"{self.path}: {problem}", file=self.place, remedy=_REMEDY)


def fields(part: Part, allowed: Sequence[str], required: Sequence[str] = ()) -> dict[str, Part]:
    """Return the fields of a mapping. Raises OptionError for an unknown one, and where a required one is missing."""
    parts: dict[str, Part] = {}
    for name, key, value in part.items(f"not a mapping with the keys {', '.join(allowed)}"):
        if name not in allowed:
            raise key.refuse(unknown("key", name, allowed))
        parts[name] = value
    missing = [name for name in required if name not in parts]
    if missing:
        raise part.refuse(f"{missing[0]} is missing; add it")
    return parts


def integer(part: Part, *, least: int | None = None) -> int:
    """Return an integer, at least ``least``. Raises OptionError."""
    text = part.text("an integer")
    try:
        value = int(text)
    except ValueError:
        raise part.refuse(f"{text!r} in place of an integer") from None
    if least is not None and value < least:
        raise part.refuse(f"{value} in place of an integer of at least {least}")
    return value


def integers(part: Part) -> tuple[int, ...]:
    """Return a list of integers. Raises OptionError."""
    if not part.is_list:
        raise part.refuse("not a list of integers, as [0, 1]")
    return tuple(integer(member) for member in part.members())


def integer_range(part: Part) -> Sequence[int]:
    """Return a list of integers, or those from the first to the last of ``0-31``. Raises OptionError."""
    if part.is_list:
        return integers(part)
    text = part.text("numbers")
    first, dash, last = text.partition("-")
    if not (dash and first.isdecimal() and last.isdecimal()) or not int(first) <= int(last) < _MOST:
        raise part.refuse(f"{text!r} in place of numbers, such as 0-31 or [0, 2]")
    return range(int(first), int(last) + 1)


def number(part: Part) -> float:
    """Return a finite number. Raises OptionError."""
    text = part.text("a number")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise part.refuse(f"{text!r} in place of a number")
    return value


def choice(part: Part, allowed: Sequence[str]) -> str:
    """Return one of some words. Raises OptionError."""
    text = part.text(" or ".join(allowed))
    if text not in allowed:
        raise part.refuse(f"{text!r} is {not_one_of(text, allowed)}")
    return text


def flag(part: Part) -> bool:
    """Return true or false. Raises OptionError."""
    return choice(part, ("true", "false")) == "true"


def array_file(part: Part) -> ArrayFile:
    """Return an array: a file relative to the YAML's folder, or ``{file: F, key: K}``, read at once.

    Raises OptionError, also where the file cannot be read.
    """
    key = ""
    if part.is_mapping:
        keys = fields(part, ("file", "key"), required=("file",))
        key = keys["key"].text("the name of a tensor") if "key" in keys else ""
        part = keys["file"]
    found_array = ArrayFile(part.path.parent / part.text("a file"), key, part.place)
    _ = found_array.tensor
    return found_array


@dataclass(frozen=True)
class CallValue:
    """Another value of the same call and side, by its place there, such as ``input.1``."""

    place: str


#: A number, an array in a file, or a value of the same call.
Parameter = float | ArrayFile | CallValue


@dataclass(frozen=True)
class Dequantisation:
    """``(q - zero_point) * scale``, the formula of ONNX's DequantizeLinear; both are numbers or arrays.

    An array of one element holds for the whole tensor, one of one axis for the channels along ``axis``, any other is
    broadcast. With ``group`` each element of an array is for so many in a row along ``axis``.
    """

    scale: Parameter
    zero_point: Parameter = 0.0
    axis: int = -1
    group: int | None = None

    @classmethod
    def read(cls, part: Part) -> Dequantisation:
        """Read ``dequantise``. Raises OptionError."""
        keys = fields(part, _KEYS, required=("scale",))
        return cls(
            _parameter(keys["scale"]),
            _parameter(keys["zero_point"]) if "zero_point" in keys else 0.0,
            integer(keys["axis"]) if "axis" in keys else -1,
            integer(keys["group"], least=1) if "group" in keys else None,
        )

    @property
    def says(self) -> str:
        """Return what it does to a tensor."""
        groups = f" in groups of {self.group}" if self.group else ""
        return f"dequantised by {_name(self.scale)}{groups}"

    @property
    def keeps(self) -> frozenset[str]:
        """No statistics."""
        return NONE_KEPT

    @property
    def files(self) -> Sequence[Path]:
        """The files of scale and zero point."""
        return tuple(parameter.path for parameter in (self.scale, self.zero_point) if isinstance(parameter, ArrayFile))

    def shape(self, shape: Shape) -> Shape:
        """Return the same shape."""
        return shape

    def apply(self, tensor: torch.Tensor, call: CallTensors) -> torch.Tensor:
        """Return the dequantised tensor, in float64."""
        shape = tuple(tensor.shape)
        parameters = (self.scale, self.zero_point)
        scale, zero_point = (_fitted(parameter, shape, call, self.axis, self.group) for parameter in parameters)
        return (tensor.double() - zero_point) * scale


@dataclass(frozen=True)
class Scaling:
    """``x * factor``, or ``x / factor``: a number or an array, which is fitted as a scale of `Dequantisation` is."""

    factor: Parameter
    is_quotient: bool = False
    axis: int = -1

    @classmethod
    def read(cls, part: Part) -> Scaling:
        """Read ``scale``. Raises OptionError."""
        keys = fields(part, ("by", "divide_by", "axis"))
        names = [name for name in ("by", "divide_by") if name in keys]
        if len(names) != 1:
            raise part.refuse("scale takes either by or divide_by")
        axis = integer(keys["axis"]) if "axis" in keys else -1
        return cls(_parameter(keys[names[0]]), is_quotient=names == ["divide_by"], axis=axis)

    @property
    def says(self) -> str:
        """Return what it does to a tensor."""
        return f"{'divided' if self.is_quotient else 'scaled'} by {_name(self.factor)}"

    @property
    def keeps(self) -> frozenset[str]:
        """No statistics."""
        return NONE_KEPT

    @property
    def files(self) -> Sequence[Path]:
        """The factor's file."""
        return (self.factor.path,) if isinstance(self.factor, ArrayFile) else ()

    def shape(self, shape: Shape) -> Shape:
        """Return the same shape."""
        return shape

    def apply(self, tensor: torch.Tensor, call: CallTensors) -> torch.Tensor:
        """Return the scaled tensor, in float64."""
        factor = _fitted(self.factor, tuple(tensor.shape), call, self.axis)
        return tensor.double() / factor if self.is_quotient else tensor.double() * factor


def _fitted(
    parameter: Parameter, shape: Shape, call: CallTensors, axis: int, group: int | None = None
) -> torch.Tensor | float:
    """Return a number, or an array that is broadcast over a shape. Raises StepError where it does not fit."""
    if isinstance(parameter, float):
        return parameter
    array = parameter.tensor if isinstance(parameter, ArrayFile) else call.tensor(parameter.place)
    array = array.double()
    if array.numel() == 1:
        return float(array)
    axis = axis_of(axis, shape)
    fitted = array
    if group is not None:
        fitted = fitted.repeat_interleave(group, dim=0 if array.ndim == 1 else axis_of(axis, tuple(array.shape)))
    if array.ndim == 1:
        fitted = fitted.reshape([-1 if dim == axis else 1 for dim in range(len(shape))])
    sizes = [1] * (len(shape) - fitted.ndim) + list(fitted.shape)
    if len(sizes) > len(shape) or any(size not in (1, whole) for size, whole in zip(sizes, shape, strict=True)):
        groups = f" in groups of {group}" if group else ""
        raise StepError(f"{_name(parameter)} of shape {list(array.shape)}{groups} does not fit {list(shape)}")
    return fitted


def _name(parameter: Parameter) -> str:
    if isinstance(parameter, ArrayFile):
        return parameter.name
    return parameter.place if isinstance(parameter, CallValue) else f"{parameter:g}"


def _parameter(part: Part) -> Parameter:
    """Return a number, ``{value: input.1}``, or an array's file."""
    if part.is_mapping:
        keys = {name for name, _, _ in part.items("")}
        if "value" in keys:
            return CallValue(fields(part, ("value",), required=("value",))["value"].text("the place of a value"))
        return array_file(part)
    text = part.text("a number, a file, or {value: PLACE}")
    try:
        float(text)
    except ValueError:
        return array_file(part)
    return number(part)
