"""Arguments, settings and results of a kernel, as its files hold them.

Files hold elements in their order, but not always the shapes that a kernel saw: a reshape is no kernel that moves
anything, so what follows it has the shape from before it. What a kernel gave has its own shape. Of settings there
are those that it took as inputs. The rest, and the shapes that it saw, the text of the graph has where there is one;
else they follow from shapes and numbers, or are those of the forward pass.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import torch
from numpy import load
from torch import Tensor

from msprobe_hooks.dump.json_records import Kernel
from msprobe_hooks.dump.recording_paths import net_folder
from msprobe_hooks.dump.schema import TensorElement
from msprobe_hooks.errors import DumpError
from msprobe_hooks.extensions.mindspore.static_graph.ir_statement import Statement
from msprobe_hooks.extensions.mindspore.static_graph.reader import GraphDump, read_iteration
from msprobe_hooks.regular_files import open_regular
from pytest_msprobe.engine.values.error_kinds import REFUSALS
from pytest_msprobe.engine.values.tensor_files import load_tensor
from pytest_msprobe.extensions.mindspore.translation import MindSporeSkip
from pytest_msprobe.results.outcomes import Skip

# A setting is inferred from numbers where half of the elements are this near to the recorded ones,
# nearer than another comes, and further than half precision errs. Where they are nearer still, no other setting is
# looked at.
_NEAR = 2.0**-7
_SURELY = 2.0**-20

# Of a kernel: the forward kernel, the slot at which that takes the setting, and the setting's name.
_TAKEN = {"LayerNormGrad": ("LayerNorm", 5, "epsilon"), "DropoutGrad": ("Dropout", 1, "keep_prob")}

DAMAGED: Final = b""

# The last dump's alone: what is asked of an iteration is asked by many kernels in a row, and a dump has no hash.
_of_views: dict[Path, frozenset[tuple[tuple[int, ...], bytes]]] = {}

# What is asked of an iteration is asked by many kernels in a row; a dump itself has no hash.
_last_held: dict[Path, dict[bytes, list[str]]] = {}


@dataclass(frozen=True, slots=True)
class KernelCall:
    """An execution of a kernel of the type ``kind``.

    ``inputs`` are its tensors by slot, None where there is none; ``results`` are the recorded ones. ``settings`` are
    those that are known though it was not given them, ``statement`` is what the graph's text says of it.
    ``inferred`` keeps, from one run of the definition to the next, the settings that were found by numbers.
    """

    kind: str
    inputs: Sequence[Tensor | None]
    results: Sequence[Tensor]
    settings: Mapping[str, Any] = field(default_factory=dict)
    statement: Statement | None = None
    inferred: dict[str, Any] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the first result."""
        return tuple(self.results[0].shape)

    def has(self, slot: int) -> bool:
        """Return whether there is an input at a slot."""
        return slot < len(self.inputs) and self.inputs[slot] is not None

    def knows(self, slot: int) -> bool:
        """Return whether what is given at a slot is known: a tensor, or a constant of the graph's text."""
        return self.has(slot) or (self.statement is not None and self.statement.constant(slot) is not None)

    def attribute(self, name: str) -> Any:
        """Return an attribute of the primitive, None where it is not known."""
        return None if self.statement is None else self.statement.attribute(name)

    def attributes(self, names: Mapping[str, str]) -> dict[str, Any]:
        """Return settings by the primitive's attributes of these names; none where one is missing."""
        declared = {setting: self.attribute(name) for setting, name in names.items()}
        return {} if None in declared.values() else declared

    def declared_shape(self, slot: int) -> tuple[int, ...] | None:
        """Return the shape in which the kernel saw an input, None where it is not known."""
        declared = () if self.statement is None else self.statement.inputs
        return declared[slot] if slot < len(declared) else None

    def tensor(self, slot: int, *shape: int) -> Tensor:
        """Return an input, in a shape where one is given, else in that which the kernel saw, as far as it is known.

        Raises Skip where it is missing or has not these elements.
        """
        operand = self.inputs[slot] if slot < len(self.inputs) else None
        if operand is None:
            raise self.lacks(f"input.{slot}")
        try:
            declared = self.declared_shape(slot)
            return operand.reshape(shape) if shape else operand if declared is None else operand.reshape(declared)
        except RuntimeError:
            raise self.lacks(f"the shape of input.{slot}") from None

    def tensors(self) -> list[Tensor]:
        """Return all inputs that there are."""
        return [tensor for tensor in self.inputs if tensor is not None]

    def setting(self, name: str, slot: int | None = None) -> Any:
        """Return a setting by its slot, else by its name as an attribute. Raises Skip where nothing says it."""
        if slot is not None and self.has(slot):
            return self.tensor(slot).tolist()
        if slot is not None and self.knows(slot) and self.statement is not None:
            return self.statement.constant(slot)
        declared = self.attribute(name)
        if declared is None and name not in self.settings:
            raise self.lacks(name)
        return self.settings[name] if declared is None else declared

    def like_result(self, slot: int) -> Tensor:
        """Return an operand of an operation on elements as it is broadcast to the first result.

        Raises Skip where several of its axes could be the ones that it has.
        """
        x, result_shape = self.tensor(slot), self.shape
        if x.numel() == math.prod(result_shape):
            return x.reshape(result_shape)
        if x.numel() == 1 or (x.dim() == len(result_shape) and _is_broadcast(tuple(x.shape), result_shape)):
            return x.reshape(()) if x.numel() == 1 else x
        if self.declared_shape(slot) is not None:
            return x
        choices = itertools.product(*({1, size} for size in result_shape))
        shapes = {shape for shape in choices if math.prod(shape) == x.numel()}
        if len(shapes) != 1:
            raise self.lacks(f"the shape of input.{slot}")
        return x.reshape(shapes.pop())

    def infer_from_values(self, names: str, choices: Iterable[Mapping[str, Any]], compute: Callable[..., Any]) -> Any:
        """Return what a definition gives by the one of these settings that comes nearest to the recorded results.

        Raises Skip that names the settings where none comes near.
        """
        if not self.inferred:
            errors = self._errors(choices, compute)
            error, settings = min(errors, key=lambda candidate: candidate[0], default=(math.inf, {}))
            if error > _NEAR:
                raise self.lacks(names)
            self.inferred.update(settings)
        return compute(**self.inferred)

    def _errors(
        self, choices: Iterable[Mapping[str, Any]], compute: Callable[..., Any]
    ) -> Iterable[tuple[float, Mapping[str, Any]]]:
        for settings in choices:
            try:
                error = self._error(compute(**settings))
            except REFUSALS:
                continue
            yield error, settings
            if error < _SURELY:
                return

    def _error(self, results: Any) -> float:
        """Return how far a definition is from the recorded results, the largest of all: see `_distance`."""
        pairs = zip(as_list(results), self.results, strict=False)
        return max((_distance(ours, recorded.to(ours.dtype)) for ours, recorded in pairs), default=math.inf)

    def lacks(self, what: str) -> Skip:
        """Return the skip of a kernel of which something is not known."""
        return Skip(MindSporeSkip.NO_SETTINGS, f"{self.kind} needs {what}")


