"""Divergence of two forward passes: each value judged by precision, by earlier values, and by experts' choices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from msprobe_hooks.dump.names import coarser
from msprobe_hooks.errors import DumpError
from pytest_msprobe.extensions.inference.rounding_limits import (
    Explained,
    Gain,
    Lengths,
    ProfiledValue,
    RunningPrecision,
    by_formula,
    by_profile,
    gain_of,
    lengths_of,
    operator_limit,
)
from pytest_msprobe.extensions.inference.run_values import ROTATED, RunValues, block_numbers
from pytest_msprobe.extensions.inference.token_errors import (
    EXPERTS,
    ROUTER,
    TokenErrors,
    block_of,
    changed_choices,
    experts_per_token,
    measure_tokens,
    other_orders,
)
from pytest_msprobe.extensions.inference.token_layout import UnalignedError
from pytest_msprobe.extensions.inference.token_pairs import TokenPairs
from pytest_msprobe.modes.compare.rows import Cause, Outcome

# Angles of rotary embeddings are products of a position and a rounded frequency.
_ANGLE_ROUNDOFF = 2.0**-23
# Choices: a module of equal models does not make the median of its inputs' errors four times as large, nor, as a share
# of what the profile explains, 1.25 times. What follows a fault may double the fault's share.
_MEDIAN_GROWTH = 4.0
_FIRST_GROWTH = 1.25
_LATER_GROWTH = 2.0
_NORMS = ("norm", "layernorm")

#: What a profile has of a value by its name, None where it has nothing.
Profile: TypeAlias = Callable[[str], ProfiledValue | None]


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
        limit: What the two precisions explain of a token's error.
        given: The greatest error of what was computed before it in its block.
        worst: The number of the pair of tokens with the greatest error, None where nothing differs.
        wrong: The numbers of the pairs of tokens beyond the limit.
        is_coarser: Whether one run rounds it more coarsely than the other and than all before.
        left_out: How many tokens count no longer, because other experts were chosen for them.
        measured: All that was measured, None where it could not be.
        problem: Why it could not be compared.
        explained: What they explain, of a token and of the median.
        gain: How much longer the rows of a norm are than the golden ones, None of any other value.
        lengths: The lengths of a norm's rows, None of any other value or of few tokens.
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
    explained: Explained | None = None
    gain: Gain | None = None
    lengths: Lengths | None = None
    reordered: int = 0

    @property
    def grounds(self) -> str:
        """The reasons in words, other than the error of a token; empty where there are none."""
        grounds = []
        if self.gain is not None and self.gain.is_wrong:
            grounds.append(f"rows are {self.gain.deviation:+.2e} longer in the mean; limit {self.gain.limit:.2e}")
        if self.explained is not None and self.explained.is_measured:
            grounds.append(
                f"the profile has {self.explained.profile_error:.2e} (median {self.explained.profile_median:.2e})"
            )
        if self.explained is not None and self.error <= self.limit and self.median > self.explained.median:
            grounds.append(f"limit of the median {self.explained.median:.2e}")
        return "; ".join(grounds)


class ForwardJudge:
    """Judges values in the order of the forward pass.

    A value is wrong where it differs by more than the two precisions explain at its depth, and a culprit where it also
    adds more than ``inherited`` times the error of what its block was given, or four times its median. Before the first
    culprit, what only adds up is warned of.
    Tokens for which the runs chose other experts, though the router agrees, count no longer from there on, nor do
    those behind them.
    With a ``profile``, a value is wrong where its errors exceed the profile's by more than a margin, and a culprit
    where no value before it does so nearly as far. A norm is wrong also where its rows have another length in the mean.
    """

    def __init__(
        self,
        names: Sequence[str],
        target: RunValues,
        golden: RunValues,
        pairs: TokenPairs,
        *,
        inherited: float,
        profile: Profile | None = None,
    ) -> None:
        self._names = names
        self._target, self._golden, self._pairs = target, golden, pairs
        self._inherited = inherited
        self._blocks = block_numbers(golden)
        self._precision = RunningPrecision()
        self._errors: dict[int, _Errors] = {}
        self._judged: list[JudgedValue] = []
        self._changed = np.zeros(len(pairs), dtype=bool)
        self._profile = profile
        self._largest_share = 0.0
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
        if judged.outcome in ("pass", "warn") and name.endswith(ROUTER):
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
        is_counted = ~self._changed[measured.pairs]
        counted = measured.pairs[is_counted]
        if not len(counted):
            problem = "the runs chose other experts, within rounding, for every token or one before it"
            return JudgedValue(
                name, dtypes, dtype, input_error=inputs.error, left_out=len(measured.pairs), problem=problem
            )
        profiled = None if self._profile is None else self._profile(name)
        errors = np.where(is_counted, measured.errors, 0.0)
        place = int(errors.argmax())
        error, median = float(errors[place]), float(np.median(measured.errors[is_counted]))
        explained = self._explained(name, dtype, measured.width, profiled, len(counted))
        lengths = lengths_of(measured.gains[is_counted]) if name.endswith(_NORMS) else None
        gain = None if lengths is None else _gain(lengths, dtypes, measured, median, profiled)
        is_added = self._is_added(error, median, explained, operator_limit(dtype, measured.width), inputs)
        is_off = gain is not None and gain.is_wrong
        is_beyond = error > explained.error or (explained.is_measured and median > explained.median)
        cause: Cause = "culprit" if is_added or is_off else "inherited" if is_beyond else ""
        outcome: Outcome = "pass"
        if cause:
            # Rounding alone adds up behind many layers, and no module is to blame.
            outcome = "fail" if cause == "culprit" or self.first is not None else "warn"
        bound = explained.error if error > explained.error else explained.median
        wrong = counted[errors[is_counted] > bound] if cause else counted[:0]
        wrong = counted if is_off and not len(wrong) else wrong
        reordered = self._reordered.get(name.removesuffix(EXPERTS))
        return JudgedValue(
            name,
            dtypes,
            dtype,
            outcome,
            cause,
            error,
            median,
            explained.error,
            inputs.error,
            int(measured.pairs[place]) if error else None,
            wrong.tolist(),
            is_coarser,
            int((~is_counted).sum()),
            measured,
            explained=explained,
            gain=gain,
            lengths=lengths,
            reordered=0 if reordered is None else int(reordered[wrong].sum()),
        )

    def _explained(self, name: str, dtype: str, width: int, profiled: ProfiledValue | None, tokens: int) -> Explained:
        is_rotated = name.endswith(ROTATED) or name.startswith("rotary_emb")
        more = _ANGLE_ROUNDOFF * float(self._pairs.position.max(initial=0)) if is_rotated else 0.0
        if profiled is None:
            return by_formula(dtype, width, self._blocks[name], more)
        return by_profile(profiled, tokens, dtype, width, more)

    def _is_added(self, error: float, median: float, explained: Explained, own: float, inputs: _Errors) -> bool:
        """Return whether a value adds to the error; with a profile, keep its share of what that explains."""
        if explained.is_measured:
            share, largest = explained.share(error, median), self._largest_share
            self._largest_share = max(share, largest)
            return share > 1 and share > largest * (_FIRST_GROWTH if self.first is None else _LATER_GROWTH)
        if error > explained.error and error > own + self._inherited * inputs.error:
            return True
        of_median = own * explained.median / explained.error
        return median > explained.median and median > of_median + _MEDIAN_GROWTH * inputs.median

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


def _gain(
    lengths: Lengths, dtypes: tuple[str, str], measured: TokenErrors, median: float, profiled: ProfiledValue | None
) -> Gain:
    """Return the gain of a norm: against the profile where that has the target's dtype, else the golden run."""
    is_same, against = dtypes[0] == dtypes[1], None
    if profiled is not None and not is_same and profiled.dtype == dtypes[0] and profiled.lengths is not None:
        is_same, against = True, profiled.lengths
    return gain_of(
        lengths,
        against,
        dtype=coarser(*dtypes),
        width=measured.width,
        columns=measured.columns,
        median=median,
        is_same=is_same,
    )
