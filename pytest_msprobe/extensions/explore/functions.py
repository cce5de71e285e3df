"""A user's function, checked on inputs that strategies draw; one that fails is shrunk to the smallest that does."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import strategies as st

from pytest_msprobe.engine.replay.function_check import CheckedFunction, Given
from pytest_msprobe.engine.replay.inputs.random_tensors import stream_seed
from pytest_msprobe.engine.values.pytree import map_leaves, map_with_paths, tensors_with_paths
from pytest_msprobe.engine.values.suppress_warnings import suppress_warnings
from pytest_msprobe.extensions.explore.explore_failures import drawn_text
from pytest_msprobe.extensions.explore.explored_tally import EXPLORED, UNJUDGED
from pytest_msprobe.extensions.explore.minimal_failure import (
    Tensors,
    TimeUpError,
    WrongError,
    kind_of_failure,
    only_drifts,
    search,
    shorten,
)
from pytest_msprobe.extensions.explore.options import ExploreOptions, drawn_options
from pytest_msprobe.modes.check.options import check_key
from pytest_msprobe.results.outcomes import Breakdown
from pytest_msprobe.results.result import DirectionResult
from pytest_msprobe.run.options import options_key


@dataclass
class ExploredFunction:
    """Outcome of exploring a function: how many inputs were judged, the smallest that fails, else the closest to it.

    ``refused`` is the last one of those that could not be judged, ``unjudged`` how many golden raised on, or gave
    nothing to compare for. ``fails_again``: the smallest failed when it was run once more.
    """

    judged: int = 0
    unjudged: int = 0
    smallest: CheckedFunction | None = None
    closest: CheckedFunction | None = None
    refused: CheckedFunction | None = None
    fails_again: bool = True


def is_drawn(given: Given) -> bool:
    """Return whether there is a strategy among the arguments."""
    return any(isinstance(leaf, st.SearchStrategy) for leaf in _leaves(given))


def explore_function(
    judge: Callable[[Given], CheckedFunction], given: Given, options: ExploreOptions, key: int
) -> ExploredFunction:
    """Judge a function on what the strategies among its arguments draw, which depends on ``key``."""
    strategies = [leaf for leaf in _leaves(given) if isinstance(leaf, st.SearchStrategy)]

    def filled(drawn: tuple[Any, ...]) -> Given:
        values = iter(drawn)
        filled: Given = map_leaves(lambda leaf: next(values) if isinstance(leaf, st.SearchStrategy) else leaf, given)
        return filled

    tried = _Search(judge, time.monotonic() + options.seconds, options.examples)
    with suppress_warnings():
        with contextlib.suppress(TimeUpError):
            search(tried.judge_one, st.tuples(*strategies).map(filled), key, options.examples)
        tried.shorten(given)
        tried.run_again()
    return tried.found


@dataclass
class _Search:
    judge: Callable[[Given], CheckedFunction]
    end: float
    examples: int
    found: ExploredFunction = field(default_factory=ExploredFunction)
    wanted: tuple[str, bool] | None = None
    given: Given = ((), {})
    elements: int = 0

    def judge_one(self, given: Given) -> bool:
        """Judge one input; False where it is none that the function takes. Raises WrongError where it fails."""
        if time.monotonic() > self.end:
            raise TimeUpError
        judged = self.judge(given)
        if any(result.breakdown is Breakdown.TEST for result in judged.results):
            self.found.refused = judged
            self.found.unjudged += 1
            if self.found.judged == 0 and self.found.unjudged >= self.examples:
                # Golden takes none of them; Hypothesis would draw ten times as many.
                raise TimeUpError
            return False
        if all(result.verdict.outcome == "skip" for result in judged.results):
            self.found.refused = judged
            return False
        self.found.judged += 1
        if self._is_wanted(judged):
            elements = sum(tensor.numel() for _, tensor in tensors_with_paths(list(given)))
            if self.found.smallest is None or elements <= self.elements:
                self.found.smallest, self.given, self.elements = judged, given, elements
            raise WrongError
        if self.found.closest is None or _margin(judged) > _margin(self.found.closest):
            self.found.closest = judged
        return True

    def _is_wanted(self, judged: CheckedFunction) -> bool:
        failed = judged.failed
        if failed is None or only_drifts(failed.verdict) or self.wanted not in (None, kind_of_failure(failed)):
            return False
        # Of one kind, so that shrinking does not slip from one fault to another.
        self.wanted = kind_of_failure(failed)
        return True

    def shorten(self, drawn: Given) -> None:
        """Make the drawn values of the smallest input short, in what is left of the time."""
        if self.found.smallest is None:
            return
        given, fixed = self.given, dict(_tensors(drawn))
        tensors = {path: tensor.detach() for path, tensor in _tensors(given) if path not in fixed}
        leaves = {path: tensor.requires_grad for path, tensor in _tensors(given)}

        def fails(tensors: Tensors) -> bool:
            if time.monotonic() > self.end:
                raise TimeUpError
            shorter = {path: tensor.clone().requires_grad_(leaves[path]) for path, tensor in tensors.items()}
            judged = self.judge(_replaced(given, shorter))
            if not self._is_wanted(judged):
                return False
            self.found.smallest, self.given = judged, _replaced(given, shorter)
            return True

        with contextlib.suppress(TimeUpError):
            shorten(tensors, fails)

    def run_again(self) -> None:
        """Judge the smallest input once more, if there is one: of an error that comes once, no input is the cause."""
        if self.found.smallest is not None:
            self.found.fails_again = self.judge(self.given).failed is not None


def _leaves(tree: Any) -> list[Any]:
    leaves: list[Any] = []
    map_leaves(leaves.append, tree)
    return leaves


def _tensors(given: Given) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tree in zip(("args", "kwargs"), given, strict=True):
        yield from tensors_with_paths(tree, name)


def _replaced(given: Given, tensors: Tensors) -> Given:
    args, kwargs = (
        map_with_paths(lambda path, leaf: tensors.get(path, leaf), tree, name)
        for name, tree in zip(("args", "kwargs"), given, strict=True)
    )
    return args, kwargs


def _margin(judged: CheckedFunction) -> float:
    return max(result.verdict.margin for result in judged.results)


def judge_drawn(
    config: pytest.Config, name: str, judge: Callable[[Given], CheckedFunction], given: Given
) -> CheckedFunction:
    """Judge a function on what the strategies among its arguments draw.

    What came of it is that of the smallest input that fails, else of the one that came closest to it. Inputs on which
    golden raises do not count, unless it raises on all of them. Fails the test where none could be drawn.
    """
    __tracebackhide__ = True
    run = config.stash[options_key]
    usual = hypothesis.settings.default.max_examples  # type: ignore[union-attr]
    asked = config.stash[check_key].feature(ExploreOptions.name)
    assert asked is None or isinstance(asked, ExploreOptions)
    options = drawn_options(asked, usual).within(run.timeout, 0.0)
    found = explore_function(judge, given, options, stream_seed(run.seed, name, "explore"))
    checked = found.smallest or found.closest or found.refused
    if checked is None:
        why = "the strategies yield none, or need more time; pass --msprobe-explore N -o msprobe_explore_time=SECONDS"
        pytest.fail(f"{name}: no input was drawn within {options.seconds:g} s; {why}", pytrace=False)
    results = list(checked.results)
    results[0] = results[0].with_extra(EXPLORED, found.judged)
    if found.unjudged:
        results[0] = results[0].with_extra(UNJUDGED, found.unjudged)
    if checked is found.refused and found.unjudged:
        results = [_on_every_input(result, found.unjudged) for result in results]
        return replace(checked, results=results)
    if checked.failed is not None:
        place = list(checked.results).index(checked.failed)
        note = drawn_text(checked.check, checked.failed, found.judged, fails_again=found.fails_again)
        results[place] = replace(results[place], notes=(*results[place].notes, note))
    return replace(checked, results=results)


def _on_every_input(result: DirectionResult, count: int) -> DirectionResult:
    if result.breakdown is not Breakdown.TEST:
        return result
    note = f"None of {count} drawn inputs could be judged; this is the last of them."
    return replace(result, notes=(*result.notes, note))
