"""The base of all random properties: arguments by name, the form of a result, gradients that are zero."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import torch

from pytest_msprobe.engine.replay.random_apis import tail_bound

if TYPE_CHECKING:
    from collections.abc import Callable

    from msprobe_standards.verdict import Verdict

REQUIRED = object()
Parameters = tuple[tuple[str, Any], ...]
# the same argument under the name that another spelling of the API gives it
_ALIASES = {"self": "input", "train": "training", "lambd": "rate", "from": "low", "to": "high"}


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
