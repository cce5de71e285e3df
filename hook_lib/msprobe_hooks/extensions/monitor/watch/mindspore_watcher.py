"""A training of MindSpore that is watched, in PyNative mode: its optimizer, its gradients, and the hooks on its cells.

Numbers are taken on the host at once, since MindSpore's hooks see tensors that the next operation may overwrite.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import FrameType
from typing import Any, Final

import mindspore
from mindspore import Parameter, Tensor, experimental, nn

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.extensions.mindspore import gradients
from msprobe_hooks.extensions.mindspore.context import process_rank, require_pynative
from msprobe_hooks.extensions.mindspore.elements import takes_gradient
from msprobe_hooks.extensions.mindspore.gradients import MindSporeEngine
from msprobe_hooks.extensions.mindspore.host_values import host
from msprobe_hooks.extensions.mindspore.recompute import is_recomputed
from msprobe_hooks.extensions.monitor.series.writer import Row
from msprobe_hooks.extensions.monitor.watch.config import Plan
from msprobe_hooks.extensions.monitor.watch.host_statistics import HostMeter
from msprobe_hooks.extensions.monitor.watch.live_objects import living
from msprobe_hooks.extensions.monitor.watch.mindspore_optimizers import CallHooks, OptimizerState
from msprobe_hooks.extensions.monitor.watch.module_hooks import Fields, Modules
from msprobe_hooks.extensions.monitor.watch.parameters import Weight
from msprobe_hooks.extensions.monitor.watch.quantities import NO_COLLECTIVES, WHAT
from msprobe_hooks.extensions.monitor.watch.step_statistics import Collection
from msprobe_hooks.extensions.monitor.watch.watcher import Observer, Watcher
from msprobe_hooks.recording.backward import Emit


class Cells(Modules):
    """The hooks on the cells of a chunk of the model."""

    tensor_class = Tensor
    engine = MindSporeEngine()

    def takes_gradient(self, tensor: Tensor) -> bool:
        """Return whether a gradient function that is running differentiates by a tensor, and knows where it is from."""
        return takes_gradient(tensor) and tensor._grad_node is not None

    def inputs(self, tensors: Sequence[Tensor]) -> gradients.Inputs:
        """Return where gradients leave a call."""
        return gradients.Inputs(tensors)

    def watch(self, outputs: list[Tensor], inputs: gradients.Inputs, emit: Emit, where: str) -> None:
        """Call ``emit`` by hooks on the nodes of the autograd graph."""
        gradients.watch(outputs, inputs, emit, self.listener, where)

    def is_recomputed(self, frame: FrameType) -> bool:
        """Return whether a call is made again in a backward pass, as of a cell whose ``recompute`` was set."""
        return is_recomputed(frame)


_WATCHED: Final = [name for name in WHAT if name != "collectives"]


class MindSporeWatcher(Watcher):
    """Watches cells, and the optimizer whose calls end the steps of the training."""

    tensor_class = Tensor
    module_class = nn.Cell

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._given: Mapping[int, Tensor] = {}
        super().__init__(*args, **kwargs)

    def follow(self, plan: Plan, *, collected: int = 0) -> None:
        """Watch by a plan from here on. Raises ConfigError also in graph mode and for what MindSpore lacks."""
        require_pynative()
        if plan.wants("collectives"):
            raise ConfigError("what", "collectives", f"{', '.join(_WATCHED)}; {NO_COLLECTIVES}")
        super().follow(plan, collected=collected)

    def process_rank(self) -> int | None:
        """Return this process's rank, None where there is one process."""
        return process_rank()

    def reduced_gradients(self) -> list[Row]:
        """Return the rows of the gradients that the optimizer was last called with: they are its arguments only."""
        return self.latest("grad_reduced")

    def new_collection(self, plan: Plan) -> Collection:
        """Return what measures on the host."""
        return Collection(HostMeter(plan.statistics, plan.eps, _on_host), mindspore._no_grad)

    def hooks_on_steps(self) -> CallHooks:
        """Put hooks on the calls of the optimizer. Raises ConfigError for what is none."""
        if not isinstance(self.optimizer, nn.Cell) or not hasattr(self.optimizer, "parameters"):
            raise ConfigError("optimizer", self.optimizer, "an optimizer of MindSpore")

        def before(gradients: dict[int, Tensor]) -> None:
            self._given = gradients
            self.begin_end_of_step()

        def after() -> None:
            self._given = {}
            self.end_step()

        return CallHooks(self.optimizer, before, after, partial(self._note, "the optimizer"))

    def state(self) -> OptimizerState:
        """Return the state of the optimizer."""
        return OptimizerState(self.optimizer)

    def living_optimizers(self) -> list[OptimizerState]:
        """Return the states of all optimizers in this process."""
        kinds = (nn.Optimizer, experimental.optim.Optimizer)
        return [OptimizerState(one) for one in living(kinds) if hasattr(one, "parameters")]

    def has_gradients(self) -> bool:
        """Return True: the optimizer is called with gradients."""
        return True

    def named_modules(self, model: nn.Cell) -> Iterable[tuple[str, nn.Cell]]:
        """Yield all cells in a model by name."""
        named: Iterable[tuple[str, nn.Cell]] = model.cells_and_names()
        return named

    def named_parameters(self, model: nn.Cell) -> Iterable[tuple[str, Parameter]]:
        """Yield the parameters of a model by name."""
        named: Iterable[tuple[str, Parameter]] = model.parameters_and_names()
        return named

    def hooks_on_modules(self, chunk: int, wanted: Sequence[tuple[str, Any, Fields]]) -> Cells:
        """Put hooks on cells."""
        return Cells(self.collection, chunk, self.models[chunk], wanted)

    def hooks_on_gradients(self, weights: Sequence[Weight], *, each_micro_batch: bool) -> UnreducedGradients:
        """Put hooks on the gradients of parameters."""
        return UnreducedGradients(self.collection, weights, self.micro_batches, each_micro_batch=each_micro_batch)

    def hooks_on_collectives(self, plan: Plan) -> Observer | None:
        """Return None: a plan with collectives is refused."""

    def gradient(self, parameter: Parameter) -> Tensor | None:
        """Return the gradient that the optimizer is being called with."""
        return self._given.get(id(parameter))


