"""Determinism and batch invariance: a call repeated on the device, whole or on parts of its batch, bit by bit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from msprobe_hooks.dump.names import Direction
from pytest_msprobe.engine.framework_names import PYTORCH
from pytest_msprobe.engine.replay.calls.remote_calls import RemoteCallDevice
from pytest_msprobe.engine.replay.judging.run_outputs import of_target
from pytest_msprobe.engine.replay.ops.cuts import Cut, block_of
from pytest_msprobe.engine.replay.partition import cuts_of
from pytest_msprobe.engine.replay.random_apis.unverifiable import UndefinedProperty
from pytest_msprobe.engine.replay.rerun_differences import UnstableOutput, Variation
from pytest_msprobe.engine.replay.trials.block_trial import BlockTrial
from pytest_msprobe.engine.replay.trials.rng import draws_undeclared_randomness, run_seeded
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.values.pytree import tensors_with_paths

_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

Results = dict[str, torch.Tensor]

# A row that is summed in another way often rounds to the same bits; several seldom do. In bfloat16
# one sum in 2 000 to 6 000 differs: of rows of 1 024 one shows it in 16 to 40 % of cases, 16 do in 94 % and more.
_SINGLE_ROWS = 16

ROWS_UNKNOWN = "its rows depend on each other, or no rule says how to cut it"


@dataclass
class _Instability:
    """Instability of one output: where it ever differed (a mask, None for everywhere), how often and by how much."""

    elements: int
    mask: torch.Tensor | None
    runs: int = 0
    largest: float = 0.0

    def output(self, path: str) -> UnstableOutput:
        unequal = self.elements if self.mask is None else int(self.mask.sum())
        return UnstableOutput(path, self.runs, unequal, self.elements, self.largest)


def unstable_outputs(trial: Trial, direction: Direction, times: int) -> tuple[UnstableOutput, ...]:
    """Run a judged trial's call until it has run so many times on the device, and return what differs from its first.

    What the call draws comes from the same seed each time. Raises Skip and TargetError as the trial's runs do.
    """
    first, again = target_results(trial, direction), Trial(trial.subject, trial.device)
    if draws_undeclared_randomness(again):
        first, again = target_results(again, direction), Trial(trial.subject, trial.device)
    unstable: dict[str, _Instability] = {}
    for _ in range(times - 1):
        results = target_results(again, direction)
        for path in first.keys() | results.keys():
            _compare(unstable, path, first.get(path), results.get(path))
        again = Trial(trial.subject, trial.device)
    return tuple(
        unstable[path].output(path) for path in (*first, *(unstable.keys() - first.keys())) if path in unstable
    )


def nondeterminism_reason(trial: Trial, framework: str) -> str:
    """Return why a correct device may give a call another result each time it is asked; empty where it may not."""
    if isinstance(trial.randomness, UndefinedProperty):
        return "returns whatever was in memory"
    if trial.randomness is not None and framework != PYTORCH:
        return f"{framework} draws numbers by a generator of its own, which is not seeded"
    return ""


def target_results(trial: Trial, direction: Direction) -> Results:
    """Return what the device gives for one direction of a call, by path, running it where it has not run."""
    run_seeded(trial)
    return dict(tensors_with_paths(of_target(trial, direction)))


def _compare(
    instabilities: dict[str, _Instability], path: str, first: torch.Tensor | None, again: torch.Tensor | None
) -> None:
    if first is None or again is None or first.shape != again.shape or first.dtype != again.dtype:
        elements = 0 if first is None else first.numel()
        unlike = instabilities.setdefault(path, _Instability(elements, None))
        unlike.mask, unlike.runs, unlike.largest = None, unlike.runs + 1, math.inf
        return
    mask = unequal_bits(first, again)
    if not mask.any():
        return
    unstable = instabilities.setdefault(path, _Instability(first.numel(), torch.zeros_like(mask)))
    unstable.runs += 1
    unstable.largest = max(unstable.largest, largest_difference(first[mask], again[mask]))
    if unstable.mask is not None:
        unstable.mask |= mask


def unequal_bits(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Return which elements of two CPU tensors of one dtype and shape differ in a bit; NaN equals the same NaN."""
    a, b = (tensor.resolve_conj().resolve_neg() for tensor in (first, second))
    if a.dtype is torch.complex128:
        return (torch.view_as_real(a).view(torch.int64) != torch.view_as_real(b).view(torch.int64)).any(-1)
    bits = _BITS[a.element_size()]
    return a.view(bits) != b.view(bits)


def largest_difference(first: torch.Tensor, second: torch.Tensor) -> float:
    """Return the largest difference of elements that differ in a bit; of zeros of both signs it is 0."""
    wide = torch.complex128 if first.is_complex() else torch.float64
    a, b = first.to(wide), second.to(wide)
    difference = (a - b).abs()
    difference[(a == b) | (a.isnan() & b.isnan())] = 0.0
    return float(difference.nan_to_num(nan=math.inf, posinf=math.inf).max())


