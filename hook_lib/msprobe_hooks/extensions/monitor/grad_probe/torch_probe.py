"""The gradient probe of PyTorch: it looks at a model's gradients right before an optimizer uses them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.extensions.monitor.grad_probe import torch_statistics as statistics
from msprobe_hooks.extensions.monitor.grad_probe.config import ProbeSettings
from msprobe_hooks.extensions.monitor.grad_probe.probe import GradientProbe
from msprobe_hooks.extensions.monitor.grad_probe.writer import GradientRow
from msprobe_hooks.messages import counted
from msprobe_hooks.recording.safety_net import guarded
from msprobe_hooks.torch.no_dispatch import NoDispatch
from msprobe_hooks.torch.session import process_rank


class TorchGradientProbe(GradientProbe):
    """Watches one model: every optimizer that holds parameters of it counts, others do not."""

    def __init__(self, settings: ProbeSettings) -> None:
        super().__init__(settings)
        self._model: nn.Module | None = None
        self._optimizer: Optimizer | None = None
        self._handles: list[RemovableHandle] = []
        self._running: Optimizer | None = None
        self._other_calls = 0

    def monitor(self, watched: nn.Module, optimizer: Optimizer | None = None) -> None:
        """Write the model's gradients from the next optimizer step on. Raises ConfigError, also for a second model."""
        if not isinstance(watched, nn.Module):
            raise ConfigError("model", watched, "a torch.nn.Module")
        if optimizer is not None and not isinstance(optimizer, Optimizer):
            raise ConfigError("optimizer", optimizer, "a torch.optim.Optimizer")
        if self._model is not None and self._model is not watched:
            raise ConfigError("model", type(watched).__name__, "one model; combine several in a torch.nn.ModuleList")
        self._optimizer = optimizer
        if self._model is None:
            self._model = watched
            self.report_unlisted([name for name, _ in watched.named_parameters()])
            self._handles = [
                register_optimizer_step_pre_hook(guarded(self._before_step, self.report_failure)),
                register_optimizer_step_post_hook(guarded(self._after_step, self.report_failure)),
            ]

    def remove_hooks(self) -> None:
        """Watch no optimizer any more."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def rank(self) -> int | None:
        """Return this process's rank, None where no process group is initialised."""
        return process_rank()

    def parameters(self) -> list[str]:
        """Return the names of the model's trainable parameters."""
        named = () if self._model is None else self._model.named_parameters()
        return [name for name, parameter in named if parameter.requires_grad]

    def why_no_step(self) -> str:
        """Say why not one optimizer step was counted."""
        if self._model is None:
            return "monitor(model) was not called"
        others = f" ({counted(self._other_calls, 'call')} of others)" if self._other_calls else ""
        return (
            f"no optimizer of the monitored model's parameters was called{others}; "
            "if one holds copies of them, pass it as monitor(model, optimizer=...)"
        )

    def _before_step(self, optimizer: Optimizer, *_: object) -> None:
        with NoDispatch():
            self._observe(optimizer)

    def _after_step(self, optimizer: Optimizer, *_: object) -> None:
        if self._running is optimizer:
            self._running = None

    def _observe(self, optimizer: Optimizer) -> None:
        assert self._model is not None
        if self._running is not None and self._running is not optimizer:
            # One optimizer within another, as sharding ones have it: the outer one has been looked at.
            return
        held = self._held_parameters(self._model, optimizer)
        if not held:
            self._other_calls += 1
            return
        self._running = optimizer
        step = self.count(held)
        if self.is_wanted(step):
            self._look(step, held)

    def _held_parameters(self, model: nn.Module, optimizer: Optimizer) -> dict[str, nn.Parameter]:
        """Return the model's parameters that an optimizer steps, all of them for the one that was named."""
        named = dict(model.named_parameters())
        if self._optimizer is not None:
            return named if optimizer is self._optimizer else {}
        ours = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        return {name: parameter for name, parameter in named.items() if id(parameter) in ours}

    def _look(self, step: int, held: dict[str, nn.Parameter]) -> None:
        gradients = self._gradients(held)
        if any(gradient.is_cuda for gradient in gradients.values()) and torch.cuda.is_current_stream_capturing():
            # What runs here would become part of the graph that is captured.
            self.warn_once("an optimizer step is left out: it is captured into a CUDA graph")
            return
        signs = zip(gradients, statistics.positive(gradients.values()), strict=True)
        self.write(step, self._rows(gradients), signs)

    def _gradients(self, held: dict[str, nn.Parameter]) -> dict[str, Tensor]:
        found = {}
        for name, parameter in held.items():
            # Megatron accumulates into a buffer next to the gradient.
            gradient = getattr(parameter, "main_grad", None)
            gradient = parameter.grad if gradient is None else gradient
            if gradient is None or not self.is_listed(name):
                continue
            values = statistics.dense(gradient)
            if values is None:
                self.warn_once(f"the gradient of {name} is left out: {gradient.layout} of {gradient.dtype}")
            else:
                found[name] = values
        return found

    def _rows(self, gradients: dict[str, Tensor]) -> list[GradientRow]:
        bounds = self.settings.bounds if self.settings.counts_intervals else None
        numbers = statistics.measure([*gradients.values()], bounds)
        return [
            GradientRow(
                name,
                tuple(gradient.shape),
                of_one.max,
                of_one.min,
                of_one.norm,
                of_one.shares,
                statistics.checksum(gradient) if self.settings.keeps_checksums else None,
            )
            for (name, gradient), of_one in zip(gradients.items(), numbers, strict=True)
        ]
