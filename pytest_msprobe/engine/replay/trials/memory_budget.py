"""Memory budget of a trial: how much a call needs, and how much there is."""

from __future__ import annotations

import math
from collections.abc import Callable

from msprobe_hooks.dump.schema import TensorElement, tensors_of
from pytest_msprobe.devices.card import free_on_card
from pytest_msprobe.devices.device import Device
from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.engine.replay.trials.zero_copy_inputs import shared_bytes
from pytest_msprobe.engine.values.dtypes import dtype_named
from pytest_msprobe.engine.values.system_memory import free_bytes, return_freed_pages
from pytest_msprobe.results.outcomes import Skip, SkipReason

# Of an element in float64.
_GOLDEN_BYTES = 8

#: A choice: the share of the free memory that calls may take.
SHARE = 0.9

# A choice: what other workers were let in for may not be in use yet.
_UNASKED_SHARE = 1 / 8

# Asking the system costs more than a small call.
_ALWAYS_FREE = 64 * 2**20

# Calls that need less take again what those before them have freed: a page that the system gives anew costs more than
# what is computed with it.
_FREED_ABOVE = 2**30

# No tensor has more; sizes as malformed records have them would lie beyond what floats hold.
_MOST_ELEMENTS = 2**63


#: Lets so many bytes be taken of what a function says is free; raises Skip, with the sizes, where they do not fit.
Admit = Callable[[int, Callable[[], float]], None]

#: Gives with how many bytes golden is computed in blocks; None where it is computed whole.
WorkingBytes = Callable[[], "int | None"]


def require_memory(call: Call, device: Device, admit: Admit, working: WorkingBytes = lambda: None) -> None:
    """Ask for the memory that a check of this call takes, of the machine and of a card with memory of its own.

    Before a large call what earlier ones have freed goes back to the system.
    ``working`` is only asked of a large call.
    """
    needed = needed_bytes(call)
    # A card needs less than that.
    if needed < _ALWAYS_FREE:
        return
    return_freed_before(call)
    in_blocks = working()
    admit(needed if in_blocks is None else needed_in_blocks(call, in_blocks, device), free_bytes)
    on_card = needed_on_card(call)
    if on_card >= _ALWAYS_FREE and free_on_card(device) < math.inf:
        admit(on_card, lambda: free_on_card(device))


def return_freed_before(call: Call) -> None:
    """Return to the system what calls before this one have freed, where it needs much memory."""
    if needed_bytes(call) >= _FREED_ABOVE:
        return_freed_pages()


def admit_whole(call: Call, device: Device, admit: Admit, working_bytes: int, window_bytes: int) -> None:
    """Ask for what golden takes as a whole beyond what was let in where it works with so many bytes.

    ``window_bytes``: what it takes in addition to its raised tensors.
    """
    whole = needed_bytes(call) + window_bytes
    admit(max(0, whole - needed_in_blocks(call, working_bytes, device)), free_bytes)


def admit_at_once(needed: int, free: Callable[[], float]) -> None:
    """Admit a call that fits into nine tenths of the free memory, now. Raises Skip for any other."""
    available = free()
    if needed > available * SHARE:
        raise refusal(needed, available)


def refusal(needed: int, available: float) -> Skip:
    """Return the skip of a call that does not fit."""
    sizes = f"needs about {needed / 2**30:.1f} GiB, {max(0.0, available) / 2**30:.1f} GiB are free"
    return Skip(SkipReason.MEMORY, sizes)


def needed_bytes(call: Call) -> int:
    """Return about how many bytes of CPU memory a check of this call takes.

    Each recorded tensor exists as drawn, on the target and raised to golden precision; gradients likewise.
    """
    return sum(_numel(element) * (2 * _itemsize(element) + _GOLDEN_BYTES) for element in _tensors(call))


def recorded_bytes(call: Call) -> int:
    """Return how many bytes the recorded tensors of a call have."""
    return sum(_numel(element) * _itemsize(element) for element in _tensors(call))


def needed_in_blocks(call: Call, working_bytes: int, device: Device) -> int:
    """Return about how many bytes of CPU memory a check takes whose golden works with so many.

    Each recorded tensor exists on the CPU and on the target, but for those that these share.
    """
    return 2 * recorded_bytes(call) - shared_bytes(call, device) + working_bytes


def needed_on_card(call: Call) -> int:
    """Return about how many bytes of a card's memory a check takes: each recorded tensor, and as much to work with."""
    return sum(_numel(element) * 2 * _itemsize(element) for element in _tensors(call))


def _tensors(call: Call) -> list[TensorElement]:
    elements = [*call.forward.args, *call.forward.kwargs.values(), *call.forward.output]
    if call.backward:
        elements += [*call.backward.grad_outputs, *call.backward.grad_inputs]
    return tensors_of(elements)


def _numel(element: TensorElement) -> int:
    return min(math.prod(element.shape), _MOST_ELEMENTS)


def _itemsize(element: TensorElement) -> int:
    return dtype_named(element.dtype).itemsize


def fits_easily(needed: int) -> bool:
    """Return whether so many bytes can be taken without a reservation: a small part of what is free."""
    return needed < _ALWAYS_FREE or needed < free_bytes() * _UNASKED_SHARE
