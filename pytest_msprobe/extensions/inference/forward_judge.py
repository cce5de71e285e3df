"""Divergence of two forward passes: each value judged by precision, by earlier values, and by experts' choices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from msprobe_hooks.dump.values import Value
from msprobe_hooks.errors import DumpError
from pytest_msprobe.extensions.inference.passes import ForwardPass, ModuleCall
from pytest_msprobe.extensions.inference.recorded_weights import RunningPrecision, depth_limit, operator_limit
from pytest_msprobe.extensions.inference.run_values import ROTATED, RunValues, block_numbers
from pytest_msprobe.extensions.inference.token_errors import TokenErrors, aligned_rows, measure_tokens
from pytest_msprobe.extensions.inference.token_layout import UnalignedError
from pytest_msprobe.extensions.inference.token_pairs import TokenPairs
from pytest_msprobe.modes.compare.rows import Cause, Outcome

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


# Angles of rotary embeddings are products of a position and a rounded frequency.
_ANGLE_ROUNDOFF = 2.0**-23
# In equal models the median of all tokens is a quarter of the greatest error, and no module doubles it.
_MEDIAN_SHARE = 4.0
_MEDIAN_GROWTH = 4.0


@dataclass(frozen=True, slots=True)
class _Errors:
    """The greatest error of a token, and the greatest median of all tokens' errors, in a block."""

    error: float = 0.0
    median: float = 0.0


@dataclass(frozen=True, slots=True)
class JudgedValue:
    """Outcome of one value.

    Attributes:
        name: Its name in the trainer's model.
        dtypes: The floating-point dtypes of target and golden run.
        dtype: The dtype by which it is judged.
        outcome: pass, fail, warn where rounding has added up, or skip where it could not be compared.
        cause: Whether a difference begins here.
        error: The greatest error of a token, as a fraction of its golden norm.
        median: The median of the tokens' errors.
        limit: What the two precisions explain at this depth.
        given: The greatest error of what was computed before it in its block.
        worst: The number of the pair of tokens with the greatest error, None where nothing differs.
        wrong: The numbers of the pairs of tokens beyond the limit.
        is_coarser: Whether one run rounds it more coarsely than the other and than all before.
        left_out: How many tokens count no longer, because other experts were chosen for them.
        measured: All that was measured, None where it could not be.
        problem: Why it could not be compared.
        reordered: For how many of the wrong tokens the scores of the router before it have another order.
    """

    name: str
    dtypes: tuple[str, str]
    dtype: str = ""
    outcome: Outcome = "skip"
    cause: Cause = ""
    error: float = 0.0
    median: float = 0.0
    limit: float = 0.0
    input_error: float = 0.0
    worst: int | None = None
    wrong: Sequence[int] = ()
    is_coarser: bool = False
    left_out: int = 0
    measured: TokenErrors | None = None
    problem: str = ""
    reordered: int = 0


