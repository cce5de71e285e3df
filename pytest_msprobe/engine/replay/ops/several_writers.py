"""Places that a call writes to more than once: which of their writers wins is left to the device.

``x[[0, 0]] = v`` leaves ``v[0]`` or ``v[1]`` in place 0. Either is right, anything else is wrong. The gradient of the
values arrives at every writer, as torch has it, or at one alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from pytest_msprobe.engine.replay.call import argument_of
from pytest_msprobe.engine.values.error_kinds import REFUSALS

#: The place in the flattened result that each written value goes to, in the shape of the values; None where the call
#: does not overwrite. The last argument is the shape of the result.
PlacesOf: TypeAlias = Callable[[Sequence[Any], Mapping[str, Any], torch.Size], Tensor | None]

_WRITTEN = frozenset({"args.0", "kwargs.input", "kwargs.self", "kwargs.out"})


@dataclass(frozen=True, slots=True)
class Writers:
    """The values that a call writes: the place that each goes to, and the argument that they are."""

    places: PlacesOf
    values_at: int
    values_named: tuple[str, ...]

    def find(self, args: Sequence[Any], kwargs: Mapping[str, Any], shape: torch.Size) -> Tensor | None:
        """Return ``places``, None where the arguments have another form than the operation's own."""
        try:
            return self.places(args, kwargs, shape)
        except REFUSALS:
            return None

    def values(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor | None:
        """Return the argument with the values, None where it is a number: then all writers write the same."""
        found = argument_of(args, kwargs, self.values_at, *self.values_named)
        return found if isinstance(found, Tensor) else None

    @property
    def paths(self) -> frozenset[str]:
        """Return where the argument with the values is."""
        return frozenset({f"args.{self.values_at}", *(f"kwargs.{name}" for name in self.values_named)})


def accept_any_writer(
    writers: Writers | None,
    arguments: tuple[Sequence[Any], Mapping[str, Any]],
    target: dict[str, Any],
    golden: Mapping[str, Any],
) -> None:
    """Write golden's value into the target's results wherever the target has that of another writer to the same place.

    ``arguments`` are those before the call, in the recorded dtypes; the results are trees of CPU tensors, changed in
    place.
    """
    if writers is None:
        return
    args, kwargs = arguments
    values = writers.values(args, kwargs)
    if values is None:
        return

    def accepted(found: Any, right: Any) -> Any:
        if not _differ(found, right):
            return found
        places = writers.find(args, kwargs, right.shape)
        return found if places is None else _accepted(found, right, places, values)

    output, right = target.get("output"), golden.get("output")
    if isinstance(output, (list, tuple)) and isinstance(right, (list, tuple)) and len(output) == len(right) == 1:
        target["output"] = [accepted(output[0], right[0])]
    changed, kept = target.get("changed"), golden.get("changed", {})
    if isinstance(changed, dict):
        target["changed"] = {
            path: accepted(found, kept.get(path)) if path in _WRITTEN else found for path, found in changed.items()
        }


def accept_gradient_of_winner(
    writers: Writers | None,
    arguments: tuple[Sequence[Any], Mapping[str, Any]],
    target: dict[str, Tensor],
    golden: Mapping[str, Tensor],
) -> None:
    """Write golden's gradient of the values into the target's, by path, where one of several writers alone has it."""
    if writers is None:
        return
    args, kwargs = arguments
    values = writers.values(args, kwargs)
    written = argument_of(args, kwargs, 0, "input", "self")
    for path in writers.paths & target.keys() & golden.keys():
        found, right = target[path], golden[path]
        if values is None or not isinstance(written, Tensor) or not _differ(found, right):
            continue
        places = writers.find(args, kwargs, written.shape)
        if places is not None and places.shape == found.shape:
            target[path] = _given_to_one(found, right, places)


def _accepted(found: Tensor, right: Tensor, places: Tensor, values: Tensor) -> Tensor:
    written, places = _spread(values, places), places.reshape(-1)
    if written is None:
        return found
    contested = torch.bincount(places, minlength=found.numel()) > 1
    here = found.reshape(-1)[places]
    wanted = written.to(found.dtype)
    matches = (here == wanted) | (here.isnan() & wanted.isnan())
    is_written = torch.zeros(found.numel(), dtype=torch.bool)
    is_written[places[matches]] = True
    return torch.where((contested & is_written).view(found.shape), right.to(found.dtype), found)


def _spread(values: Tensor, places: Tensor) -> Tensor | None:
    """Return one value for each place, flat; None where they do not fit."""
    if values.numel() == places.numel():
        return values.reshape(-1)
    while values.dim() > places.dim() and values.shape[0] == 1:
        values = values[0]
    sizes = list(zip(reversed(values.shape), reversed(places.shape), strict=False))
    if all(one in (1, other) for one, other in sizes):
        return values.expand(places.shape).reshape(-1)
    if values.dim() == places.dim() and all(one >= other for one, other in sizes):
        # What lies beyond the index is not written.
        return values[tuple(map(slice, places.shape))].reshape(-1)
    return None


def _given_to_one(found: Tensor, right: Tensor, places: Tensor) -> Tensor:
    flat, here, wanted = places.reshape(-1), found.reshape(-1), right.to(found.dtype).reshape(-1)
    size = int(flat.max()) + 1 if flat.numel() else 0
    taken, empty = (here == wanted) & (here != 0), here == 0
    counts = [torch.bincount(flat, weights=each.double(), minlength=size) for each in (taken, empty)]
    alone = (counts[0] == 1) & (counts[0] + counts[1] == torch.bincount(flat, minlength=size))
    return torch.where(alone[flat], wanted, here).view(found.shape)


def _differ(found: Any, right: Any) -> bool:
    if not (isinstance(found, Tensor) and isinstance(right, Tensor)) or found.shape != right.shape:
        return False
    return found.layout is torch.strided is right.layout and not torch.equal(found, right)


def _numbered(shape: torch.Size) -> Tensor:
    return torch.arange(shape.numel()).view(shape)


def _between_brackets(args: Sequence[Any], kwargs: Mapping[str, Any], shape: torch.Size) -> Tensor | None:
    index = argument_of(args, kwargs, 1, "indices")
    if isinstance(index, list) and any(part is None or isinstance(part, Tensor) for part in index):
        # In ATen's lists None stands for a whole dimension.
        index = tuple(slice(None) if part is None else part for part in index)
    return None if argument_of(args, kwargs, 3, "accumulate") else _numbered(shape)[index]


def _scattered(args: Sequence[Any], kwargs: Mapping[str, Any], shape: torch.Size) -> Tensor | None:
    dim, index = argument_of(args, kwargs, 1, "dim"), argument_of(args, kwargs, 2, "index")
    if "reduce" in kwargs or len(args) > 4 or not isinstance(dim, int) or not isinstance(index, Tensor):
        return None
    if not shape:
        return torch.zeros_like(index, dtype=torch.int64)
    dim %= len(shape)
    within = tuple(slice(None) if i == dim else slice(size) for i, size in enumerate(index.shape))
    return _numbered(shape)[within].gather(dim, index.long())


def _copied_along_dim(args: Sequence[Any], kwargs: Mapping[str, Any], shape: torch.Size) -> Tensor | None:
    dim, index = argument_of(args, kwargs, 1, "dim"), argument_of(args, kwargs, 2, "index")
    return _numbered(shape).index_select(dim, index) if shape else None


def _put(args: Sequence[Any], kwargs: Mapping[str, Any], shape: torch.Size) -> Tensor | None:
    index = argument_of(args, kwargs, 1, "index")
    return None if argument_of(args, kwargs, 3, "accumulate") else index.long() % max(shape.numel(), 1)


def _scattered_slices(args: Sequence[Any], kwargs: Mapping[str, Any], shape: torch.Size) -> Tensor | None:
    index = argument_of(args, kwargs, 1, "indices")
    return _numbered(shape)[tuple(index.long().unbind(-1))]


def _unpooled(spatial: int) -> PlacesOf:
    def places(args: Sequence[Any], kwargs: Mapping[str, Any], shape: torch.Size) -> Tensor | None:
        index: Tensor = argument_of(args, kwargs, 1, "indices")
        planes, plane = shape[:-spatial].numel(), shape[-spatial:].numel()
        return index + torch.arange(0, planes * plane, max(plane, 1)).view(*shape[:-spatial], *[1] * spatial)

    return places


BETWEEN_BRACKETS = Writers(_between_brackets, 2, ("values",))
SCATTERED = Writers(_scattered, 3, ("src", "value"))
COPIED_ALONG_DIM = Writers(_copied_along_dim, 3, ("source", "tensor"))
PUT = Writers(_put, 2, ("source",))
SCATTERED_SLICES = Writers(_scattered_slices, 2, ("updates",))


def unpooled(spatial: int) -> Writers:
    """Return the writers of max unpooling over that many dimensions."""
    return Writers(_unpooled(spatial), 0, ("input",))