class UnreducedGradients:
    """Measures the gradients of parameters as each backward pass ends, before ranks are averaged over.

    A gradient is what that pass brought: MindSpore's programs accumulate them where no hook sees it. That of the last
    micro batch of a step is the one that is reported; all of them, with ``each_micro_batch``.
    """

    def __init__(
        self, collection: Collection, weights: Sequence[Weight], micro_batches: int, *, each_micro_batch: bool
    ) -> None:
        self._collection = collection
        self._micro_batches = micro_batches
        self._each = each_micro_batch
        self._arrived: Counter[Weight] = Counter()
        self._handles = [self._watch(weight) for weight in weights]

    def remove(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def end_step(self) -> None:
        """Begin to count micro batches anew."""
        self._arrived.clear()

    def _watch(self, weight: Weight) -> Any:
        def arrive(gradient: Tensor) -> None:
            number = self._arrived[weight]
            self._arrived[weight] += 1
            if self._each or number + 1 >= self._micro_batches:
                micro_step = number if self._each else None
                self._collection.measure("grad_unreduced", weight.chunk, [weight.name], [gradient], micro_step)

        harmless = self._collection.harmless(f"the gradient of {weight.name!r}", arrive)
        # MindSpore requires a function of one argument, and takes what it returns for the gradient to go on with.
        return weight.parameter.register_hook(lambda gradient: harmless(gradient))


def _on_host(tensor: Any) -> Any:
    return host(tensor) if isinstance(tensor, Tensor) else tensor
