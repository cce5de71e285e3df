"""Products with numbers or arrays, element by element: dequantisation, and scales that another weight holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_msprobe.extensions.transformations.array_file import ArrayFile
from pytest_msprobe.extensions.transformations.step import NONE_KEPT, CallTensors, Shape, StepError, axis_of
from pytest_msprobe.extensions.transformations.step_fields import array_file, fields, integer, number

if TYPE_CHECKING:
    import torch

    from pytest_msprobe.yaml_with_lines import Part

_KEYS = ("scale", "zero_point", "axis", "group")


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
        found = fields(part, _KEYS, required=("scale",))
        return cls(
            _parameter(found["scale"]),
            _parameter(found["zero_point"]) if "zero_point" in found else 0.0,
            integer(found["axis"]) if "axis" in found else -1,
            integer(found["group"], least=1) if "group" in found else None,
        )

    @property
    def says(self) -> str:
        """What it does to a tensor."""
        groups = f" in groups of {self.group}" if self.group else ""
        return f"dequantised by {_name(self.scale)}{groups}"

    @property
    def keeps(self) -> frozenset[str]:
        """Nothing."""
        return NONE_KEPT

    @property
    def files(self) -> Sequence[Path]:
        """The files of scale and zero point."""
        return tuple(each.path for each in (self.scale, self.zero_point) if isinstance(each, ArrayFile))

    def shape(self, shape: Shape) -> Shape:
        """Return the same shape."""
        return shape

    def apply(self, tensor: torch.Tensor, call: CallTensors) -> torch.Tensor:
        """Return the dequantised tensor, in float64."""
        shape = tuple(tensor.shape)
        given = (self.scale, self.zero_point)
        scale, zero_point = (_fitted(each, shape, call, self.axis, self.group) for each in given)
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
        found = fields(part, ("by", "divide_by", "axis"))
        given = [name for name in ("by", "divide_by") if name in found]
        if len(given) != 1:
            raise part.refuse("scale takes either by or divide_by")
        axis = integer(found["axis"]) if "axis" in found else -1
        return cls(_parameter(found[given[0]]), is_quotient=given == ["divide_by"], axis=axis)

    @property
    def says(self) -> str:
        """What it does to a tensor."""
        return f"{'divided' if self.is_quotient else 'scaled'} by {_name(self.factor)}"

    @property
    def keeps(self) -> frozenset[str]:
        """Nothing."""
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
        fitted = fitted.reshape([-1 if each == axis else 1 for each in range(len(shape))])
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
