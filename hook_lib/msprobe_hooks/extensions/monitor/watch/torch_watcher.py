"""A training of PyTorch that is watched: its optimizer, and the hooks on its modules."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Sequence
from types import FrameType
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from msprobe_hooks.extensions.monitor.watch.batched_statistics import Meter
from msprobe_hooks.extensions.monitor.watch.config import Plan
from msprobe_hooks.extensions.monitor.watch.live_objects import living
from msprobe_hooks.extensions.monitor.watch.module_hooks import Fields, Modules
from msprobe_hooks.extensions.monitor.watch.optimizers import OptimizerState, StepHooks
from msprobe_hooks.extensions.monitor.watch.parameter_coverage import Parameters
from msprobe_hooks.extensions.monitor.watch.parameters import Weight
from msprobe_hooks.extensions.monitor.watch.step_statistics import Collection
from msprobe_hooks.extensions.monitor.watch.unreduced_gradients import UnreducedGradients
from msprobe_hooks.extensions.monitor.watch.watcher import Observer, Watcher
from msprobe_hooks.recording.backward import Emit
from msprobe_hooks.torch import gradients
from msprobe_hooks.torch.call_mode import is_traced
from msprobe_hooks.torch.gradients import TorchEngine
from msprobe_hooks.torch.no_dispatch import NoDispatch
from msprobe_hooks.torch.recompute import is_recomputed
from msprobe_hooks.torch.scripting import UnscriptedHooks
from msprobe_hooks.torch.session import process_rank

_log = logging.getLogger("msprobe_hooks")


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
        """Put hooks on the steps of this optimizer."""
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

    def hooks_on_modules(self, chunk: int, wanted: Sequence[tuple[str, Any, Fields]]) -> TorchModules:
        """Put hooks on modules."""
        return TorchModules(self.collection, chunk, self.models[chunk], wanted)

    def hooks_on_gradients(self, weights: Sequence[Weight], *, each_micro_batch: bool) -> UnreducedGradients:
        """Put hooks on the accumulation of gradients."""
        return UnreducedGradients(
            self.collection,
            weights,
            self.micro_batches,
            each_micro_batch=each_micro_batch,
            has_main_grad=self.has_main_grad,
        )

    def hooks_on_collectives(self, plan: Plan) -> Observer | None:
        """Put hooks on the functions of ``torch.distributed``, which some builds of torch lack."""
        if not dist.is_available():
            _log.warning("collectives are not monitored: this build of torch has no torch.distributed")
            return None
        from msprobe_hooks.extensions.monitor.watch.collective_values import Collectives

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
