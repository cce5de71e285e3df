"""How a defect is planted in a device: a kernel is launched, and the fault decides what comes of it."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from msprobe_hooks.dump.names import parse_api_name
from pytest_msprobe.devices.math_modes import ReducedPrecision
from pytest_msprobe.devices.sim import SimDevice
from pytest_msprobe.engine.values.pytree import map_tensors, tensors_with_paths

_OPERATORS = {"truediv": "div", "iadd": "add", "radd": "add", "imul": "mul", "rmul": "mul", "isub": "sub"}


@dataclass(slots=True)
class Launch:
    """A kernel about to run. ``api`` is the recorded name, ``memory`` what the device keeps between kernels.

    A backward launch knows the ``forward`` one, with the first ``output`` of that and, once it has run itself, the
    gradient that arrived for it (``incoming``).
    """

    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    api: str
    memory: dict[Any, Any]
    forward: Launch | None = None
    output: Any = None
    incoming: Any = None

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run it as it should be; positional and keyword arguments replace the first ones and those of that name."""
        return self.func(*args, *self.args[len(args) :], **{**self.kwargs, **kwargs})

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """Return an argument however it was passed."""
        return self.args[position] if len(self.args) > position else self.kwargs.get(name, default)

    def run_forward(self) -> Any:
        """Run a forward kernel as it should be, and remember what its backward will ask for."""
        output = self.run()
        self.output = next((tensor for _, tensor in tensors_with_paths(output) if tensor.requires_grad), None)
        if self.output is not None:
            self.output.register_hook(self._arrive)
        return output

    def _arrive(self, gradient: torch.Tensor) -> None:
        self.incoming = gradient

    @property
    def in_place(self) -> bool:
        """Whether the first argument is overwritten."""
        return (self.api.endswith("_") and not self.api.endswith("__")) or self.api.startswith("__i")


Kernel: TypeAlias = Callable[[Launch], Any]


@dataclass(frozen=True, slots=True)
class Variant:
    """Another way to run some APIs, right or wrong. An empty ``apis`` means all of them.

    The kernel runs the forward call, with ``backward`` the backward one, with ``both`` either. ``modes`` are what the
    device says of itself, None where it says nothing.
    """

    name: str
    meaning: str
    apis: frozenset[str]
    kernel: Kernel
    backward: bool = False
    both: bool = False
    modes: ReducedPrecision | None = None

    def touches(self, api: str) -> bool:
        """Tell whether an API of this recorded name runs another way."""
        return not self.apis or plain_name(api) in self.apis


def plain_name(api: str) -> str:
    """Return "add" for ``add_``, ``__iadd__`` and ``__radd__``; swapped operands that matter stay (``rsub``)."""
    name = api.rpartition(".")[2].strip("_")
    return _OPERATORS.get(name, name)


def variant(apis: str = "", *, backward: bool = False) -> Callable[[Kernel], Variant]:
    """Return a decorator that makes a kernel a variant: its name from the function's, its meaning from the docstring.

    A backward one gets the launch of ``gradients_of`` and returns its tuple of gradients.
    """

    def decorate(kernel: Kernel) -> Variant:
        name = kernel.__name__.replace("_", " ").strip()
        return Variant(name, (kernel.__doc__ or "").strip(), frozenset(apis.split()), kernel, backward)

    return decorate


class VariantDevice(SimDevice):
    """A device that runs some APIs another way. ``digests`` has a checksum of what each record's runs gave."""

    def __init__(self, variant: Variant | None = None) -> None:
        self.variant = variant
        self.digests: dict[str, int] = {}
        self._memory: dict[Any, Any] = {}
        self._forward: Launch | None = None

    def reduced_precision(self) -> ReducedPrecision:
        """Return what the variant says is on."""
        stated = None if self.variant is None else self.variant.modes
        return stated or ReducedPrecision()

    def call(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, record: str) -> Any:
        """Run ``func``, through the variant's kernel where it is one of its APIs."""
        name = parse_api_name(record)
        backward = name.direction == "backward"
        forward = self._forward if backward else None
        launch = Launch(func, tuple(args), dict(kwargs), name.api, self._memory, forward)
        if self.variant is None or not self.variant.touches(name.api):
            output = launch.run()
        elif self.variant.both or backward == self.variant.backward:
            output = self.variant.kernel(launch)
        else:
            self._forward = launch
            output = launch.run() if backward else launch.run_forward()
        results = output if backward else [output, list(args), dict(kwargs)]
        self.digests[record] = digest(results, self.digests.get(record, 0))
        return output


def digest(tree: Any, check: int = 0) -> int:
    """Return a checksum of every bit of a tree of tensors and plain values, carried on from another."""
    check = zlib.crc32(repr(map_tensors(lambda tensor: f"{tensor.dtype} {tuple(tensor.shape)}", tree)).encode(), check)
    for _, tensor in tensors_with_paths(tree):
        dense = tensor.detach().to_dense() if tensor.is_sparse else tensor.detach()
        values = dense.resolve_conj().resolve_neg().contiguous()
        # Zeros of either sign are equal.
        values = values + 0 if values.is_floating_point() and values.element_size() > 1 else values
        check = zlib.crc32(values.view(-1).view(torch.uint8).numpy(), check) if values.numel() else check
    return check


class _Substitution(torch.autograd.Function):
    """Other values in the same place of the graph."""

    @staticmethod
    def forward(ctx: Any, right: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return other.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad, None


def substitute(tensor: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return ``other`` as a tensor through which gradients flow to ``tensor``."""
    return _Substitution.apply(tensor, other)  # type: ignore[no-any-return, no-untyped-call]


def overwrite(output: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return an output with changed floating-point values; a tensor that was modified in place stays itself."""

    def overwritten(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point() or not tensor.numel():
            return tensor
        other = change(tensor.detach().clone())
        if other.shape != tensor.shape or other.dtype != tensor.dtype or 0 in tensor.stride():
            return substitute(tensor, other)
        # Not through autograd: a kernel that errs does not tell.
        tensor.data.copy_(other)
        return tensor

    return map_tensors(overwritten, output)


def arrived(launch: Launch) -> tuple[tuple[torch.Tensor | None, ...], Launch]:
    """Return the right gradients of a backward launch, and the forward launch with the gradient that arrived."""
    gradients = tuple(launch.run())
    if launch.forward is None:
        raise RuntimeError(f"{launch.api}: a backward launch without its forward")
    return gradients, launch.forward


def regraded(launch: Launch, change: Callable[[torch.Tensor], torch.Tensor]) -> tuple[torch.Tensor | None, ...]:
    """Return the changed gradients of a backward launch."""
    return tuple(None if gradient is None else change(gradient.clone()) for gradient in launch.run())


def exactly(launch: Launch) -> Any:
    """Return the output computed in float64, before anything is modified in place."""
    raised = map_tensors(_raised, [list(launch.args), launch.kwargs])
    args, kwargs = raised
    kwargs = {name: torch.float64 if isinstance(value, torch.dtype) else value for name, value in kwargs.items()}
    with torch.no_grad():
        return launch.func(*args, **kwargs)


def _raised(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to(torch.float64 if tensor.is_floating_point() else tensor.dtype, copy=True)
