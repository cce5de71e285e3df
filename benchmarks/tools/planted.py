"""Devices that are judged: the planted faults and right devices of tests/corpus, and those of torch's operators."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.tools.cases import Planted
from pytest_msprobe.engine.values.pytree import map_tensors
from tests.corpus import correct_devices
from tests.corpus.cards_in_modes import CARDS_IN_MODES
from tests.corpus.correct_devices import CORRECT_DEVICES
from tests.corpus.fault import Launch, Variant, regraded, variant
from tests.corpus.faults import FAULTS_AND_KINDS

ORDERS, MODES = "other orders and formulas", "stated TF32 or HF32"


def faults() -> Iterator[Planted]:
    """Yield the planted faults of tests/corpus."""
    for fault, kind in FAULTS_AND_KINDS:
        yield Planted(kind, fault.name, fault, is_faulty=True)


def right_devices() -> Iterator[Planted]:
    """Yield the CPU itself, and the right devices of tests/corpus, which compute another way."""
    yield Planted("the CPU itself", "the CPU itself", None, is_faulty=False)
    for each in CORRECT_DEVICES:
        yield Planted(MODES if each in CARDS_IN_MODES else ORDERS, each.name, each, is_faulty=False)


@variant()
def one_wrong_element(launch: Launch) -> Any:
    """Get one element of the first result wrong by a fifth of the greatest one; a whole number by one."""
    return _changed(launch.run(), _with_a_wrong_element)


@variant()
def one_wrong_tile(launch: Launch) -> Any:
    """Leave the last half of the last rows and columns of the first result unwritten: zero."""
    return _changed(launch.run(), _with_a_lost_tile)


@variant()
def lost_sign(launch: Launch) -> Any:
    """Lose the signs of the first result."""

    def change(tensor: torch.Tensor) -> None:
        # The sign of NaN means nothing.
        if not tensor.is_complex():
            tensor.copy_(torch.where(tensor.isnan(), tensor, tensor.abs()))

    return _changed(launch.run(), change)


@variant(backward=True)
def gradient_doubled(launch: Launch) -> Any:
    """Return gradients that are twice as large."""
    return regraded(launch, lambda gradient: gradient * 2)


@variant(backward=True)
def element_of_a_gradient_lost(launch: Launch) -> Any:
    """Lose the greatest element of each gradient."""

    def change(gradient: torch.Tensor) -> torch.Tensor:
        if gradient.layout is torch.strided and gradient.numel():
            elements = gradient.contiguous().view(-1)
            elements[elements.abs().argmax()] = 0
            return elements.view(gradient.shape)
        return gradient

    return regraded(launch, change)


_IN_OPERATORS = (one_wrong_element, one_wrong_tile, lost_sign, gradient_doubled, element_of_a_gradient_lost)


def faults_of(name: str, dtype: str) -> Iterator[Planted]:
    """Yield the faults that an operator of torch, by its plain name, can have."""
    for each in _IN_OPERATORS:
        own = Variant(each.name, each.meaning, frozenset({name}), each.kernel, each.backward)
        yield Planted(f"operators: {each.name}", f"{each.name} in {name} {dtype}", own, is_faulty=True)


class _Decomposed(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Kernels replaced by what torch's compiler makes of them, where it decomposes them."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        decomposition = decomposition_table.get(func)
        if decomposition is not None and not func._schema.is_mutable and not _draws(func):
            with contextlib.suppress(NotImplementedError):
                result = decomposition(*args, **(kwargs or {}))
                if result is not NotImplemented:
                    return result
        return func(*args, **(kwargs or {}))


def _draws(func: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in func.tags


def _decomposed(launch: Launch) -> Any:
    with _Decomposed():  # type: ignore[no-untyped-call]
        return launch.run()


def _with_own_generator(launch: Launch) -> Any:
    state = torch.get_rng_state()
    torch.set_rng_state(launch.memory.setdefault("generator", torch.Generator().manual_seed(7)).get_state())
    try:
        return launch.run()
    finally:
        launch.memory["generator"].set_state(torch.get_rng_state())
        torch.set_rng_state(state)


def right_devices_of_operators(dtype: str) -> Iterator[Planted]:
    """Yield devices on which all of torch's operators are right, and of which some differ from the CPU's."""
    kind = "torch's operators"
    yield Planted(kind, f"operators: the CPU itself, {dtype}", None, is_faulty=False)
    for name, kernel in {
        "decomposed": _decomposed,
        "a generator of its own": _with_own_generator,
        "without oneDNN": correct_devices.onednn_off.kernel,
    }.items():
        yield Planted(
            kind, f"operators: {name}, {dtype}", Variant(name, "", frozenset(), kernel, both=True), is_faulty=False
        )


def _changed(output: Any, change: Callable[[torch.Tensor], object]) -> Any:
    """Return an output whose first tensor of numbers was changed in place, behind autograd's back."""
    first = list[torch.Tensor]()

    def look(tensor: torch.Tensor) -> torch.Tensor:
        if not first and tensor.layout is torch.strided and tensor.numel() and tensor.dtype is not torch.bool:
            first.append(tensor)
        return tensor

    map_tensors(look, output)
    for tensor in first:
        values = tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
        change(values)
        if 0 not in tensor.stride():
            tensor.data.copy_(values)
    return output


def _with_a_wrong_element(tensor: torch.Tensor) -> None:
    elements = tensor.view(-1)
    # Somewhere inside, where no edge is treated in a way of its own.
    place = int(0.37 * elements.numel())
    sizes = elements.abs()
    greatest = sizes[sizes.isfinite()].max() if bool(sizes.isfinite().any()) else torch.zeros(())
    step = (0.2 * greatest if greatest else 1) if tensor.is_floating_point() or tensor.is_complex() else 1
    if bool(elements[place].isfinite()):
        elements[place] += step


def _with_a_lost_tile(tensor: torch.Tensor) -> None:
    tile = tensor
    for dim in range(max(0, tensor.dim() - 2), tensor.dim()):
        tile = tile.narrow(dim, tensor.shape[dim] // 2, tensor.shape[dim] - tensor.shape[dim] // 2)
    tile.zero_()
