"""What an optimizer of MindSpore does: when it is called and with what gradients, its moments and their update."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from mindspore import Tensor

from msprobe_hooks.extensions.mindspore.host_values import host
from msprobe_hooks.extensions.monitor.watch.parameters import Weight
from msprobe_hooks.recording.array_statistics import Array
from msprobe_hooks.recording.safety_net import guarded
from msprobe_hooks.recording.uncopied_hooks import uncopied

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
        def begin(_: Any, given: tuple[Any, ...]) -> None:
            gradients = given[0] if given and isinstance(given[0], (tuple, list)) else ()
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
        found = {task: self._attribute(names) for task, names in _MOMENTS.items()}
        for weight in self.stepped(weights):
            place = self._places[id(weight.parameter)]
            moments = {task: list_[place] for task, list_ in found.items() if place < len(list_)}
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

    def agreement(self, gradient: Tensor, moment: Tensor | None) -> Array:
        """Return how far the signs of a gradient and of its first moment agree; 1 as long as the moment is 0."""
        if moment is None or not (signs := np.sign(host(moment))).any():
            return np.ones(())
        return np.asarray((np.mean(np.sign(host(gradient)) * signs, dtype=np.float64) + 1) / 2)

    def _attribute(self, names: Sequence[str]) -> Sequence[Tensor]:
        return next((found for name in names if (found := getattr(self._optimizer, name, None)) is not None), ())

    def _steps(self) -> float:
        """Return the number of steps: infinity where the optimizer corrects no bias, 0 where it counts none."""
        optimizer = self._optimizer
        if hasattr(optimizer, "state_step"):
            made = int(host(optimizer.state_step).reshape(-1)[0])
            # mint's AdamW begins to count at -1.
            return made + (type(optimizer).__module__ == "mindspore.mint.optim.adamw")
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
