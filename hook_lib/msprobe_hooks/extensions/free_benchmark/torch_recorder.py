"""The free benchmark of PyTorch: a call made a second time, unseen by the program, on the same random numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from msprobe_hooks.dump.names import is_in_place, split_called
from msprobe_hooks.extensions.free_benchmark.argument_changes import NotPerturbedError, outputs_of, without_overwritten
from msprobe_hooks.extensions.free_benchmark.recorder import (
    Again,
    BenchmarkedCall,
    BenchmarkRecorder,
    summed,
)
from msprobe_hooks.extensions.free_benchmark.table import FILE_NAME, TORCH_FORM
from msprobe_hooks.extensions.free_benchmark.torch_perturbations import TorchJudging, perturb
from msprobe_hooks.torch.apis import WRITING
from msprobe_hooks.torch.generators import Generators
from msprobe_hooks.torch.no_dispatch import NoDispatch
from msprobe_hooks.torch.recorder import TorchRecorder, version_of

# In another dtype or on another device, other numbers are drawn from the same seed.
_CHANGES_WHAT_IS_DRAWN = ("improve_precision", "to_cpu")
_PLAIN = frozenset({Tensor, torch.nn.Parameter})


class TorchAgain:
    """A call before it is made: its arguments, of which those that it may write over are copied."""

    def __init__(self, name: str, func: Callable[..., Any], args: Any, kwargs: Any) -> None:
        """Take the arguments. Raises NotPerturbedError where the call cannot be made twice."""
        called = self._called = split_called(name)[0]
        self._func = func
        self._leaves, self._spec = pytree.tree_flatten((args, kwargs))
        tensors = [leaf for leaf in self._leaves if isinstance(leaf, Tensor)]
        if "out" in kwargs:
            raise NotPerturbedError("it writes into its argument out")
        if any(type(tensor) not in _PLAIN for tensor in tensors):
            raise NotPerturbedError("an input is a tensor subclass")
        self._generators = Generators(self._leaves)
        self._autocast = _autocast({tensor.device.type for tensor in tensors})
        self.writes = _may_write(called, args, kwargs)
        with NoDispatch():
            self._flags = [isinstance(leaf, Tensor) and leaf.requires_grad for leaf in self._leaves]
            self._differentiated = [id(leaf) for leaf, flag in zip(self._leaves, self._flags, strict=True) if flag]
            self._leaves = [self._kept(leaf) if isinstance(leaf, Tensor) else leaf for leaf in self._leaves]
        self._versions = [(leaf, version_of(leaf)) for leaf in self._leaves if isinstance(leaf, Tensor)]
        self.draws = False

    def after_call(self) -> None:
        """Note what the call has done: whether it drew numbers."""
        self.draws = self._generators.have_moved()

    def results(self, perturbation: str) -> Any:
        """Make the call with perturbed inputs.

        Raises NotPerturbedError where its inputs cannot be perturbed, or are no longer there.
        """
        args, kwargs = self.perturbed(perturbation)
        now = Generators(self._leaves)
        if self.draws:
            self._generators.restore()
        try:
            with _unseen(), self._in_precision(perturbation):
                return self._func(*args, **kwargs)
        finally:
            if self.draws:
                now.restore()

    def perturbed(self, perturbation: str) -> tuple[Any, Any]:
        """Return perturbed arguments that require gradients where the call's did. Raises as ``results`` does."""
        if self.draws and perturbation in _CHANGES_WHAT_IS_DRAWN:
            raise NotPerturbedError("it would draw other random numbers")
        if any(version_of(tensor) != version for tensor, version in self._versions):
            raise NotPerturbedError("its inputs were overwritten")
        with NoDispatch():
            arguments = pytree.tree_unflatten(self._leaves, self._spec)
            overwritten, read = without_overwritten(self._called, perturbation, *arguments)
            args, kwargs = perturb(perturbation, *read)
            changed = ((*overwritten, *args), kwargs)
            leaves, spec = pytree.tree_flatten(changed)
            leaves = [self._as_before(leaf, flag) for leaf, flag in zip(leaves, self._flags, strict=True)]
            args, kwargs = pytree.tree_unflatten(leaves, spec)
        return args, kwargs

    def gradients(
        self, perturbation: str, grad_outputs: list[Tensor | None], around: AbstractContextManager[object] | None = None
    ) -> list[Tensor | None]:
        """Return the gradients of perturbed inputs, for those of the outputs that arrived.

        The backward pass alone runs within ``around``. Raises as ``results``.
        """
        args, kwargs = self.perturbed(perturbation)
        leaves = _differentiated((args, kwargs))
        with _unseen(), torch.enable_grad():
            with self._in_precision(perturbation):
                result = self._func(*args, **kwargs)
            outputs = zip(_differentiated(result), grad_outputs, strict=True)
            pairs = [(one, grad) for one, grad in outputs if grad is not None]
            arriving = [grad.to(one.device, one.dtype) for one, grad in pairs]
            with around or nullcontext():
                gradients = torch.autograd.grad([one for one, _ in pairs], leaves, arriving, allow_unused=True)
            return summed(gradients, self._differentiated)

    def replace(self, result: Any, perturbed: Any) -> None:
        """Write values into results: those of the other run, in the dtype and on the device of the program's."""
        with NoDispatch():
            for (_, one), (_, other) in zip(outputs_of(result), outputs_of(perturbed), strict=True):
                if isinstance(one, Tensor) and isinstance(other, Tensor) and one.is_floating_point():
                    # A view of an input shows what is there, which no precision changes.
                    if not self.writes and self._shares_memory(one):
                        continue
                    one.data.copy_(other)

    def _shares_memory(self, output: Tensor) -> bool:
        address = output.untyped_storage().data_ptr()
        return any(tensor.untyped_storage().data_ptr() == address for tensor, _ in self._versions)

    def _in_precision(self, perturbation: str) -> AbstractContextManager[object]:
        return torch._C._DisableAutocast() if perturbation in _CHANGES_WHAT_IS_DRAWN else _casting(self._autocast)

    def _kept(self, tensor: Tensor) -> Tensor:
        return tensor.detach().clone() if self.writes else tensor.detach()

    def _as_before(self, leaf: Any, requires_grad: bool) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        # Without a copy, a call that writes would write over what is compared, or what a further call needs.
        copy = leaf.clone() if self.writes else leaf.detach()
        return copy.requires_grad_(requires_grad and not self.writes)