def _distance(ours: Tensor, recorded: Tensor) -> float:
    """Return the median error relative to the median element, zeros on both sides left out.

    A few wrong elements, however wrong, do not change it.
    """
    ours = ours.reshape(recorded.shape)
    counted = (ours != 0) | (recorded != 0)
    if not counted.any():
        return 0.0
    error, scale = (values[counted].abs().median() for values in (ours - recorded, recorded))
    return float(error / scale) if scale else math.inf


def as_list(results: Any) -> list[Tensor]:
    """Return what a definition gives as a list."""
    return list(results) if isinstance(results, (list, tuple)) else [results]


def gradient(function: Callable[[Tensor], Tensor], at: Tensor, arriving: Tensor) -> Tensor:
    """Return the gradient of a function of one tensor, for one that arrives."""
    with torch.enable_grad():
        leaf = at.detach().requires_grad_()
        (computed,) = torch.autograd.grad(function(leaf), leaf, arriving)
    return computed


def _is_broadcast(shape: tuple[int, ...], result_shape: tuple[int, ...]) -> bool:
    return all(size in (1, full) for size, full in zip(shape, result_shape, strict=True))


def settings_of_forward(dump: GraphDump, kind: str) -> Mapping[str, Any]:
    """Return the settings of a type of kernels that the dump's forward kernels hold, by name.

    Raises DumpError where a file of one of these is unusable.
    """
    if kind not in _TAKEN:
        return {}
    forward, slot, name = _TAKEN[kind]
    elements = (
        kernel.inputs[slot] for kernel in dump.kernels.values() if kernel.type == forward and slot in kernel.inputs
    )
    values = {load_tensor(element, dump.tensor_folder).item() for element in elements}
    return {name: values.pop()} if len(values) == 1 else {}


