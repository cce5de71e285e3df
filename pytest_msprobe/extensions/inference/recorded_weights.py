"""The parameters that both runs recorded, whole, under the trainer's names, and how far they are apart."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

import torch

from msprobe_hooks.dump.names import coarser, float_dtype
from pytest_msprobe.extensions.inference.passes import ForwardPass
from pytest_msprobe.extensions.inference.token_layout import read_tensor
from pytest_msprobe.extensions.model_names.fused_parts import Canonical, ModelSizes, UnknownSizesError, part_rows

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump
    from msprobe_hooks.dump.values import Value
    from pytest_msprobe.extensions.model_names.model_names import ModelNames


# Both norms are sums of many squares.
_SLACK = 1.01

#: Half the distance of 1 to the next number.
UNIT_ROUNDOFF: Final = {
    "float8": 2.0**-4,
    "bfloat16": 2.0**-8,
    "float16": 2.0**-11,
    "float32": 2.0**-24,
    "float64": 2.0**-53,
}


@dataclass(frozen=True, slots=True)
class RecordedParameter:
    """A parameter, or a part of a fused one, as each rank recorded it.

    ``experts`` has those of single experts by their numbers; one of all experts, or of none, is in ``values``.
    """

    canonical: Canonical
    part: str
    values: Sequence[tuple[Value, Dump]] = ()
    experts: dict[int, RecordedParameter] = field(default_factory=dict)

    @property
    def dtype(self) -> str:
        """The dtype by its plain name, empty where it is no float."""
        if self.experts:
            return next(iter(self.experts.values())).dtype
        return float_dtype(self.values[0][0].dtype) or ""

    @property
    def is_stacked(self) -> bool:
        """Return whether it holds all experts along a first axis."""
        return self.canonical.arrangement == "experts"


@dataclass(frozen=True, slots=True)
class WeightError:
    """Distance of a parameter: the norm of the difference as a fraction of the golden norm, and the allowed one.

    ``where`` names the expert that is furthest apart, ``problem`` says why it could not be compared.
    """

    error: float = 0.0
    limit: float = 0.0
    shape: tuple[int, ...] = ()
    where: str = ""
    problem: str = ""

    @property
    def differs(self) -> bool:
        """Return whether the weights are not the same."""
        return not self.problem and not self.error <= self.limit


class RecordedWeights:
    """The parameters of a run's modules, as its first pass through each of them recorded them."""

    def __init__(self, passes: Sequence[ForwardPass], names: ModelNames, sizes: ModelSizes) -> None:
        self._passes = passes
        self._names = names
        self._sizes = sizes
        self.widths: Mapping[str, int] = {}

    @cached_property
    def parameters(self) -> dict[str, RecordedParameter]:
        """The parameters by the trainer's names; ``*`` is the number of any expert."""
        parameters: dict[str, RecordedParameter] = {}
        for name, values in self._values().items():
            canonical = self._names.canonical(name)
            for part in canonical.parts:
                single = RecordedParameter(canonical, part.name if canonical.is_fused else "", values)
                if canonical.expert is None:
                    parameters.setdefault(part.name.replace("{expert}", "*"), single)
                else:
                    shared = part.name.replace(f".experts.{canonical.expert}.", ".experts.*.")
                    parameters.setdefault(shared, RecordedParameter(canonical, "")).experts[canonical.expert] = single
        return parameters

    def _values(self) -> Mapping[str, Sequence[tuple[Value, Dump]]]:
        calls = {path: own for forward_pass in reversed(self._passes) for path, own in forward_pass.modules.items()}
        values = defaultdict[str, list[tuple["Value", "Dump"]]](list)
        for path, own in calls.items():
            for call in own:
                for placed in call.values:
                    if placed.group == "parameters" and placed.value.is_tensor:
                        values[f"{path}.{placed.place.partition('.')[2]}"].append((placed.value, call.dump))
        return values

    @cached_property
    def rows(self) -> dict[str, int]:
        """Return how many rows each unfused parameter has, as a whole."""
        return {
            name: one.values[0][0].shape[0] * (len(one.values) if one.canonical.sharded == 0 else 1)
            for name, one in self.parameters.items()
            if one.values and not one.part and one.values[0][0].shape
        }

    def tensors(self, name: str, other: Mapping[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
        """Return a parameter as a whole under an empty name, or those of its experts by their numbers.

        ``other`` has the shapes of the other run's. Raises DumpError where a file is unusable, UnknownSizesError where
        nothing says where a part lies.
        """
        own = self.parameters[name]
        if own.experts:
            return {
                str(expert): _whole(self._parts(parameter), parameter.canonical, other.get(str(expert)))
                for expert, parameter in own.experts.items()
            }
        parts = self._parts(own)
        if not own.is_stacked:
            return {"": _whole(parts, own.canonical, other.get(""))}
        return {
            str(expert): _whole([part[expert] for part in parts], own.canonical, other.get(str(expert)))
            for expert in range(len(parts[0]))
        }

    def _parts(self, own: RecordedParameter) -> list[torch.Tensor]:
        """Return what each rank has of a parameter."""
        parts = []
        for value, dump in own.values:
            tensor = read_tensor(value, dump)
            if own.part:
                axis = 1 if own.is_stacked else 0
                part_slices = part_rows(own.canonical, tensor.shape[axis], self._sizes, self.widths)
                rows = next(part_of_fused for part_of_fused in part_slices if part_of_fused.name == own.part).rows
                tensor = torch.cat([tensor.narrow(axis, run.start, run.stop - run.start) for run in rows], dim=axis)
            parts.append(tensor)
        return parts

    def shapes(self, name: str) -> dict[str, tuple[int, ...]]:
        """Return the shapes of a parameter that one rank holds as a whole, none of others."""
        own = self.parameters[name]
        if own.experts:
            return {
                str(expert): parameter.values[0][0].shape
                for expert, parameter in own.experts.items()
                if len(parameter.values) == 1 and not parameter.part
            }
        is_whole = len(own.values) == 1 and not own.part and not own.is_stacked
        return {"": own.values[0][0].shape} if is_whole else {}


def _whole(parts: Sequence[torch.Tensor], canonical: Canonical, shape: tuple[int, ...] | None) -> torch.Tensor:
    first, axis = parts[0], canonical.sharded
    if len(parts) == 1 or axis is None or axis >= first.ndim or (shape and tuple(first.shape) == shape):
        return first
    step = max(first.shape[axis] * len(parts) // shape[axis], 1) if shape and len(shape) == first.ndim else 1
    return torch.cat(list(parts)[::step], dim=axis)


def compare_weights(name: str, target: RecordedWeights, golden: RecordedWeights) -> WeightError:
    """Return how far a parameter that both runs recorded is apart.

    Of two dtypes, rounding to the coarser one is no difference; of one dtype, any is. Raises DumpError where a file is
    unusable.
    """
    dtypes = target.parameters[name].dtype, golden.parameters[name].dtype
    if not all(dtypes):
        return WeightError(problem="its dtype is no float")
    if any(0 in value.shape for side in (target, golden) for value, _ in side.parameters[name].values):
        return WeightError(problem="a run has an empty tensor in its place, as engines that repack weights do")
    try:
        theirs = golden.tensors(name, target.shapes(name))
        ours = target.tensors(name, {key: tuple(tensor.shape) for key, tensor in theirs.items()})
    except UnknownSizesError as error:
        return WeightError(problem=str(error))
    limit = 0.0 if dtypes[0] == dtypes[1] else _SLACK * UNIT_ROUNDOFF[coarser(*dtypes)]
    errors = [_compare(key, ours[key], theirs[key], name, limit) for key in theirs if key in ours]
    wrong = [weight_error for weight_error in errors if weight_error.problem]
    if wrong or not errors:
        return wrong[0] if wrong else WeightError(problem="the runs recorded other experts")
    return max(errors, key=lambda weight_error: weight_error.error)


def _compare(key: str, mine: torch.Tensor, other: torch.Tensor, name: str, limit: float) -> WeightError:
    if name.startswith(("embed_tokens", "lm_head")):
        # Engines pad the vocabulary.
        count = min(len(mine), len(other))
        mine, other = mine[:count], other[:count]
    if mine.shape != other.shape:
        return WeightError(problem=f"shape {list(mine.shape)}, golden {list(other.shape)}")
    distance, norm = float((mine.double() - other.double()).norm()), float(other.double().norm())
    error = 0.0 if distance == 0 else distance / norm if norm else math.inf
    where = f" of expert {key}" if key else ""
    return WeightError(math.inf if math.isnan(error) else error, limit, tuple(other.shape), where)