def _may_write(called: str, args: Any, kwargs: Any) -> bool:
    """Return whether a call may write over what it is given: by its name, or because something switches that on."""
    # inplace=True has another position in each function that takes it.
    is_switched_on = called.startswith("Functional.") and any(value is True for value in args)
    return called in WRITING or is_in_place(called) or is_switched_on or kwargs.get("inplace") is True


def _differentiated(values: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, Tensor) and leaf.requires_grad]


@contextmanager
def _unseen() -> Iterator[None]:
    """Keep a call from the program's modes, and have it differentiated where the program's would be."""
    is_grad_enabled = torch.is_grad_enabled()
    with NoDispatch():
        torch._C._set_grad_enabled(is_grad_enabled)
        yield


def _autocast(devices: Iterable[str]) -> list[tuple[str, torch.dtype]]:
    """Return for which of these devices autocast is on, and to which dtype."""
    if not torch._C._is_any_autocast_enabled():
        return []
    return [
        (device, torch.get_autocast_dtype(device))
        for device in devices
        if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    ]


@contextmanager
def _casting(autocast: list[tuple[str, torch.dtype]]) -> Iterator[None]:
    """Set autocast as it was for a call, whose backward pass runs outside of its region or in that of another one."""
    with ExitStack() as stack:
        if not autocast:
            stack.enter_context(torch._C._DisableAutocast())
        for device, dtype in autocast:
            # Its cache would keep the casts of what is only made here until the program's region ends.
            stack.enter_context(torch.autocast(device, dtype, cache_enabled=False))
        yield


class FixedCall(BenchmarkedCall):
    """A call that the program goes on from with the values of the perturbed result."""

    __slots__ = ()

    def make_again(self, again: Again, result: Any) -> None:
        """Write the values of the other result into the program's."""
        assert isinstance(again, TorchAgain)
        again.replace(result, again.results(self._recorder.benchmark.pert_mode))
        self._recorder.note_fixed()


class TorchBenchmarkRecorder(BenchmarkRecorder, TorchRecorder):
    """Makes calls of PyTorch again."""

    judging = TorchJudging()
    form = TORCH_FORM
    fixed_call = FixedCall

    def again(self, name: str, func: Any, args: Any, kwargs: Any) -> TorchAgain:
        """Return a call that is about to be made."""
        return TorchAgain(name, func, args, kwargs)

    def table(self, folder: Path) -> Path:
        """Return the table next to the step's other files."""
        return folder / FILE_NAME
