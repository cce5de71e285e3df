"""Nested outputs judged leaf by leaf: everything that should be there, nothing that should not, all of it right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch

from msprobe_standards.judging import failure, judge
from msprobe_standards.verdict import Verdict

if TYPE_CHECKING:
    from msprobe_standards.metrics import Metrics
    from msprobe_standards.protocol import Standard

_ABSENT = object()


def judge_tree(
    target: object,
    golden: object,
    *,
    select: Callable[[str, object], Standard],
    baseline: Callable[[], object] | None = None,
    recorded: Callable[[str, Standard], Metrics | torch.Tensor | None] | None = None,
    moved: Callable[[], Sequence[object]] | None = None,
    batch: Sequence[int] = (),
) -> list[tuple[str, Verdict]]:
    """Judge every leaf of a nested output and return (path, verdict) pairs in order.

    Lists, tuples (named ones too) and dicts are descended into. A missing or surplus output or another kind of
    container is a failing verdict at its path, by the standard "structure".

    Args:
        target: The output, nested as the call returned it.
        golden: The golden output.
        select: Returns the standard for the path and the value of a leaf of the target.
        baseline: Computes the whole baseline output; it is called at most once, when the first leaf needs it.
        recorded: Returns another device's result at a path, or its numbers for a standard (see `judge`).
        moved: Computes whole golden outputs for moved inputs, one per draw; it is called at most once.
        batch: The shape of a batch of matrices that the call takes (see `judge`).

    Returns:
        The path of each leaf, indices and keys joined with dots ("0", "1.hidden"; "out" for an output that is itself
        a leaf), with its verdict.
    """
    return _leaves(target, golden, _References(baseline, recorded, moved, batch), select, ())


class _References:
    """Results that outputs are compared with besides golden: the baseline's, recorded numbers, golden's moved ones.

    The baseline and the moved ones are computed when first asked for.
    """

    def __init__(
        self,
        compute: Callable[[], object] | None,
        recorded: Callable[[str, Standard], Metrics | torch.Tensor | None] | None,
        move: Callable[[], Sequence[object]] | None,
        batch: Sequence[int],
    ) -> None:
        self.compute = compute
        self.recorded = recorded
        self.move = move
        self.batch = batch
        self.output: object = _ABSENT
        self.draws: Sequence[object] | None = None

    def leaf(self, keys: tuple[object, ...]) -> object:
        """Return the leaf under ``keys``, None where the baseline has none."""
        if self.output is _ABSENT:
            self.output = self.compute() if self.compute else None
        return _under(self.output, keys)

    def moved(self, keys: tuple[object, ...]) -> list[object]:
        """Return golden's moved leaves under ``keys``, None for each that is not there."""
        if self.draws is None:
            self.draws = self.move() if self.move else ()
        return [_under(draw, keys) for draw in self.draws]


def _under(node: object, keys: tuple[object, ...]) -> object:
    for key in keys:
        try:
            node = node[key]  # type: ignore[index]
        except (TypeError, KeyError, IndexError):
            return None
    return node


def _leaves(
    target: object,
    golden: object,
    references: _References,
    select: Callable[[str, object], Standard],
    keys: tuple[object, ...],
) -> list[tuple[str, Verdict]]:
    kind, golden_kind = _kind(target), _kind(golden)
    if kind != golden_kind:
        reason = f"output is a {kind or type(target).__name__}, golden is a {golden_kind or type(golden).__name__}"
        return [(_joined(keys), failure("structure", reason))]
    if kind is None:
        path = _joined(keys)
        verdict = judge(
            target,
            golden,
            standard=select(path, target),
            baseline=lambda: references.leaf(keys),
            recorded=None if references.recorded is None else partial(references.recorded, path),
            moved=lambda: references.moved(keys),
            batch=references.batch,
        )
        return [(path, verdict)]
    children, expected = _children(target), _children(golden)
    if not children and not expected:
        return [(_joined(keys), Verdict("pass", "structure"))]
    judged: list[tuple[str, Verdict]] = []
    for key in dict.fromkeys((*expected, *children)):
        below = (*keys, key)
        if key not in children:
            reason = f"output {key!r} is missing; the target has {_listed(children)}"
            judged.append((_joined(below), failure("structure", reason)))
        elif key not in expected:
            reason = f"output {key!r} is not in golden, which has {_listed(expected)}"
            judged.append((_joined(below), failure("structure", reason)))
        else:
            judged += _leaves(children[key], expected[key], references, select, below)
    return judged


def _joined(keys: tuple[object, ...]) -> str:
    return ".".join(map(str, keys)) or "out"


def _listed(children: Mapping[object, object]) -> str:
    return ", ".join(map(repr, children)) or "none"


def _kind(node: object) -> str | None:
    """Return the kind of container, None for a leaf."""
    if isinstance(node, torch.Tensor):
        return None
    if isinstance(node, list):
        return "list"
    if isinstance(node, tuple):
        return "tuple"
    return "dict" if isinstance(node, (dict, Mapping)) else None


def _children(node: object) -> Mapping[object, object]:
    return dict(enumerate(node)) if isinstance(node, (list, tuple)) else dict(node)  # type: ignore[call-overload]