class ForwardJudge:
    """Judges values in the order of the forward pass.

    A value is wrong where it differs by more than the two precisions explain at its depth, and a culprit where it also
    adds more than ``inherited`` times the error of what its block was given, or four times its median. Before the first
    culprit, what only adds up is warned of.
    Tokens for which the runs chose other experts, though the router agrees, count no longer from there on, nor do
    those behind them.
    """

    def __init__(
        self, names: Sequence[str], target: RunValues, golden: RunValues, pairs: TokenPairs, *, inherited: float
    ) -> None:
        self._names = names
        self._target, self._golden, self._pairs = target, golden, pairs
        self._inherited = inherited
        self._blocks = block_numbers(golden)
        self._precision = RunningPrecision()
        self._errors: dict[int, _Errors] = {}
        self._judged: list[JudgedValue] = []
        self._changed = np.zeros(len(pairs), dtype=bool)
        self._reordered: dict[str, NDArray[np.bool_]] = {}
        self.first: JudgedValue | None = None

    def judge(self, order: int) -> JudgedValue:
        """Return what came of the value in a place; all before it are judged first."""
        while len(self._judged) <= order:
            self._judged.append(self._next(self._names[len(self._judged)]))
        return self._judged[order]

    def _next(self, name: str) -> JudgedValue:
        dtypes = self._target.dtype(name), self._golden.dtype(name)
        if not all(dtypes):
            return JudgedValue(name, dtypes, problem="a run has no floating-point numbers of it")
        try:
            measured = measure_tokens(name, self._target, self._golden, self._pairs)
        except (UnalignedError, DumpError) as error:
            return JudgedValue(name, dtypes, problem=str(error))
        if measured is None:
            return JudgedValue(name, dtypes, problem="no token has rows in both runs")
        judged = self._judge(name, dtypes, measured)
        self._note(judged, measured)
        if judged.outcome == "pass" and name.endswith(ROUTER):
            self._follow_router(name)
        return judged

    def _follow_router(self, name: str) -> None:
        """Leave out tokens for which experts were chosen otherwise, or note where they may have been."""
        runs = self._target, self._golden, self._pairs
        count = experts_per_token(name, self._golden, self._target)
        if count:
            self._leave_out(changed_choices(name, count, *runs))
        else:
            self._reordered[block_of(name)] = other_orders(name, *runs)

    def _leave_out(self, changed: NDArray[np.bool_]) -> None:
        """Leave out tokens for which other experts were chosen, and those behind them, which attend to them."""
        request, position = self._pairs.request, self._pairs.position
        for pair in np.flatnonzero(changed):
            self._changed |= (request == request[pair]) & (position >= position[pair])

    def _judge(self, name: str, dtypes: tuple[str, str], measured: TokenErrors) -> JudgedValue:
        is_coarser = self._precision.is_coarser(*dtypes)
        dtype = self._precision.at(*dtypes)
        inputs = self._given(name)
        limit = depth_limit(dtype, measured.width, self._blocks[name])
        if name.endswith(ROTATED) or name.startswith("rotary_emb"):
            limit += _ANGLE_ROUNDOFF * float(self._pairs.position.max(initial=0))
        counted = ~self._changed[measured.pairs]
        if not counted.any():
            problem = "the runs chose other experts, within rounding, for every token or one before it"
            return JudgedValue(name, dtypes, dtype, input_error=inputs.error, left_out=len(counted), problem=problem)
        errors = np.where(counted, measured.errors, 0.0)
        place = int(errors.argmax())
        error, median = float(errors[place]), float(np.median(measured.errors[counted]))
        own = operator_limit(dtype, measured.width)
        is_added = error > limit and error > own + self._inherited * inputs.error
        is_added |= median > limit / _MEDIAN_SHARE and median > own / _MEDIAN_SHARE + _MEDIAN_GROWTH * inputs.median
        cause: Cause = "culprit" if is_added else "inherited" if error > limit else ""
        outcome: Outcome = "pass"
        if cause:
            # Rounding alone adds up behind many layers, and no module is to blame.
            outcome = "fail" if is_added or self.first is not None else "warn"
        bound = limit if error > limit else limit / _MEDIAN_SHARE
        wrong = measured.pairs[errors > bound] if cause else measured.pairs[:0]
        reordered = self._reordered.get(name.removesuffix(EXPERTS))
        return JudgedValue(
            name,
            dtypes,
            dtype,
            outcome,
            cause,
            error,
            median,
            limit,
            inputs.error,
            int(measured.pairs[place]) if error else None,
            wrong.tolist(),
            is_coarser,
            int((~counted).sum()),
            measured,
            reordered=0 if reordered is None else int(reordered[wrong].sum()),
        )

    def _given(self, name: str) -> _Errors:
        """Return the greatest errors before a value in its block; of a block's first, in the block before."""
        block = self._blocks[name]
        if block in self._errors:
            return self._errors[block]
        before = [one for one in self._errors if one < block]
        return self._errors[max(before)] if before else _Errors()

    def _note(self, judged: JudgedValue, measured: TokenErrors) -> None:
        block = self._blocks[judged.name]
        former = self._errors.get(block, _Errors())
        self._errors[block] = _Errors(
            max(former.error, float(measured.errors.max())), max(former.median, float(np.median(measured.errors)))
        )
        if judged.outcome == "fail" and self.first is None:
            self.first = judged