def row_cut(trial: Trial) -> Cut | str:
    """Return where the rows of a recorded call's batch are, or why it cannot be run on some of them.

    The batch is the first dimension of the result that is no feature of it and along which the call can be cut.
    """
    arguments = trial.subject.arguments
    reason = _unfit(trial)
    if reason:
        return reason
    candidates = cuts_of(trial.subject.operation, arguments)
    cuts = [cut for cut in candidates if cut.inputs and not cut.is_feature and not cut.is_reduced]
    if not cuts:
        return ROWS_UNKNOWN
    cut = min(cuts, key=lambda cut: (cut.length < 2, cut.dim))
    return cut if cut.length > 1 else "its batch has one row"


def cut_of_arguments(trial: Trial, batched: Sequence[int | str]) -> Cut | str:
    """Return the cut of a user's function along the first dimension of some arguments, by position or name.

    Returns why it cannot be cut where one is not a tensor or they have different numbers of rows.
    """
    tensors = dict(trial.subject.arguments.tensors())
    paths = [f"args.{position}" if isinstance(position, int) else f"kwargs.{position}" for position in batched]
    for name, path in zip(batched, paths, strict=True):
        if path not in tensors or not tensors[path].dim():
            return f"argument {name!r} has no rows"
    lengths = {len(tensors[path]) for path in paths}
    if len(lengths) > 1 or min(lengths) < 2:
        return f"the arguments have {', '.join(map(str, sorted(lengths)))} rows; pass two rows or more, as many in each"
    return _unfit(trial) or Cut((*lengths,), 0, dict.fromkeys(paths, 0))


def _unfit(trial: Trial) -> str:
    if trial.randomness is not None:
        return "it draws random numbers"
    return "it runs on a remote device" if isinstance(trial.device, RemoteCallDevice) else ""


def parts_of(length: int) -> list[tuple[int, int]]:
    """Return start and length of the parts that are run: up to 16 single rows, halves, and all rows but the last."""
    half, count = length // 2, min(length, _SINGLE_ROWS)
    single = [(row * (length - 1) // (count - 1), 1) for row in range(count)]
    return list(dict.fromkeys([*single, (0, half), (half, length - half), (0, length - 1)]))


def variations(trial: Trial, cut: Cut, direction: Direction) -> tuple[Variation, ...]:
    """Run a judged trial's call on parts of its batch, and return what differs from the same rows of the whole.

    Results and changed arguments are compared, backward the gradients of the arguments that are cut. Raises Skip and
    TargetError as the trial's runs do.
    """
    whole = {path: (tensor, dim) for path, tensor, dim in _rows(target_results(trial, direction), cut)}
    varying: dict[str, Variation] = {}
    parts = parts_of(cut.length)
    for start, size in parts:
        results = target_results(BlockTrial(trial, cut, start, size, direction), direction)
        for path, (tensor, dim) in whole.items():
            expected = block_of(tensor, dim, start, size)
            difference = _difference(path, expected, results.get(path), _in_words(start, size, cut.length))
            if difference is not None:
                varying[path] = difference if path not in varying else varying[path].joined(difference)
    return tuple(varying.values())


def compares_nothing(trial: Trial, cut: Cut, direction: Direction) -> bool:
    """Return whether no result of a direction has a row for each row of the batch."""
    return not any(True for _ in _rows(target_results(trial, direction), cut))


def _rows(results: Results, cut: Cut) -> Iterator[tuple[str, torch.Tensor, int]]:
    """Yield the results that have a row for each row of the batch, with the dimension of their rows."""
    for path, tensor in results.items():
        kind, _, inner = path.partition(".")
        dim = cut.dim if kind == "output" else cut.inputs.get(inner)
        if dim is not None and tensor.dim() > dim and tensor.shape[dim] == cut.length:
            yield path, tensor, dim


def _difference(path: str, expected: torch.Tensor, actual: torch.Tensor | None, rows: str) -> Variation | None:
    if actual is None or actual.shape != expected.shape or actual.dtype != expected.dtype:
        return Variation(path, 1, rows, expected.numel(), expected.numel(), math.inf)
    mask = unequal_bits(expected.contiguous(), actual.contiguous())
    if not mask.any():
        return None
    largest = largest_difference(expected[mask], actual[mask])
    return Variation(path, 1, rows, int(mask.sum()), mask.numel(), largest)


def _in_words(start: int, size: int, length: int) -> str:
    if size == 1:
        return f"row {start} of {length} alone"
    return f"rows {start} to {start + size - 1} of {length} alone"
