"""Failures by dtype alone, judged again by the math modes that the device says are on."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import torch

from msprobe_hooks.dump.names import Direction
from msprobe_standards import Metrics, Standard, Verdict, judge, measure
from pytest_msprobe.devices.math_modes import MODE_WORDS, OPERAND_BITS, ReducedPrecision, reduced_precision
from pytest_msprobe.engine.replay.calls.golden import baseline_side
from pytest_msprobe.engine.replay.calls.side import Side
from pytest_msprobe.engine.replay.judging.emulated_math_mode import RoundedProducts
from pytest_msprobe.engine.replay.ops.op_info import op_info
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.values.pytree import map_tensors, tensors_with_paths

SelectInMode: TypeAlias = "Callable[[Direction, Any, Collection[str]], Standard | None]"
"""Gives what judges a target's leaf that was computed in these modes; None where the policy has no rule for them."""

_Verdicts: TypeAlias = "list[tuple[str, Verdict]]"
# Where nothing was judged nothing is wrong: of a mode a skip asks no more than a pass, though reports rank it below.
_WRONGNESS = {"skip": 0, "pass": 0, "warn": 1, "fail": 2}


class ModeJudge:
    """Judges the outputs of one direction of a trial in the modes that its device states.

    ``select`` gives the standard for a leaf and the modes that took part in it. ``on_side`` gives the outputs that a
    side of the CPU has, as a tree; it is asked only where something failed. ``modes`` holds in words, by path,
    which modes took part in a verdict.
    """

    def __init__(
        self,
        trial: Trial,
        select: Callable[[Any, Collection[str]], Standard | None],
        on_side: Callable[[Side], Any],
    ) -> None:
        self.modes: dict[str, str] = {}
        self._trial = trial
        self._select = select
        self._on_side = on_side
        self._used: tuple[str, ...] = ()

    @functools.cached_property
    def _stated(self) -> ReducedPrecision:
        return reduced_precision(self._trial.device)

    def judge(self, target: Any, golden: Any, judge_by_dtype: Callable[[Any], _Verdicts]) -> _Verdicts:
        """Return the verdict on each output by its dtype, and where that does not pass, the best that a mode gives.

        So nothing that passes by its dtype fails in a mode.
        """
        verdicts = judge_by_dtype(target)
        if not any(map(_is_wrong, verdicts)) or self._stated == ReducedPrecision():
            return verdicts
        if self._stated.saturation:
            target, overflowed = _unsaturated(target, golden)
            again = dict(judge_by_dtype(target)) if overflowed else {}
            verdicts = [
                (path, self._best(path, verdict, [again[path]], ("saturation",)) if path in overflowed else verdict)
                for path, verdict in verdicts
            ]
        targets, goldens = dict(tensors_with_paths(target)), dict(tensors_with_paths(golden))
        return [
            (path, self._in_modes(path, verdict, targets[path], goldens[path]))
            if _is_wrong((path, verdict)) and path in targets and path in goldens
            else (path, verdict)
            for path, verdict in verdicts
        ]

    def _in_modes(self, path: str, by_dtype: Verdict, target: torch.Tensor, golden: torch.Tensor) -> Verdict:
        nearest = self._nearest.get(path)
        standard = self._select(target, self._used) if self._used else None
        if standard is None or nearest is None or not target.shape == golden.shape == nearest.shape:
            return by_dtype

        def cost_of_mode(by: Standard) -> Metrics:
            return measure(nearest, golden, dtype=target.dtype, only=by.wanted, bounds=by.bounds(target.dtype))

        candidates: list[Verdict] = []
        for centre in self._centres(path, golden, nearest):
            candidates.append(judge(target, centre, standard=standard, baseline=nearest, recorded=cost_of_mode))
            if candidates[-1].outcome == "pass":
                break
        return self._best(path, by_dtype, candidates, self._used)

    def _centres(self, path: str, golden: torch.Tensor, nearest: torch.Tensor) -> Iterator[torch.Tensor]:
        """Yield what a healthy card's results lie around: those of one that cuts off drift away from golden."""
        yield golden
        yield nearest
        if not OPERAND_BITS.keys().isdisjoint(self._used):
            yield self._truncated[path]

    @functools.cached_property
    def _nearest(self) -> dict[str, torch.Tensor]:
        return self._computed(truncate=False)

    @functools.cached_property
    def _truncated(self) -> dict[str, torch.Tensor]:
        return self._computed(truncate=True)

    def _computed(self, *, truncate: bool) -> dict[str, torch.Tensor]:
        subject = self._trial.subject
        recurrent = op_info(subject.api).recurrent
        products = RoundedProducts(self._stated, recurrent=recurrent, truncate=truncate)
        outputs = dict(tensors_with_paths(self._on_side(baseline_side(subject.autocast, products.call))))
        self._used = tuple(products.used)
        return outputs

    def _best(self, path: str, by_dtype: Verdict, in_modes: Sequence[Verdict], modes: Collection[str]) -> Verdict:
        """Return the most favourable verdict and remember the modes where they took part in it."""
        best = min(in_modes, key=lambda verdict: (_WRONGNESS[verdict.outcome], verdict.margin))
        if _WRONGNESS[best.outcome] > _WRONGNESS[by_dtype.outcome]:
            return by_dtype
        self.modes[path] = names = " and ".join(MODE_WORDS[mode] for mode in modes)
        under = f"under {names}, which the device says {'is' if len(modes) == 1 else 'are'} on"
        passes = best.outcome == "pass"
        return replace(
            best, reason=f"{under}; by the dtype alone {by_dtype.reason}" if passes else f"{best.reason}; {under}"
        )


def _is_wrong(judged: tuple[str, Verdict]) -> bool:
    return _WRONGNESS[judged[1].outcome] > 0


def _unsaturated(target: Any, golden: Any) -> tuple[Any, set[str]]:
    """Return a target with inf where golden overflows and it has the greatest finite value, and the paths of those."""
    goldens = dict(tensors_with_paths(golden))
    paths = iter([path for path, _ in tensors_with_paths(target)])
    overflowed = set()

    def unsaturated(tensor: torch.Tensor) -> torch.Tensor:
        path = next(paths)
        exact = goldens.get(path)
        if exact is None or exact.shape != tensor.shape or not tensor.is_floating_point():
            return tensor
        # Float8 has no arithmetic of its own.
        wide = torch.float32 if tensor.dtype.itemsize == 1 else tensor.dtype
        info, values, overflow = torch.finfo(tensor.dtype), tensor.to(wide), exact.to(tensor.dtype).to(wide)
        saturated = overflow.isinf() & (values == overflow.clamp(info.min, info.max))
        if not saturated.any():
            return tensor
        overflowed.add(path)
        return torch.where(saturated, overflow, values).to(tensor.dtype)

    return map_tensors(unsaturated, target), overflowed
