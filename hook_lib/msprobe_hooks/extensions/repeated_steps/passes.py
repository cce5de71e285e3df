"""Watched passes of torch, their digests and first differences, and the processes that make them together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_leaves

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.extensions.repeated_steps.differences import Located, Passes, WatchedPass
from msprobe_hooks.extensions.repeated_steps.differing_call import CallCapture
from msprobe_hooks.extensions.repeated_steps.digests import (
    MOST_PLACES,
    CallDigests,
    named_digests,
    number_digest,
)
from msprobe_hooks.extensions.repeated_steps.training_state import RandomNumbers, parameters_of
from msprobe_hooks.torch.no_dispatch import NoDispatch

Result = TypeVar("Result")


def watched_pass(
    function: Callable[[], Result],
    values_of: Callable[[Result], dict[str, int]],
    collector: CallDigests | None,
    random_of: Callable[[], RandomNumbers],
) -> tuple[WatchedPass, Result]:
    """Make a pass and return it with what the function returned; ``collector`` takes the digests of its calls."""
    with collector.following() if isinstance(collector, CallCapture) else collector or nullcontext():
        result = function()
    values = values_of(result)
    with NoDispatch():
        return WatchedPass(values, collector, [] if collector is None else collector.read(), random_of()), result


def pass_digests(model: nn.Module, result: Any) -> dict[str, int]:
    """Return the digests of what a pass leaves, by name: what it returned, gradients and buffers."""
    with NoDispatch():
        numbers = ((f"result {place}", number_digest(leaf)) for place, leaf in enumerate(tree_leaves(result)))
        return named_digests(_tensors(model, result)) | {name: one for name, one in numbers if one is not None}


def located(passes: Passes, undefined: set[tuple[Any, int]]) -> Located:
    """Return the first call that differs, other than in memory that it has not written to; that is added."""
    first, second, capture = passes.first.collector, passes.second.collector, passes.third.collector
    if first is None or second is None or not isinstance(capture, CallCapture):
        return Located()
    for place, results in [*passes.calls.items()][:MOST_PLACES]:
        call = capture.captured.get(place)
        if call is not None and results:
            undefined.update((call.operator, number) for number in call.undefined_results() & results)
            results = {number for number in results if (call.operator, number) not in undefined}
        if call is None or results:
            one, other = first.arrivals, second.arrivals
            is_received = one is not None and other is not None and one.differ(other, place)
            return Located(place, call, is_received)
    return Located()


def parameter_digests(model: nn.Module) -> dict[str, int]:
    """Return the digests of a model's parameters by name."""
    with NoDispatch():
        return named_digests(model.named_parameters())


def _tensors(model: nn.Module, result: Any) -> Iterator[tuple[str, Tensor]]:
    for place, leaf in enumerate(tree_leaves(result)):
        if isinstance(leaf, Tensor):
            yield f"result {place}", leaf
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            yield f"gradient of {name}", parameter.grad
        if isinstance(main := getattr(parameter, "main_grad", None), Tensor):
            yield f"main gradient of {name}", main
    for name, buffer in model.named_buffers():
        yield f"buffer {name}", buffer


def optimizer_digests(optimizer: torch.optim.Optimizer, names: Mapping[int, str]) -> dict[str, int]:
    """Return the digests of an optimizer's parameters and state; ``names`` are those of parameters by their id."""
    with NoDispatch():
        values = list(_values(optimizer, names))
        digests = named_digests((name, value) for name, value in values if isinstance(value, Tensor))
        numbers = ((name, number_digest(value)) for name, value in values if not isinstance(value, Tensor))
        return digests | {name: number for name, number in numbers if number is not None}


def _values(optimizer: torch.optim.Optimizer, names: Mapping[int, str]) -> Iterator[tuple[str, Any]]:
    for number, parameter in enumerate(parameters_of(optimizer)):
        name = names.get(id(parameter), f"parameter {number} of the optimizer")
        yield name, parameter
        # Parameters without a gradient have no state.
        if parameter in optimizer.state:
            for key, value in optimizer.state[parameter].items():
                yield f"{key} of {name}", value


class Ranks:
    """The processes that compute a step together, and of these the ``replicas``, which have the same parameters.

    Replicas are given as a process group, or are those of a model inside DistributedDataParallel. In a process of its
    own nothing is exchanged. Raises ConfigError for a group that this process does not belong to.
    """

    def __init__(self, model: nn.Module, replicas: Any = None) -> None:
        #: Whether no other process takes part.
        self.is_alone = not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1)
        if replicas is None and isinstance(model, DistributedDataParallel):
            replicas = model.process_group
        if replicas is not None and (self.is_alone or dist.get_rank(replicas) < 0):
            raise ConfigError("data_parallel_group", "a group", "a process group that this process belongs to")
        self._replicas = replicas
        self._device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))

    @property
    def compares_replicas(self) -> bool:
        """Return whether parameters are compared over ranks."""
        return self._replicas is not None

    def gather(self, numbers: Sequence[int]) -> list[list[int]]:
        """Return these numbers of all processes, by rank; each gives as many."""
        return [list(numbers)] if self.is_alone else self._gather(numbers, None)

    def any(self, condition: bool) -> bool:
        """Return whether a condition holds in any of the processes, each of which asks."""
        return any(numbers[0] for numbers in self.gather([condition]))

    def odd_replicas(self, digest: int) -> dict[int, int] | None:
        """Return the digest of each replica by its rank, None where all have the same."""
        if self._replicas is None:
            return None
        gathered = [numbers[0] for numbers in self._gather([digest], self._replicas)]
        return (
            None
            if len(set(gathered)) == 1
            else dict(zip(dist.get_process_group_ranks(self._replicas), gathered, strict=True))
        )

    def gather_replicas(self, numbers: Sequence[int]) -> list[list[int]]:
        """Return these numbers of all replicas."""
        return self._gather(numbers, self._replicas)

    def _gather(self, numbers: Sequence[int], group: Any) -> list[list[int]]:
        device = torch.device("cpu") if "gloo" in dist.get_backend(group) else self._device
        own = torch.tensor(list(numbers), dtype=torch.int64, device=device)
        gathered = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
        dist.all_gather(gathered, own, group=group)
        return [of_rank.tolist() for of_rank in gathered]


def minority(digests: dict[int, int]) -> list[int]:
    """Return the ranks whose digest is not that of most; all ranks where no digest has more than half of them."""
    digest, count = Counter(digests.values()).most_common(1)[0]
    return [rank for rank, own in digests.items() if own != digest or count * 2 <= len(digests)]
