"""Random choices of places (of true elements, of boxes to train on), and the base of all random properties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import torch

from pytest_msprobe.engine.replay.random_apis import tail_bound

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from msprobe_standards.verdict import Verdict

REQUIRED = object()
Parameters = tuple[tuple[str, Any], ...]
# the same argument under the name that another spelling of the API gives it
_ALIASES = {"self": "input", "train": "training", "lambd": "rate", "from": "low", "to": "high"}

# the labels of a subsample
_POSITIVE, _NEGATIVE, _IGNORED = 1, 0, -1
# a product of whole numbers and a fraction that rounding left below a whole number
_ROUNDED = 1e-6


def bound(api: str, parameters: Parameters, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by name, defaults filled in; keywords not declared are kept.

    Raises TypeError where a required argument is missing.
    """
    given = {_ALIASES.get(name, name): value for name, value in kwargs.items()}
    given.update(zip((name for name, _ in parameters), args, strict=False))
    for name, default in parameters:
        if given.setdefault(name, default) is REQUIRED:
            raise TypeError(f"the recorded call of {api} lacks its argument {name!r}")
    return given


def sizes(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Return the shape that a factory is asked for, given as ``size=``, one sequence or single integers."""
    size = kwargs.get("size")
    if size is None and args:
        size = args[0] if isinstance(args[0], Sequence) else args
    if size is None:
        return None
    return tuple(int(length) for length in size if isinstance(length, int))


def tensors(tree: Any) -> list[torch.Tensor]:
    """Return the tensors of a result in order."""
    if isinstance(tree, torch.Tensor):
        return [tree]
    if isinstance(tree, Mapping):
        return [tensor for value in tree.values() for tensor in tensors(value)]
    if isinstance(tree, (list, tuple)):
        return [tensor for value in tree for tensor in tensors(value)]
    return []


class RandomProperty(Protocol):
    """What the results of one random call must be like; every verdict's standard is ``random``.

    All tensors are on the CPU. ``output`` is what the call returned, for an in-place API the changed tensor.
    """

    def check_forward(self, output: Any) -> Verdict:
        """Judge the result."""

    def check_backward(self, output: Any, grad_outputs: Any, grad_inputs: Any) -> Verdict | None:
        """Judge the gradients of the call that returned ``output``; None where nothing can be said of them."""


#: Builds the property of a call from the operation's name and the arguments; None where this call is not random.
PropertyOf: TypeAlias = "Callable[[str, Sequence[Any], Mapping[str, Any]], RandomProperty | None]"


@dataclass(frozen=True, slots=True)
class Form:
    """The shape and the dtype of a result; None is anything."""

    shape: tuple[int, ...] | None = None
    dtype: torch.dtype | None = None

    def check(self, output: Any) -> Verdict | None:
        """Return the verdict on a result that is not one tensor of this form, None for one that is."""
        found = tensors(output)
        if not found:
            return tail_bound.broken("the result is not a tensor")
        result = found[0]
        if self.shape is not None and tuple(result.shape) != self.shape:
            return tail_bound.broken(f"the shape is {tuple(result.shape)}, but {self.shape} was asked for")
        if self.dtype is not None and result.dtype != self.dtype:
            return tail_bound.broken(f"the dtype is {result.dtype}, but {self.dtype} was asked for")
        return None


class PassesNoGradient:
    """What has no gradient: a result that does not depend on the values of the input."""

    __slots__ = ()

    def check_backward(self, output: Any, grad_outputs: Any, grad_inputs: Any) -> Verdict | None:
        """Judge gradients, which must be zero; None where there are none."""
        found = tensors(grad_inputs)
        if not found:
            return None
        wrong = sum(int((gradient != 0).sum()) for gradient in found)
        if wrong:
            return tail_bound.broken(f"{wrong} elements of the gradient are not zero", wrong=wrong)
        return tail_bound.held("the gradient is zero")


@dataclass(frozen=True, slots=True)
class ChoiceProperty(PassesNoGradient):
    """``count`` places of true elements of ``x``, each at most once, and a mask of how many there are; 0 are all."""

    x: Tensor
    count: int

    def check_forward(self, output: Any) -> Verdict:
        """Judge form, number, that the places are true ones and differ, and the share of them from the first half."""
        true = self.x.bool().flatten().nonzero().flatten()
        count = self.count or len(true)
        malformed = Form((count, self.x.dim()), torch.int32).check(output)
        malformed = malformed or Form((count,), torch.bool).check(tensors(output)[1:])
        if malformed:
            return malformed
        places, mask = tensors(output)
        chosen = places[mask].long()
        if len(chosen) != min(count, len(true)):
            return tail_bound.broken(f"{len(chosen)} places are chosen of {len(true)}", chosen=float(len(chosen)))
        sizes = torch.tensor(self.x.shape)
        outside = int(((chosen < 0) | (chosen >= sizes)).sum())
        if outside:
            return tail_bound.broken(f"{outside} places are outside of the input", outside=outside)
        strides = torch.tensor([self.x.shape[dim + 1 :].numel() for dim in range(self.x.dim())])
        flat = (chosen * strides).sum(-1)
        untrue = int((~self.x.bool().flatten()[flat]).sum())
        if untrue:
            return tail_bound.broken(f"{untrue} chosen elements are not true", untrue=untrue)
        repeated = len(flat) - len(set(flat.tolist()))
        if repeated:
            return tail_bound.broken(f"{repeated} places are chosen again", repeated=repeated)
        if not len(flat):
            return tail_bound.held("nothing to choose")
        # draws without replacement stray less than independent ones (Hoeffding, 1963)
        half = len(true) // 2
        first = int((flat < true[half]).sum())
        return tail_bound.share("share of the first half", (first, first), len(flat), half / len(true))


@dataclass(frozen=True, slots=True)
class SubsampleProperty(PassesNoGradient):
    """``labels`` (1, 0 and -1), of which all but ``per_images`` ones and zeros become -1, by the share of ones."""

    labels: Tensor
    per_images: int
    positive_fraction: float

    def check_forward(self, output: Any) -> Verdict:
        """Judge that labels are kept or ignored, and how many ones and zeros are left."""
        malformed = Form(tuple(self.labels.shape), self.labels.dtype).check(output)
        if malformed:
            return malformed
        left = tensors(output)[0]
        changed = int(((left != self.labels) & (left != _IGNORED)).sum())
        if changed:
            return tail_bound.broken(f"{changed} labels are neither kept nor ignored", changed=changed)
        most = int(self.per_images * self.positive_fraction + _ROUNDED)
        ones = min(most, int((self.labels == _POSITIVE).sum()))
        zeros = min(self.per_images - ones, int((self.labels == _NEGATIVE).sum()))
        found = {label: int((left == label).sum()) for label in (_POSITIVE, _NEGATIVE)}
        for label, wanted in ((_POSITIVE, ones), (_NEGATIVE, zeros)):
            if found[label] != wanted:
                return tail_bound.broken(f"{found[label]} labels are {label}, but {wanted} must be", found=found[label])
        return tail_bound.held("as many labels of each kind as there must be")


_CHOICE: Parameters = (("x", REQUIRED), ("count", 256))
_SUBSAMPLE: Parameters = (("input", REQUIRED), ("per_images", REQUIRED), ("positive_fraction", REQUIRED))


def random_choice(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Return the property of ``npu_random_choice_with_mask``."""
    given = bound(api, _CHOICE, args, kwargs)
    return ChoiceProperty(given["x"], int(given["count"]))


def subsample(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Return the property of ``npu_sub_sample``."""
    given = bound(api, _SUBSAMPLE, args, kwargs)
    return SubsampleProperty(given["input"], int(given["per_images"]), float(given["positive_fraction"]))
