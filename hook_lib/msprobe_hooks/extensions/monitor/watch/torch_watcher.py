"""A training of PyTorch that is watched: its optimizer, the hooks on its modules, gradients before they are summed."""

from __future__ import annotations

import logging
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from msprobe_hooks.extensions.monitor.watch.batched_statistics import Meter
from msprobe_hooks.extensions.monitor.watch.config import Plan
from msprobe_hooks.extensions.monitor.watch.optimizers import Collectives, OptimizerState, StepHooks
from msprobe_hooks.extensions.monitor.watch.parameters import Parameters, Weight, living, measure
from msprobe_hooks.extensions.monitor.watch.step_statistics import Collection, Fields, Modules
from msprobe_hooks.extensions.monitor.watch.watcher import Observer, Watcher
from msprobe_hooks.recording.backward import Emit
from msprobe_hooks.recording.interposition import Interposition
from msprobe_hooks.recording.safety_net import guarded
from msprobe_hooks.torch import gradients
from msprobe_hooks.torch.call_mode import is_traced
from msprobe_hooks.torch.gradients import TorchEngine, is_recomputed
from msprobe_hooks.torch.modules import UnscriptedHooks
from msprobe_hooks.torch.no_dispatch import NoDispatch
from msprobe_hooks.torch.session import process_rank

_log = logging.getLogger("msprobe_hooks")

#: Takes what FSDP2 keeps of parameters, of which ``sharded_param`` is the model's, and gradients of this process.
Listener = Callable[["list[Any]", "list[Tensor]"], None]


