"""The forward and backward pass of chosen steps, and the optimizer's step, computed twice and compared bit by bit."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.extensions.repeated_steps.differences import Difference, OnDifference, Report, save_case
from msprobe_hooks.extensions.repeated_steps.differing_call import CallCapture, DifferingCall, located, watched_pass
from msprobe_hooks.extensions.repeated_steps.digests import Arrivals, CallDigests, combined
from msprobe_hooks.extensions.repeated_steps.passes import (
    MOST_PLACES,
    Passes,
    Result,
    WatchedPass,
    WatchedSteps,
    explained,
    explained_third,
    received,
    with_values,
)
from msprobe_hooks.extensions.repeated_steps.training_state import (
    OptimizerHooks,
    OptimizerState,
    OwnStep,
    RandomNumbers,
    TrainingState,
    compiled_frames,
    generators_of,
    optimizer_digests,
    parameter_digests,
    pass_digests,
)
from msprobe_hooks.messages import listed
from msprobe_hooks.recording.config import settings
from msprobe_hooks.torch.recorder import TorchRecorder
from msprobe_hooks.torch.session import process_rank

if TYPE_CHECKING:
    from msprobe_hooks.extensions.repeated_steps.passes import Schedule


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


class StepRepeat(WatchedSteps):
    """Runs a training's forward and backward pass in PyTorch, and compares the steps of its optimizers as well."""

    def __init__(
        self,
        model: nn.Module,
        schedule: Schedule,
        folder: Path,
        *,
        sees_calls: bool,
        keeps_values: bool,
        optimizers: Sequence[torch.optim.Optimizer],
        stateful: Sequence[Any],
        data_parallel_group: Any,
        on_difference: OnDifference,
    ) -> None:
        self._model = model
        self._keeps_values = keeps_values
        self._stateful = stateful
        self._ranks = Ranks(model, data_parallel_group)
        self._random = partial(RandomNumbers, model, generators_of(stateful))
        # How many calls of a step were saved.
        self._saved: Counter[int] = Counter()
        # Parameters that have left each other stay apart: this is reported once.
        self._has_odd_replicas = False
        device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
        not_seen = "calls=False" if not sees_calls else "the model is compiled" if _is_compiled(model) else ""
        report = Report(
            rank=process_rank(),
            host=socket.gethostname(),
            card=str(device),
            not_seen=not_seen,
            compares_replicas=self._ranks.compares_replicas,
            optimizer_steps=0 if optimizers else None,
        )
        super().__init__(schedule, folder, on_difference, report)
        # Which operators an optimizer calls does not depend on the model's being compiled.
        own_step = partial(OwnStep, keeps_all=keeps_values) if sees_calls else None
        self._hooks = OptimizerHooks(
            optimizers, lambda: self._random().restore, self._note_closure, self._compare_optimizer, own_step
        )

    def __call__(self, function: Callable[[], Result]) -> Result:
        """Run the function as `WatchedSteps` does, and have the steps of optimizers compared that follow."""
        if self._count % self._schedule.micro_batches == 0:
            in_any = None if self._ranks.is_alone else self._any
            self._hooks.arm(is_watched=self._schedule.is_watched_step(self._count), in_any=in_any)
        return super().__call__(function)

    def _parameters(self) -> dict[str, int]:
        return parameter_digests(self._model)

    def _any(self, condition: bool) -> bool:
        return self._ranks.any(condition)

    def _passes(
        self, function: Callable[[], Result], before: dict[str, int], at: Callable[..., Difference]
    ) -> tuple[Callable[..., tuple[WatchedPass, Result]], Callable[[], None]]:
        self._compare_replicas(before, at)
        state = TrainingState(self._model, self._stateful)
        torch.clear_autocast_cache()
        return partial(self._pass, function), state.restore

    def _pass(
        self,
        function: Callable[[], Result],
        expected: Sequence[tuple[int, ...]] | None = None,
        *,
        captures: Sequence[int] | None = None,
    ) -> tuple[WatchedPass, Result]:
        collector: CallDigests | None = None
        if captures is not None and not self.report.not_seen:
            collector = CallCapture(self._model, captures)
        elif not self.report.not_seen:
            arrivals = None if self._ranks.is_alone else Arrivals()
            keeps_all = self._keeps_values and expected is None
            collector = CallDigests(expected or (), keeps_all=keeps_all, arrivals=arrivals)
        return watched_pass(function, partial(pass_digests, self._model), collector, self._random)

    def _note_closure(self) -> None:
        self.report.closures += 1

    def _compare_optimizer(
        self, optimizer: torch.optim.Optimizer, before: OptimizerState, again: Callable[[], None], own: OwnStep | None
    ) -> None:
        """Compare the step that an optimizer has made with another one from the same state."""
        report, earlier = self.report, len(self.report.differences)
        names = {id(parameter): name for name, parameter in self._model.named_parameters()}
        is_compiled = self._hooks.is_compiled(optimizer)
        if is_compiled and not self._ranks.is_alone:
            # Whether its passes communicate is not seen, and one rank alone must not make a third.
            report.compiled_steps += 1
            report.write(self._folder)
            return
        if is_compiled and (whole := f"optimizer {type(optimizer).__name__}") not in report.compiled:
            report.compiled.append(whole)

        def values(_: object = None) -> dict[str, int]:
            return optimizer_digests(optimizer, names)

        def step(collector: CallDigests | None) -> WatchedPass:
            before.restore()
            return watched_pass(again, values, collector, self._random)[0]

        first = WatchedPass(values(), own, [] if own is None else own.read(), self._random())
        second = step(None if is_compiled else CallDigests(first.calls))
        assert report.optimizer_steps is not None
        report.optimizer_steps += 1
        calls = first.differing_calls(second, self._undefined)
        # Without communication each process decides by itself: others may have no step to make.
        together = second.collector is not None and second.collector.communicates
        in_any = self._ranks.any if together else bool
        if in_any(bool(calls or first.differing(second))):
            third = step(None if is_compiled else CallCapture(self._model, [*calls][:MOST_PLACES]))
            at = partial(report.place(*self._schedule.place_of(self._count - 1)), optimizer=type(optimizer).__name__)
            why = "the optimizer is compiled" if is_compiled else report.not_seen or "not seen in the first pass"
            not_seen = "" if own is not None else why
            self._explain(Passes(first, second, third, calls, not_seen), at, in_any)
            if in_any(not first.differing(second) and bool(first.differing(third))):
                before.restore()
                again()
        report.finish(self._folder, earlier, self._on_difference)

    def _compare_replicas(self, before: dict[str, int], at: Callable[..., Difference]) -> None:
        digests = self._ranks.odd_replicas(combined(before.values()))
        if digests is None or self._has_odd_replicas:
            return
        self._has_odd_replicas = True
        odd, of_replicas = minority(digests), self._ranks.gather_replicas(list(before.values()))
        names = [
            name for name, numbers in zip(before, zip(*of_replicas, strict=True), strict=True) if len(set(numbers)) > 1
        ]
        which = f"{'rank' if len(odd) == 1 else 'ranks'} {listed(map(str, odd))}"
        others = "the others" if len(odd) < len(digests) else "each other"
        reason = f"parameters of {which} differ from {others} before the step, first {listed(names, 3)}"
        self._add(at(kind="replicas", reason=reason, values=names, odd_ranks=odd))

    def _explain(
        self, passes: Passes, at: Callable[..., Difference], in_any: Callable[[bool], bool] | None = None
    ) -> None:
        """Report why passes differ; ``in_any`` asks the processes that make them, by default all."""
        in_any = in_any or self._any
        after = self._random()
        position = located(passes, self._undefined)
        values = passes.first.differing(passes.second)
        has_origin = in_any(position.is_origin)
        place = at(kind="wrong", reason="", values=[])
        of_optimizer = f"optimizer {place.optimizer}: " if place.optimizer else ""
        if values or position.place is not None or passes.first.random.have_moved():
            is_received = has_origin and not position.is_origin
            why = received() if is_received else explained(passes, position, partial(self._save, place))
            compared = "parameters and state" if of_optimizer else "result, gradients and buffers"
            reason = with_values(f"{of_optimizer}{why.reason}", values, compared)
            self._add(at(kind=why.kind, reason=reason, values=values, odd_pass=why.odd_pass, call=why.call))
        elif third := passes.second.differing(passes.third):
            why = explained_third(passes, self._undefined)
            reason = f"{of_optimizer}{why.reason}"
            self._add(at(kind=why.kind, reason=reason, values=third, odd_pass=3, call=why.call))
        self.report.undefined = sorted({str(operator) for operator, _ in self._undefined})
        after.restore()

    def _save(
        self, place: Difference, call: DifferingCall, wrong: Sequence[Tensor] | None
    ) -> tuple[str | None, str | None]:
        # A pass and an optimizer, or several, may differ in one step.
        self._saved[place.step] += 1
        number = self._saved[place.step]
        return save_case(place, call, wrong, self._folder, "" if number == 1 else str(number), _recorder)


def _recorder(folder: Path) -> TorchRecorder:
    return TorchRecorder(settings(folder, level="aten", task="tensor", extra_info=False))


def _is_compiled(model: nn.Module) -> bool:
    """Return whether torch.compile has compiled anything in this process, or is to compile a part of the model."""
    return compiled_frames() > 0 or any(
        hasattr(module, "_orig_mod") or module._compiled_call_impl for module in model.modules()
    )


def minority(digests: dict[int, int]) -> list[int]:
    """Return the ranks whose digest is not that of most; all ranks where no digest has more than half of them."""
    digest, count = Counter(digests.values()).most_common(1)[0]
    return [rank for rank, own in digests.items() if own != digest or count * 2 <= len(digests)]
