"""A call run on the device on parts of its batch: whether each row gets the same bits as in the whole batch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch

from msprobe_hooks.dump.names import Direction
from pytest_msprobe.engine.replay.partition.cut import Cut, block_of
from pytest_msprobe.engine.replay.partition.table import cuts_of
from pytest_msprobe.engine.replay.reruns.determinism import Results, largest_difference, target_results, unequal_bits
from pytest_msprobe.engine.replay.trials.block_trial import BlockTrial
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.extensions.remote.remote_device import RemoteDevice
from pytest_msprobe.results.batch_variations import Variation

# A row that is summed in another way often rounds to the same bits; several seldom do.
_SINGLE_ROWS = 16

ROWS_UNKNOWN = "its rows depend on each other, or no rule says how to cut it"


def row_cut(trial: Trial) -> Cut | str:
    """Return where the rows of a recorded call's batch are, or why it cannot be run on some of them.

    The batch is the first dimension of the result that is no feature of it and along which the call can be cut.
    """
    arguments = trial.subject.arguments
    reason = _unfit(trial)
    if reason:
        return reason
    found = cuts_of(trial.subject.operation, arguments)
    cuts = [cut for cut in found if cut.inputs and not cut.is_feature and not cut.is_reduced]
    if not cuts:
        return ROWS_UNKNOWN
    cut = min(cuts, key=lambda cut: (cut.length < 2, cut.dim))
    return cut if cut.length > 1 else "its batch has one row"


def cut_of_arguments(trial: Trial, batched: Sequence[int | str]) -> Cut | str:
    """Return the cut of a user's function along the first dimension of some arguments, by position or name.

    Returns why it cannot be cut where one is not a tensor or they have different numbers of rows.
    """
    tensors = dict(trial.subject.arguments.tensors())
    paths = [f"args.{each}" if isinstance(each, int) else f"kwargs.{each}" for each in batched]
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
    return "it runs on a remote device" if isinstance(trial.device, RemoteDevice) else ""


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
    found: dict[str, Variation] = {}
    parts = parts_of(cut.length)
    for start, size in parts:
        results = target_results(BlockTrial(trial, cut, start, size, direction), direction)
        for path, (tensor, dim) in whole.items():
            expected = block_of(tensor, dim, start, size)
            seen = _difference(path, expected, results.get(path), _in_words(start, size, cut.length))
            if seen is not None:
                found[path] = seen if path not in found else found[path].joined(seen)
    return tuple(found.values())


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


def _difference(path: str, expected: torch.Tensor, found: torch.Tensor | None, rows: str) -> Variation | None:
    if found is None or found.shape != expected.shape or found.dtype != expected.dtype:
        return Variation(path, 1, rows, expected.numel(), expected.numel(), math.inf)
    mask = unequal_bits(expected.contiguous(), found.contiguous())
    if not mask.any():
        return None
    largest = largest_difference(expected[mask], found[mask])
    return Variation(path, 1, rows, int(mask.sum()), mask.numel(), largest)


def _in_words(start: int, size: int, length: int) -> str:
    if size == 1:
        return f"row {start} of {length} alone"
    return f"rows {start} to {start + size - 1} of {length} alone"