class UnreducedGradients:
    """Measures gradients as backward passes leave them in this process, before ranks are averaged over.

    That of the last micro batch of a step is reported; with ``each_micro_batch`` those of all. A gradient
    is what was accumulated until then. A process of its own measures all of a backward pass together at its end; among
    several each gradient is measured at once, for the next thing that happens to it may be the reduction.
    """

    def __init__(
        self,
        collection: Collection,
        weights: Sequence[Weight],
        micro_batches: int,
        *,
        each_micro_batch: bool,
        has_main_grad: bool,
    ) -> None:
        self._collection = collection
        self._micro_batches = micro_batches
        self._has_main_grad = has_main_grad
        self._each = each_micro_batch
        self._arrived: Counter[Weight] = Counter()
        self._waiting: list[Weight] = []
        self._task: int | None = None
        self._nodes: list[Any] = []
        # Held here and not by the hooks: the garbage collector does not see what torch holds.
        self._arrivals: list[Callable[..., None]] = []
        self._is_alone = not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1)
        self._uninitialized = [one for one in weights if is_lazy(one.parameter)]
        self._handles = [self._watch(one) for one in weights if one not in self._uninitialized]
        if self._uninitialized:
            failed = partial(collection.errors.note, "gradients of parameters that were not initialized")
            self._first_calls = register_module_forward_hook(guarded(self._watch_initialized, failed))
            self._handles.append(self._first_calls)
        self._unlisten = self._listen(weights)

    def remove(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._nodes.clear()
        self._arrivals.clear()
        self._unlisten()

    def end_step(self) -> None:
        """Begin to count micro batches anew."""
        self._arrived.clear()
        self._waiting.clear()

    def _watch(self, weight: Weight) -> Any:
        failed = partial(self._collection.errors.note, f"the gradient of {weight.name!r}")
        arrive = guarded(partial(self._arrive, weight), failed)
        self._arrivals.append(arrive)
        hook, parameter = partial(_call, weakref.ref(arrive)), weight.parameter
        if self._has_main_grad and hasattr(parameter, "main_grad"):
            # Megatron adds to main_grad in a hook behind the accumulation of ``grad``, put on before this one.
            with torch.enable_grad():
                node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
            self._nodes.append(node)
            return node.register_hook(hook)
        return parameter.register_post_accumulate_grad_hook(hook)

    def _watch_initialized(self, *_: object) -> None:
        # A lazy module initializes its parameters in its first call, and they take no hooks before.
        initialized = [one for one in self._uninitialized if not is_lazy(one.parameter)]
        self._uninitialized = [one for one in self._uninitialized if one not in initialized]
        self._handles += [self._watch(one) for one in initialized]
        if not self._uninitialized:
            self._first_calls.remove()

    def _listen(self, weights: Sequence[Weight]) -> Callable[[], None]:
        self._shards = {id(one.parameter): one for one in weights if _is_distributed_tensor(one.parameter)}
        self._reduced_in_shards: set[Weight] = set()
        if not self._shards:
            return lambda: None
        try:
            return listen(self._collection.harmless("gradients of sharded parameters", self._reduce))
        except (ImportError, TypeError) as error:
            # What accumulates in a shard may be reduced already.
            self._reduced_in_shards.update(self._shards.values())
            self._collection.errors.note("gradients of sharded parameters before reduction", error)
            return lambda: None

    def _reduce(self, parameters: Sequence[Any], gradients: Sequence[Tensor]) -> None:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            weight = self._shards.get(id(parameter.sharded_param))
            if weight is not None:
                self._reduced_in_shards.add(weight)
                self._arrived[weight] += 1
                number = self._arrived[weight] - 1 if self._each else None
                measure(self._collection, "grad_unreduced", [(weight, gradient)], number)

    def _arrive(self, weight: Weight) -> None:
        task = torch._C._current_graph_task_id()
        # Whether a pass is watched was asked at its first gradient.
        if (task != self._task and not self._collection.is_watching) or weight in self._reduced_in_shards:
            return
        self._arrived[weight] += 1
        if not self._each and self._arrived[weight] < self._micro_batches:
            return
        if self._is_alone:
            if task != self._task:
                finish = self._collection.harmless("gradients", self._finish)
                # What waits is of the pass around this one, as reentrant checkpointing has it, or of one that raised.
                finish()
                self._task = task
                torch.autograd.Variable._execution_engine.queue_callback(finish)
            self._waiting.append(weight)
        else:
            self._collection.run(f"the gradient of {weight.name!r}", self._measure, [weight])

    def _finish(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._task = None
        self._measure(waiting)

    def _measure(self, weights: Sequence[Weight]) -> None:
        numbers = {self._arrived[weight] - 1 for weight in weights} if self._each else {None}
        for number in numbers:
            those = [one for one in weights if number is None or self._arrived[one] - 1 == number]
            measure(self._collection, "grad_unreduced", [(one, one.gradient()) for one in those], number)


def _call(arrival: weakref.ref[Callable[..., None]], *_: object) -> None:
    arrive = arrival()
    if arrive is not None:
        arrive()


class TorchModules(Modules):
    """The hooks on the modules of a chunk of the model."""

    tensor_class = Tensor
    engine = TorchEngine()

    def takes_gradient(self, tensor: Tensor) -> bool:
        """Return whether a backward pass can give a tensor a gradient."""
        return tensor.requires_grad

    def inputs(self, tensors: Sequence[Tensor]) -> gradients.Inputs:
        """Return where gradients leave a call."""
        return gradients.Inputs(tensors)

    def watch(self, outputs: list[Tensor], inputs: gradients.Inputs, emit: Emit, where: str) -> None:
        """Call ``emit`` by hooks on the nodes of the autograd graph."""
        gradients.watch(outputs, inputs, emit, self.listener, where)

    def is_recomputed(self, frame: FrameType) -> bool:
        """Return whether activation checkpointing makes a call."""
        return is_recomputed(frame)


class TorchWatcher(Watcher):
    """Watches modules, and an optimizer that may be one around others."""

    tensor_class = Tensor
    module_class = nn.Module
    _unscripted: UnscriptedHooks | None = None

    def process_rank(self) -> int | None:
        """Return this process's rank, None where there is one process."""
        return process_rank()

    def new_collection(self, plan: Plan) -> Collection:
        """Return what measures where the tensors are."""
        return Collection(Meter(plan.statistics, plan.eps), NoDispatch, is_traced)

    def hooks_on_steps(self) -> StepHooks:
        """Register hooks on the steps of this optimizer."""
        return StepHooks(self.optimizer, self.begin_end_of_step, self.end_step)

    def state(self) -> OptimizerState:
        """Return the state of the optimizer, or of those inside it."""
        return OptimizerState(self.optimizer)

    def living_optimizers(self) -> list[OptimizerState]:
        """Return the states of all optimizers in this process."""
        return [OptimizerState(one) for one in living(Optimizer)]

    def named_modules(self, model: nn.Module) -> Iterable[tuple[str, nn.Module]]:
        """Yield all modules in a model by name."""
        named: Iterable[tuple[str, nn.Module]] = model.named_modules()
        return named

    def named_parameters(self, model: nn.Module) -> Iterable[tuple[str, Tensor]]:
        """Yield the parameters of a model by name."""
        return model.named_parameters()

    def hooks_on_modules(self, chunk: int, modules: Sequence[tuple[str, Any, Fields]]) -> TorchModules:
        """Register hooks on modules."""
        return TorchModules(self.collection, chunk, self.models[chunk], modules)

    def hooks_on_gradients(self, weights: Sequence[Weight], *, each_micro_batch: bool) -> UnreducedGradients:
        """Register hooks on the accumulation of gradients."""
        return UnreducedGradients(
            self.collection,
            weights,
            self.micro_batches,
            each_micro_batch=each_micro_batch,
            has_main_grad=self.has_main_grad,
        )

    def hooks_on_collectives(self, plan: Plan) -> Observer | None:
        """Register hooks on the functions of ``torch.distributed``, which some builds of torch lack."""
        if not dist.is_available():
            _log.warning("collectives are not monitored: this build of torch has no torch.distributed")
            return None

        return Collectives(self.collection, plan.collectives)

    def is_compiled(self) -> bool:
        """Return whether torch.compile has compiled anything in this process, and the model trains."""
        loaded = sys.modules.get("torch._dynamo.utils")
        has_compiled = loaded is not None and loaded.counters["frames"]["ok"] > 0
        return has_compiled and any(one.training for one in self.models)

    def gradient(self, parameter: Tensor) -> Tensor | None:
        """Return the gradient that was accumulated."""
        return parameter.grad

    def _observe(self, parameters: Parameters) -> None:
        super()._observe(parameters)
        self._unscripted = UnscriptedHooks()

    def _remove_observers(self) -> None:
        super()._remove_observers()
        self._unscripted = None


class _Reduction:
    """The function that reduces gradients: one interposition, whatever number of trainings are watched."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._interposed: Interposition | None = None

    def listen(self, listener: Listener) -> None:
        if self._interposed is None:
            from torch.distributed.fsdp._fully_shard._fsdp_collectives import foreach_reduce

            self._interposed = Interposition(foreach_reduce, self._reduce)
        self._listeners.append(listener)

    def leave(self, listener: Listener) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)
        if not self._listeners and self._interposed is not None:
            self._interposed.remove()
            self._interposed = None

    def _reduce(self, reduce: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        for listener in list(self._listeners):
            listener(*args[:2])
        return reduce(*args, **kwargs)


_reduction = _Reduction()


def listen(listener: Listener) -> Callable[[], None]:
    """Register a function to call before each reduction; return what ends that.

    Raises ImportError, or TypeError, where this torch reduces in another way.
    """
    _reduction.listen(listener)
    return lambda: _reduction.leave(listener)


def _is_distributed_tensor(parameter: Tensor) -> bool:
    """Return whether this process holds a part of a tensor."""
    return hasattr(parameter, "_local_tensor")
