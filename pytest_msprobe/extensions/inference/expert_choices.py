"""The experts that routers choose for tokens: how many, and for which tokens two runs chose others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from msprobe_hooks.dump.values import Value
from pytest_msprobe.extensions.inference.passes import ForwardPass, ModuleCall
from pytest_msprobe.extensions.inference.run_values import RunValues
from pytest_msprobe.extensions.inference.token_errors import aligned_rows
from pytest_msprobe.extensions.inference.token_pairs import TokenPairs

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
