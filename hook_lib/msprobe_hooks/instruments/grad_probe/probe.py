"""The gradient probe of PyTorch: it looks at gradients right before an optimizer uses them."""

from __future__ import annotations

import logging

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.instruments.grad_probe import statistics
from msprobe_hooks.instruments.grad_probe.config import ProbeSettings
from msprobe_hooks.instruments.grad_probe.writing import GradientRow, ProbeFiles
from msprobe_hooks.recording.processes import abandon_in_children
from msprobe_hooks.torch.quiet import Quiet

_log = logging.getLogger("msprobe_hooks")


class GradientProbe:
    """Writes the gradients of one model at each call of an optimizer that holds parameters of it.

    The calls of each optimizer are counted apart. The training never fails for the probe's sake: what it cannot look at
    or write is told once.
    """

    def __init__(self, settings: ProbeSettings) -> None:
        self._settings = settings
        self._model: nn.Module | None = None
        self._optimizer: Optimizer | None = None
        self._handles: list[RemovableHandle] = []
        self._is_abandoned = False
        self._first_step = 0
        self._next_step: dict[str, int] = {}
        self._running: Optimizer | None = None
        self._files: ProbeFiles | None = None
        self._written: set[int] = set()
        self._other_calls = 0
        self._told: set[str] = set()

    def monitor(self, model: nn.Module, optimizer: Optimizer | None = None) -> None:
        """Write the model's gradients from the next optimizer step on.

        ``optimizer`` names the one whose calls count where it holds copies of the parameters, not themselves. Raises
        ConfigError for another class, or a second model.
        """
        if not isinstance(model, nn.Module):
            raise ConfigError("model", model, "a torch.nn.Module")
        if optimizer is not None and not isinstance(optimizer, Optimizer):
            raise ConfigError("optimizer", optimizer, "a torch.optim.Optimizer")
        if self._model is not None and self._model is not model:
            raise ConfigError("model", type(model).__name__, "one model; put several into one torch.nn.ModuleList")
        self._optimizer = optimizer
        if self._model is None:
            self._model = model
            self._tell_unknown_parameters(model)
            self._handles = [
                register_optimizer_step_pre_hook(self._before_step),
                register_optimizer_step_post_hook(self._after_step),
            ]
            abandon_in_children(self)

    def begin_at(self, step: int) -> None:
        """Give the next step of each optimizer this number."""
        self._first_step = step
        self._next_step.clear()

    def abandon(self) -> None:
        """Stop looking, in a forked child: the files are the parent's."""
        self._is_abandoned = True
        self._remove_hooks()

    def close(self) -> str:
        """Stop looking; return what was written as a sentence, nothing in a forked child."""
        self._remove_hooks()
        if self._is_abandoned:
            return ""
        if self._files is not None:
            return f"gradients of {len(self._written)} optimizer steps are in {self._files.folder}"
        if self._model is None:
            return "no gradients were written: monitor(model) was not called"
        if self._next_step:
            return "no gradients were written: this rank or these steps are not among those asked for"
        others = f" ({self._other_calls} calls of others)" if self._other_calls else ""
        return (
            f"no gradients were written: no optimizer that holds parameters of the monitored model was called{others}; "
            "monitor(model, optimizer=...) names one that holds copies of them"
        )

    def _remove_hooks(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _before_step(self, optimizer: Optimizer, *_: object) -> None:
        try:
            with Quiet():
                self._observe(optimizer)
        except Exception as error:
            self._tell_once(f"gradients of a step are not written: {error or type(error).__name__}")

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
        step = max(self._next_step.get(name, self._first_step) for name in held)
        self._next_step.update(dict.fromkeys(held, step + 1))
        if self._is_wanted(step):
            self._write(step, held)

    def _held_parameters(self, model: nn.Module, optimizer: Optimizer) -> dict[str, nn.Parameter]:
        """Return the model's parameters that an optimizer steps, all of them for the one that was named."""
        named = dict(model.named_parameters())
        if self._optimizer is not None:
            return named if optimizer is self._optimizer else {}
        ours = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        return {name: parameter for name, parameter in named.items() if id(parameter) in ours}

    def _is_wanted(self, step: int) -> bool:
        rank = _rank()
        if rank is not None and self._settings.rank is not None and rank not in self._settings.rank:
            return False
        return self._settings.step is None or step in self._settings.step

    def _write(self, step: int, held: dict[str, nn.Parameter]) -> None:
        gradients = self._gradients(held)
        if any(gradient.is_cuda for gradient in gradients.values()) and torch.cuda.is_current_stream_capturing():
            # What runs here would become part of the graph that is captured.
            self._tell_once("an optimizer step that is captured into a CUDA graph is not looked at")
            return
        if self._files is None:
            self._files = ProbeFiles(self._settings.dump_path / f"rank{_rank() or 0}", self._settings)
        signs = zip(gradients, statistics.positive(gradients.values()), strict=True)
        self._files.write(step, self._rows(gradients), signs)
        self._written.add(step)

    def _gradients(self, held: dict[str, nn.Parameter]) -> dict[str, Tensor]:
        found = {}
        for name, parameter in held.items():
            # Megatron accumulates into a buffer beside the gradient.
            gradient = getattr(parameter, "main_grad", None)
            gradient = parameter.grad if gradient is None else gradient
            if gradient is None or (self._settings.param_list and name not in self._settings.param_list):
                continue
            values = statistics.dense(gradient)
            if values is None:
                self._tell_once(f"the gradient of {name} cannot be looked at: {gradient.layout} of {gradient.dtype}")
            else:
                found[name] = values
        return found

    def _rows(self, gradients: dict[str, Tensor]) -> list[GradientRow]:
        bounds = self._settings.bounds if self._settings.counts_intervals else None
        return [
            GradientRow(
                name,
                tuple(gradient.shape),
                numbers.max,
                numbers.min,
                numbers.norm,
                numbers.shares,
                statistics.checksum(gradient) if self._settings.keeps_checksums else None,
            )
            for (name, gradient), numbers in zip(
                gradients.items(), statistics.measure([*gradients.values()], bounds), strict=True
            )
        ]

    def _tell_unknown_parameters(self, model: nn.Module) -> None:
        names = dict(model.named_parameters())
        unknown = [name for name in self._settings.param_list if name not in names]
        if unknown:
            example = f", which has names such as {next(iter(names))}" if names else ""
            self._tell_once(f"grad_probe.param_list names no parameters of this model{example}: {', '.join(unknown)}")

    def _tell_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            _log.warning("%s", text)


def _rank() -> int | None:
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else None