def digest(folder: Path, element: TensorElement) -> bytes:
    """Return what tensors of equal elements share, whatever their shape; DAMAGED for a file that is not whole."""
    try:
        with open_regular(folder / (element.data_name or "")) as file:
            array = load(file, allow_pickle=False)
    except Exception:
        # Bytes that are no array make numpy raise almost anything.
        return DAMAGED
    return hashlib.blake2b(array.tobytes() + str(array.dtype).encode(), digest_size=16).digest()


def takes_a_view(dump: GraphDump, kernel: Kernel) -> bool:
    """Return whether a kernel was given what a view made, of which MindSpore writes the memory and not the elements."""
    if dump.path not in _of_views:
        _of_views.clear()
        views = (candidate for candidate in dump.kernels.values() if candidate.type.endswith("View"))
        elements = (element for view in views for element in view.outputs.values())
        _of_views[dump.path] = frozenset((element.shape, digest(dump.tensor_folder, element)) for element in elements)
    viewed = _of_views[dump.path]
    shapes = {shape for shape, _ in viewed}
    return any(
        (element.shape, digest(dump.tensor_folder, element)) in viewed
        for element in kernel.inputs.values()
        if element.shape in shapes
    )


def element_before(dump: GraphDump, element: TensorElement) -> TensorElement | None:
    """Return a parameter as an iteration began, by what a kernel left in it; None where that is not known.

    It is not where the iteration before was not dumped or its file is not whole, or where several parameters hold such
    values that differed.
    """
    former = _former(dump.path)
    names = _held_by(dump).get(digest(dump.tensor_folder, element), []) if former is not None else []
    if former is None or not names or any(name not in former.kernels for name in names):
        return None
    elements = [former.kernels[name].outputs[0] for name in names]
    digests = {digest(former.tensor_folder, candidate) for candidate in elements}
    return elements[0] if len(digests) == 1 and digests != {DAMAGED} else None


def _held_by(dump: GraphDump) -> dict[bytes, list[str]]:
    if dump.path not in _last_held:
        _last_held.clear()
        names = _last_held[dump.path] = {}
        for name, kernel in dump.kernels.items():
            if kernel.is_parameter and 0 in kernel.outputs:
                names.setdefault(digest(dump.tensor_folder, kernel.outputs[0]), []).append(name)
    return _last_held[dump.path]


@lru_cache(maxsize=2)
def _former(path: Path) -> GraphDump | None:
    """Return the iteration before that of a file; None where it is not there."""
    iteration = int(path.parent.name)
    folders = [net_folder(path) / path.parents[1].name / str(iteration - 1)] if iteration else []
    file = next((file for folder in folders for file in sorted(folder.glob("*.npy"))), None)
    try:
        return None if file is None else read_iteration(file)
    except DumpError:
        # What is wrong with another iteration is reported where that one is checked.
        return None
