"""The gradient probe of PyTorch: numbers and signs of many gradients, computed where they are and fetched together.

Half precision is accumulated in float32 and float64 stays float64. The caller has turned gradients and overrides off.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.extensions.monitor.grad_probe.probe import GradientProbe, GradientRow, ProbeSettings, interval_shares
from msprobe_hooks.extensions.monitor.grad_probe.sign_maps import SignMap
from msprobe_hooks.messages import counted
from msprobe_hooks.recording.safety_net import guarded
from msprobe_hooks.torch.no_dispatch import NoDispatch
from msprobe_hooks.torch.session import process_rank
from msprobe_hooks.torch.statistics import is_readable, local_part
from msprobe_hooks.torch.tensor_memory import as_bytes

_COMPUTED = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})

# Sign maps that cross to the host at once: 64 MiB.
_FETCHED_ELEMENTS = 1 << 26


@dataclass(frozen=True, slots=True)
class GradientNumbers:
    """Maximum, minimum and 2-norm of a gradient; NaN, NaN and 0 of one without elements.

    ``shares`` are the fractions of elements in ``(-inf, b0]``, ``(b0, b1]``, ..., ``(bn, inf)``, and of those that are
    0. A NaN counts in the last interval, as msprobe counts it.
    """

    max: float = math.nan
    min: float = math.nan
    norm: float = 0.0
    shares: tuple[float, ...] = ()


def dense(gradient: Tensor) -> Tensor | None:
    """Return what this process holds of a gradient, dense and of a float dtype; None where it has no such values."""
    part = local_part(gradient).detach()
    if part.layout is not torch.strided and not part.is_meta:
        part = part.to_dense()
    if not is_readable(part) or not part.is_floating_point():
        return None
    return part if part.dtype in _COMPUTED else part.float()


def measure(gradients: Sequence[Tensor], bounds: Sequence[float] | None) -> list[GradientNumbers]:
    """Return the numbers of gradients that are ``dense``; without ``shares`` where there are no bounds."""
    numbers = [GradientNumbers() for _ in gradients]
    groups: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for place, gradient in enumerate(gradients):
        groups.setdefault((gradient.device, gradient.dtype), []).append(place)
    for (_, dtype), places in groups.items():
        group = [gradients[place] for place in places]
        wide = torch.float64 if dtype is torch.float64 else torch.float32
        shares = _shares(group, bounds, wide) if bounds is not None else [()] * len(group)
        for place, of_one, fractions in zip(places, _extrema_and_norms(group, wide), shares, strict=True):
            numbers[place] = GradientNumbers(*of_one, fractions)
    return numbers


def _extrema_and_norms(group: list[Tensor], wide: torch.dtype) -> Iterator[tuple[float, float, float]]:
    """Yield three numbers for each of some gradients of one device and dtype."""
    nan = torch.full((1,), math.nan, dtype=wide, device=group[0].device)
    filled = [gradient if gradient.numel() else nan.to(gradient.dtype) for gradient in group]
    extrema = torch.stack([*map(torch.amax, filled), *map(torch.amin, filled)]).to(wide)
    numbers = torch.cat([extrema, torch.stack(_norms(group, wide))]).tolist()
    count = len(group)
    return zip(numbers[:count], numbers[count : 2 * count], numbers[2 * count :], strict=True)


def _norms(group: list[Tensor], wide: torch.dtype) -> list[Tensor]:
    if group[0].dtype is wide:
        return list(torch._foreach_norm(group))
    # Its accumulation in another dtype came with torch 2.4.
    return [torch.linalg.vector_norm(gradient, dtype=wide) for gradient in group]


def _shares(group: list[Tensor], bounds: Sequence[float], wide: torch.dtype) -> Iterator[tuple[float, ...]]:
    counts = [count for gradient in group for count in _counts(gradient.to(wide), bounds)]
    rows = torch.stack(counts).reshape(len(group), -1).tolist()
    for gradient, (zeros, *up_to) in zip(group, rows, strict=True):
        yield interval_shares(up_to, zeros, gradient.numel())


def _counts(gradient: Tensor, bounds: Sequence[float]) -> Iterator[Tensor]:
    yield torch.count_nonzero(gradient == 0)
    for bound in bounds:
        yield torch.count_nonzero(gradient <= float(bound))


def checksum(gradient: Tensor) -> str:
    """Return the MD5 of the elements as float32, in hexadecimal."""
    return hashlib.md5(as_bytes(gradient.float().cpu().contiguous()).data, usedforsecurity=False).hexdigest()


def positive(gradients: Iterable[Tensor]) -> Iterator[SignMap]:
    """Yield which elements of each gradient are greater than 0; from a device, many with one transfer."""
    batch: list[Tensor] = []
    elements = 0
    for gradient in gradients:
        if batch and (
            gradient.is_cpu or gradient.device != batch[0].device or elements + gradient.numel() > _FETCHED_ELEMENTS
        ):
            yield from fetch_signs(batch)
            batch, elements = [], 0
        batch.append(gradient)
        elements += gradient.numel()
    yield from fetch_signs(batch)


def fetch_signs(gradients: list[Tensor]) -> Iterator[SignMap]:
    """Yield the sign maps of gradients on one device, which cross to the host together."""
    if len(gradients) == 1:
        yield (gradients[0] > 0).cpu().numpy()
    elif gradients:
        together = torch.cat([(gradient > 0).flatten() for gradient in gradients]).cpu().numpy()
        ends = np.cumsum([gradient.numel() for gradient in gradients])[:-1]
        for gradient, signs in zip(gradients, np.split(together, ends), strict=True):
            yield signs.reshape(gradient.shape)


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
        """Return why not one optimizer step was counted."""
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
        signs = zip(gradients, positive(gradients.values()), strict=True)
        self.write(step, self._rows(gradients), signs)

    def _gradients(self, held: dict[str, nn.Parameter]) -> dict[str, Tensor]:
        found = {}
        for name, parameter in held.items():
            # Megatron accumulates into a buffer next to the gradient.
            gradient = getattr(parameter, "main_grad", None)
            gradient = parameter.grad if gradient is None else gradient
            if gradient is None or not self.is_listed(name):
                continue
            values = dense(gradient)
            if values is None:
                self.warn_once(f"the gradient of {name} is left out: {gradient.layout} of {gradient.dtype}")
            else:
                found[name] = values
        return found

    def _rows(self, gradients: dict[str, Tensor]) -> list[GradientRow]:
        bounds = self.settings.bounds if self.settings.counts_intervals else None
        numbers = measure([*gradients.values()], bounds)
        return [
            GradientRow(
                name,
                tuple(gradient.shape),
                of_one.max,
                of_one.min,
                of_one.norm,
                of_one.shares,
                checksum(gradient) if self.settings.keeps_checksums else None,
            )
            for (name, gradient), of_one in zip(gradients.items(), numbers, strict=True)
        ]
