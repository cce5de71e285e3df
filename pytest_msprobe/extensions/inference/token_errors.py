"""Differences of two runs token by token: errors of a module's rows, and experts that were chosen otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from msprobe_hooks.dump.values import Value
from pytest_msprobe.extensions.inference.passes import ForwardPass, ModuleCall
from pytest_msprobe.extensions.inference.run_values import RunValues
from pytest_msprobe.extensions.inference.token_layout import UnalignedError, row_places
from pytest_msprobe.extensions.inference.token_pairs import TokenPairs

Numbers: TypeAlias = NDArray[np.float64]
#: Pairs of tokens by number, with the rows of both runs.
Aligned: TypeAlias = tuple[NDArray[np.int64], torch.Tensor, torch.Tensor]

# So many elements of each run are in memory as float64.
_ELEMENTS = 2**22
# A token's own norm counts down to this share of the usual one, a choice: rounding does not shrink with a result that
# cancels.
_LEAST_SCALE = 0.1


@dataclass(frozen=True, slots=True)
class TokenErrors:
    """The errors of one value.

    Attributes:
        pairs: The numbers of the pairs of tokens that both runs have rows of.
        errors: The norm of each row's difference as a fraction of the golden row's norm, at least a tenth of the usual
            one; inf where either has NaN or inf that the other has not.
        factors: The factor of each golden row that is nearest to the target's.
        gains: The norm of each row as a multiple of the golden row's.
        unexplained: The share of each row's difference that remains with its factor.
        factor: The one factor for all rows that is nearest.
        factor_unexplained: The share of the whole difference that remains with it.
        cosine: The cosine of the angle between all rows of both runs.
        max_abs_err: The greatest difference of two elements.
        width: The number of columns.
        columns: The number of equal columns over which a golden row would be spread as widely as most are.
        statistics: max, min, mean and norm of the rows in target and golden run.
    """

    pairs: NDArray[np.int64]
    errors: Numbers
    factors: Numbers
    gains: Numbers
    unexplained: Numbers
    factor: float
    factor_unexplained: float
    cosine: float
    max_abs_err: float
    width: int
    columns: float
    statistics: tuple[tuple[float, float, float, float], tuple[float, float, float, float]]


def aligned_rows(name: str, target: RunValues, golden: RunValues, pairs: TokenPairs) -> Iterator[Aligned]:
    """Yield the rows of a value that both runs have, a block of tokens at a time, as float64.

    Raises UnalignedError where rows are no tokens, or have another width; DumpError where a file is unusable.
    """
    both = np.stack([pairs.target[:, 0], pairs.golden[:, 0]], axis=1)
    loaded: dict[tuple[int, int], tuple[torch.Tensor, NDArray[np.int64]] | None] = {}
    for passes in np.unique(both, axis=0):
        sides = (target, golden)
        for side, number in enumerate(map(int, passes)):
            if (side, number) not in loaded:
                loaded = {key: rows for key, rows in loaded.items() if key[0] != side}
                width = None if side else golden.own_widths.get(name)
                width = target.own_widths.get(name) if side and width is None else width
                rows = sides[side].rows(name, number, width)
                layout = sides[side].passes[number].layout
                assert layout is not None
                loaded[side, number] = None if rows is None else (rows, row_places(len(rows), layout))
        both_rows = [loaded[side, number] for side, number in enumerate(map(int, passes))]
        ours, theirs = both_rows
        if ours is None or theirs is None:
            continue
        numbers = np.flatnonzero((both == passes).all(axis=1))
        places = ours[1][pairs.target[numbers, 1]], theirs[1][pairs.golden[numbers, 1]]
        is_readable = (places[0] >= 0) & (places[1] >= 0)
        yield from _blocks(numbers[is_readable], ours[0], theirs[0], places[0][is_readable], places[1][is_readable])


def _blocks(
    numbers: NDArray[np.int64],
    ours: torch.Tensor,
    theirs: torch.Tensor,
    our_rows: NDArray[np.int64],
    their_rows: NDArray[np.int64],
) -> Iterator[Aligned]:
    width = ours.shape[1]
    if width != theirs.shape[1]:
        raise UnalignedError(f"{width} columns in the target, {theirs.shape[1]} in the golden run")
    length = max(_ELEMENTS // max(width, 1), 1)
    for first in range(0, len(numbers), length):
        part = slice(first, first + length)
        yield (
            numbers[part],
            ours[torch.from_numpy(our_rows[part])].double(),
            theirs[torch.from_numpy(their_rows[part])].double(),
        )


def measure_tokens(name: str, target: RunValues, golden: RunValues, pairs: TokenPairs) -> TokenErrors | None:
    """Return the errors of a value; None where no token has a row in both runs. Raises as `aligned_rows` does."""
    numbers: list[NDArray[np.int64]] = []
    sums: list[Numbers] = []
    greatest, width = 0.0, 0
    extremes = [[-math.inf, math.inf, 0.0], [-math.inf, math.inf, 0.0]]
    for block, mine, other in aligned_rows(name, target, golden, pairs):
        if not len(block):
            continue
        width = mine.shape[1]
        # Equal infinities and NaN are no difference.
        are_equal = (mine == other) | (mine.isnan() & other.isnan())
        mine, other = (
            mine.masked_fill(are_equal & ~mine.isfinite(), 0),
            other.masked_fill(are_equal & ~other.isfinite(), 0),
        )
        difference = mine - other
        squares = [(difference * difference), (other * other), (mine * mine), (mine * other), other.pow(4)]
        sums.append(np.stack([square.sum(dim=1).numpy() for square in squares], axis=1))
        greatest = max(greatest, float(difference.abs().nan_to_num(nan=math.inf).max()))
        for one, numbers_of in zip(extremes, (mine, other), strict=True):
            one[:] = [
                max(one[0], float(numbers_of.max())),
                min(one[1], float(numbers_of.min())),
                one[2] + float(numbers_of.sum()),
            ]
        numbers.append(block)
    if not sums:
        return None
    distance, own, mine_squares, products, fourths = np.concatenate(sums).T
    with np.errstate(all="ignore"):
        scale = np.sqrt(own)
        usual = float(np.median(scale[np.isfinite(scale)])) if np.isfinite(scale).any() else 0.0
        scale = np.maximum(scale, _LEAST_SCALE * usual)
        errors = np.where(distance == 0, 0.0, np.sqrt(distance) / scale)
        errors = np.where(np.isnan(errors), np.inf, errors)
        factors = products / own
        left = np.clip(mine_squares - products * factors, 0, None)
        spread = own * own / fourths
        unexplained = np.where(distance > 0, np.sqrt(left / distance), 1.0)
        factor = float(products.sum() / own.sum())
        whole = float(np.clip(mine_squares.sum() - factor * products.sum(), 0, None))
        cosine = float(products.sum() / np.sqrt(own.sum() * mine_squares.sum()))
        count = len(distance) * width
        statistics = tuple(
            (one[0], one[1], one[2] / count, float(np.sqrt(total.sum())))
            for one, total in zip(extremes, (mine_squares, own), strict=True)
        )
        return TokenErrors(
            np.concatenate(numbers),
            errors,
            factors,
            np.sqrt(mine_squares / own),
            unexplained,
            factor,
            math.sqrt(whole / distance.sum()) if distance.sum() > 0 else 1.0,
            cosine,
            greatest,
            width,
            float(np.median(spread[np.isfinite(spread)])) if np.isfinite(spread).any() else 1.0,
            (statistics[0], statistics[1]),
        )


#: How the name of a router ends.
ROUTER = ".mlp.gate"
EXPERTS = ".experts"


def changed_choices(
    name: str, count: int, target: RunValues, golden: RunValues, pairs: TokenPairs
) -> NDArray[np.bool_]:
    """Return for each pair of tokens whether the ``count`` greatest scores of a router are of other experts.

    Where scores are equal at the border of what is chosen, either run may have chosen either expert.
    """
    return _where(name, target, golden, pairs, lambda mine, theirs: _chose_otherwise(mine, theirs, count))


def other_orders(name: str, target: RunValues, golden: RunValues, pairs: TokenPairs) -> NDArray[np.bool_]:
    """Return for each pair of tokens whether the scores of a router have another order, however many are chosen."""
    return _where(
        name, target, golden, pairs, lambda mine, theirs: (mine.argsort(dim=1) != theirs.argsort(dim=1)).any(dim=1)
    )


def _where(
    name: str,
    target: RunValues,
    golden: RunValues,
    pairs: TokenPairs,
    differ: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> NDArray[np.bool_]:
    differing = np.zeros(len(pairs), dtype=bool)
    for numbers, mine, theirs in aligned_rows(name, target, golden, pairs):
        differing[numbers] = differ(mine, theirs).numpy()
    return differing


def _chose_otherwise(mine: torch.Tensor, theirs: torch.Tensor, count: int) -> torch.Tensor:
    if count >= mine.shape[1]:
        return torch.zeros(len(mine), dtype=torch.bool)
    experts, borders = [], []
    for scores in (mine, theirs):
        greatest = torch.topk(scores, count + 1, dim=1)
        experts.append(greatest.indices[:, :count].sort(dim=1).values)
        borders.append(greatest.values[:, count - 1] == greatest.values[:, count])
    return (experts[0] != experts[1]).any(dim=1) | borders[0] | borders[1]


def experts_per_token(router: str, *runs: RunValues) -> int:
    """Return how many experts a router chooses for each token, 0 where that is unknown.

    A run's router may return their numbers or its experts be given them; the model's configuration may say how many
    there are; else the rows that all experts together were given do.
    """
    block = block_of(router)
    for run in runs:
        numbers = [*_integers(run.calls(router), "output"), *_integers(run.calls(block + EXPERTS), "input")]
        if numbers:
            return numbers[0].shape[-1]
    configured = next((run.sizes.experts_per_token for run in runs if run.sizes.experts_per_token), None)
    return configured or max(
        max((_rows_per_token(block, run, forward_pass) for forward_pass in run.passes), default=0) for run in runs
    )


def block_of(router: str) -> str:
    """Return the block that a router is in: what chooses experts and sums up their results."""
    return router.rpartition(".")[0]


def _integers(calls: Sequence[ModuleCall], group: str) -> Iterator[Value]:
    for placed in calls[0].values if calls else ():
        value = placed.value
        if placed.group == group and "int" in value.dtype.lower() and len(value.shape) >= 2:
            yield value


def _rows_per_token(block: str, run: RunValues, one: ForwardPass) -> int:
    """Return how many rows all experts of a block were given in a pass for each of its tokens, 0 if no whole number."""
    assert one.layout is not None
    rows: dict[int, int] = {}
    for path, calls in one.modules.items():
        canonical = run.modules[path]
        if canonical.expert is None or not canonical.name.startswith(block + EXPERTS):
            continue
        block_input = next((placed.value for placed in calls[0].values if placed.group == "input"), None)
        if block_input is not None and len(block_input.shape) > 1:
            rows.setdefault(canonical.expert, int(np.prod(block_input.shape[:-1])))
    count, rest = divmod(sum(rows.values()), one.layout.rows)
    return 0 if rest else count
