"""A training of MindSpore that is watched in PyNative mode: its optimizer, moments, gradients and cells.

Numbers are taken on the host at once, since MindSpore's hooks see tensors that the next operation may overwrite.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, experimental, nn

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.extensions.mindspore import gradients
from msprobe_hooks.extensions.mindspore.context import process_rank, require_pynative
from msprobe_hooks.extensions.mindspore.gradients import MindSporeEngine, takes_gradient
from msprobe_hooks.extensions.mindspore.recorder import host, is_recomputed
from msprobe_hooks.extensions.monitor.series.writer import Row
from msprobe_hooks.extensions.monitor.watch.config import NO_COLLECTIVES, WHAT, Plan
from msprobe_hooks.extensions.monitor.watch.host_statistics import HostMeter
from msprobe_hooks.extensions.monitor.watch.parameters import Weight, living
from msprobe_hooks.extensions.monitor.watch.step_statistics import Collection, Fields, Modules
from msprobe_hooks.extensions.monitor.watch.trainer_mon import Monitor
from msprobe_hooks.extensions.monitor.watch.watcher import Observer, Watcher
from msprobe_hooks.recording.array_statistics import Array
from msprobe_hooks.recording.backward import Emit
from msprobe_hooks.recording.interposition import uncopied
from msprobe_hooks.recording.safety_net import guarded

# What the optimizers call Adam's moments.
_MOMENTS: Final = {"exp_avg": ("exp_avg", "moments1", "moment1"), "exp_avg_sq": ("exp_avg_sq", "moments2", "moment2")}


class CallHooks:
    """Has functions called before each call of an optimizer, with its gradients by parameter, and after it.

    ``failed`` gets what they raise.
    """

    def __init__(
        self,
        optimizer: Any,
        before: Callable[[dict[int, Tensor]], None],
        after: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        def begin(_: Any, inputs: tuple[Any, ...]) -> None:
            gradients = inputs[0] if inputs and isinstance(inputs[0], (tuple, list)) else ()
            before({id(one): gradient for one, gradient in zip(optimizer.parameters, gradients, strict=False)})

        def end(*_: Any) -> None:
            after()

        self._handles = [
            optimizer.register_forward_pre_hook(uncopied(guarded(begin, failed))),
            optimizer.register_forward_hook(uncopied(guarded(end, failed))),
        ]

    def remove(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


class OptimizerState:
    """The state of an optimizer by parameter of the model; nothing of what is not an Adam."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self._places = {} if optimizer is None else {id(one): n for n, one in enumerate(optimizer.parameters)}

    def stepped(self, weights: Iterable[Weight]) -> list[Weight]:
        """Return the parameters that the optimizer steps."""
        return [one for one in weights if id(one.parameter) in self._places]

    def moments(self, weights: Iterable[Weight]) -> Iterator[tuple[Weight, dict[str, Tensor]]]:
        """Yield the parameters that have moments, with them. Before the first call they are 0."""
        lists = {task: self._attribute(names) for task, names in _MOMENTS.items()}
        for weight in self.stepped(weights):
            place = self._places[id(weight.parameter)]
            moments = {task: list_[place] for task, list_ in lists.items() if place < len(list_)}
            if moments:
                yield weight, moments

    def updates(self, weights: Iterable[Weight]) -> Iterator[tuple[Weight, Array, Array]]:
        """Yield the parameters that have both moments, with m̂ / (√v̂ + ε) and m̂ / √v̂ of them."""
        steps = self._steps()
        for weight, moments in self.moments(weights):
            if steps and len(moments) == len(_MOMENTS):
                beta1, beta2, eps = self._constants(weight)
                corrections = 1 - beta1**steps, 1 - beta2**steps
                first, second = (host(moments[task]) for task in _MOMENTS)
                yield weight, *update_and_ratio(first, second, corrections, eps)

    def agreements(self, pairs: Iterable[tuple[Tensor, Tensor | None]]) -> list[Array]:
        """Return how far the signs of each gradient and of its first moment agree; 1 as long as the moment is 0."""
        return [_agreement(gradient, moment) for gradient, moment in pairs]

    def _attribute(self, names: Sequence[str]) -> Sequence[Tensor]:
        return next(
            (attribute for name in names if (attribute := getattr(self._optimizer, name, None)) is not None), ()
        )

    def _steps(self) -> float:
        """Return the number of steps: infinity where the optimizer corrects no bias, 0 where it counts none."""
        optimizer = self._optimizer
        if hasattr(optimizer, "state_step"):
            count = int(host(optimizer.state_step).reshape(-1)[0])
            # mint's AdamW begins to count at -1.
            return count + (type(optimizer).__module__ == "mindspore.mint.optim.adamw")
        if hasattr(optimizer, "beta1_power"):
            return int(host(optimizer.global_step).reshape(-1)[0])
        return math.inf if hasattr(optimizer, "moments1") else 0

    def _constants(self, weight: Weight) -> tuple[float, float, float]:
        """Return beta1, beta2 and epsilon that a parameter is stepped with."""
        for group in getattr(self._optimizer, "param_groups", ()):
            if any(one is weight.parameter for one in group["params"]):
                return (*map(float, group["betas"]), float(group["eps"]))  # type: ignore[return-value]
        numbers = (getattr(self._optimizer, name) for name in ("beta1", "beta2", "eps"))
        beta1, beta2, eps = (float(host(one).reshape(-1)[0]) for one in numbers)
        return beta1, beta2, eps


def update_and_ratio(first: Array, second: Array, corrections: tuple[float, float], eps: float) -> tuple[Array, Array]:
    """Return m̂ / (sqrt(v̂) + eps) and m̂ / sqrt(v̂), where m̂ and v̂ are the moments over their corrections.

    Kingma and Ba 2015, algorithm 1. The ratio is 0 where v̂ is.
    """
    corrected = first / first.dtype.type(corrections[0])
    root = np.sqrt(second) / second.dtype.type(math.sqrt(corrections[1]))
    update = corrected / (root + root.dtype.type(eps))
    return update, np.divide(corrected, root, out=np.zeros_like(corrected), where=root != 0)


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
        """Register hooks on the calls of the optimizer. Raises ConfigError for what is none."""
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

    def hooks_on_modules(self, chunk: int, modules: Sequence[tuple[str, Any, Fields]]) -> Cells:
        """Register hooks on cells."""
        return Cells(self.collection, chunk, self.models[chunk], modules)

    def hooks_on_gradients(self, weights: Sequence[Weight], *, each_micro_batch: bool) -> UnreducedGradients:
        """Register hooks on the gradients of parameters."""
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


def _agreement(gradient: Tensor, moment: Tensor | None) -> Array:
    if moment is None or not (signs := np.sign(host(moment))).any():
        return np.ones(())
    return np.asarray((np.mean(np.sign(host(gradient)) * signs, dtype=np.float64) + 1) / 2)


def _on_host(tensor: Any) -> Any:
    return host(tensor) if isinstance(tensor, Tensor) else tensor


class TrainerMon(Monitor):
    """Watches the training of one model of MindSpore with one optimizer, as a configuration file says."""

    def watcher(self, model: Any, optimizer: Any, **options: Any) -> MindSporeWatcher:
        """Return what watches cells."""
        return MindSporeWatcher(model, optimizer, **options)

    def rank_in(self, group: str) -> int:
        """Return this process's rank in a group of MindSpore's communication, which is a name."""
        from mindspore.communication import get_rank

        return int(get_rank(group))

    def ranks_of(self, group: str) -> list[int]:
        """Return the ranks in the whole program of a group's processes."""
        from mindspore.communication import get_process_group_ranks

        return list(map(int, get_process_group_ranks(group)))

    def read(self, path: str | Path) -> tuple[Plan, list[str]]:
        """Return the plan of a configuration, without collectives, and warnings. Raises ConfigError."""
        plan, warnings = super().read(path)
        if plan.wants("collectives"):
            plan = replace(plan, what=plan.what - {"collectives"})
            warnings.append(f"cc_distribution is ignored: {NO_COLLECTIVES}")
        return plan, warnings
