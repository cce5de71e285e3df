"""What became of the sums that ranks hold parts of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from msprobe_hooks.dump.reader import read_dump
from msprobe_hooks.extensions.merged_ranks.merged_dump import MergedDump, ParallelLayout, find_models, merge_model
from msprobe_hooks.extensions.merged_ranks.unshard import Unmerged, make_whole
from tests.support.dumps.dump_files import Json, forward, value, write_dump
from tests.support.dumps.ranks import group
from tests.support.dumps.recorder import element

_LINEAR = "Functional.linear.0.forward"
_GRADIENT = "Module.norm.RMSNorm.parameters_grad."
_REDUCE = "Distributed.all_reduce.0.forward"
_PARTS = [torch.tensor([1.0, -2.0, 4.0]), torch.tensor([3.0, 5.0, -1.0])]
_WHOLE = _PARTS[0] + _PARTS[1]


def _reduction(given: torch.Tensor, returned: torch.Tensor) -> Json:
    return forward(element(given), output=[element(returned)], group=group(0, 1))


def _merge(folder: Path, *ranks: Json) -> MergedDump:
    for rank, records in enumerate(ranks):
        write_dump(folder / "step0" / f"rank{rank}", records, level="mix")
    layout = ParallelLayout(tp=2)
    (model,) = find_models(sorted(folder.rglob("dump.json")), layout)
    return merge_model(model, layout)


def _unmerged(folder: Path, *ranks: Json) -> list[Unmerged]:
    """Compare with one process that has the sums, and return what could not be merged."""
    merged = _merge(folder / "ours", *ranks)
    path = write_dump(folder / "theirs", {name: {"weight": [element(_WHOLE)]} for name in merged.records}, level="mix")
    return make_whole(merged, read_dump(path), ((2,), (1,)))[2]


def _gradients(*numbers: int, reduced: Any = None, after: bool = True) -> list[Json]:
    """Return the records of ranks that hold parts of a gradient, and reduce what ``reduced`` makes of them."""
    ranks = []
    for part in _PARTS:
        held = {f"{_GRADIENT}{number}": {"weight": [element(part * (number + 1))]} for number in numbers}
        made = {} if reduced is None else {_REDUCE: _reduction(reduced(part), reduced(part) * 2)}
        ranks.append({**held, **made} if after else {**made, **held})
    return ranks


def test_a_gradient_that_is_reduced_later_is_said_to_be(tmp_path: Path) -> None:
    assert [one.reason for one in _unmerged(tmp_path, *_gradients(0, reduced=lambda part: part))] == ["partial"]


@pytest.mark.parametrize("ranks", [_gradients(0), _gradients(0, reduced=lambda part: part, after=False)])
def test_a_gradient_that_no_call_reduces_later_is_reported(tmp_path: Path, ranks: list[Json]) -> None:
    assert _unmerged(tmp_path, *ranks) == [Unmerged(f"{_GRADIENT}0", "weight.0", "gradient")]


def test_a_gradient_may_be_reduced_among_others_in_one_vector(tmp_path: Path) -> None:
    ranks = _gradients(0, reduced=lambda part: torch.cat([part, torch.tensor([9.0, -9.0])]))
    assert [one.reason for one in _unmerged(tmp_path, *ranks)] == ["partial"]


def test_gradients_that_accumulate_are_reduced_with_the_last_of_their_module(tmp_path: Path) -> None:
    ranks = _gradients(0, 1, reduced=lambda part: part * 2)
    assert [one.reason for one in _unmerged(tmp_path, *ranks)] == ["partial", "partial"]


def test_the_result_of_a_reduction_requires_a_gradient_where_its_parts_do(tmp_path: Path) -> None:
    ranks = [
        {_LINEAR: forward(output=[{**element(part), "requires_grad": True}]), _REDUCE: _reduction(part, _WHOLE)}
        for part in _PARTS
    ]
    output = _merge(tmp_path, *ranks).body(_LINEAR)["output"][0]
    assert (output["Max"], output["requires_grad"]) == (4.0, True)


def test_a_part_is_recognised_in_another_order_of_its_elements(tmp_path: Path) -> None:
    ranks = [{_LINEAR: forward(output=[element(part)]), _REDUCE: _reduction(part, _WHOLE) | {}} for part in _PARTS]
    for records in ranks:
        records[_REDUCE]["input_args"][0]["Norm"] *= 1 + 1e-7
    assert _merge(tmp_path, *ranks).body(_LINEAR)["output"][0]["Norm"] == pytest.approx(float(_WHOLE.norm()))


def _by_tokens(folder: Path, *ranks: Json) -> Json:
    """Merge ranks with other tokens, and return what became of the gradient."""
    for rank, records in enumerate(ranks):
        write_dump(folder / "step0" / f"rank{rank}", records, level="mix")
    layout = ParallelLayout(cp=2)
    (model,) = find_models(sorted(folder.rglob("dump.json")), layout)
    gradient: Json = merge_model(model, layout).body(f"{_GRADIENT}0")["weight"][0]
    return gradient


def test_a_gradient_by_tokens_is_what_its_reduction_made_of_it(tmp_path: Path) -> None:
    held = [{f"{_GRADIENT}0": {"weight": [element(part)]}, _REDUCE: _reduction(part, _WHOLE)} for part in _PARTS]
    gradient = _by_tokens(tmp_path, *held)
    assert (gradient["Max"], gradient["final"]) == (4.0, True)


def test_a_gradient_by_tokens_that_is_divided_by_the_number_of_ranks_is_their_mean(tmp_path: Path) -> None:
    held = [
        {
            f"{_GRADIENT}0": {"weight": [element(part)]},
            _REDUCE: _reduction(part, _WHOLE),
            "Tensor.div_.0.forward": forward(element(_WHOLE), value(2), output=[element(_WHOLE / 2)]),
            "Tensor.mul_.0.forward": forward(element(_WHOLE / 2), value(0.3), output=[element(_WHOLE * 0.15)]),
        }
        for part in _PARTS
    ]
    assert _by_tokens(tmp_path, *held)["Max"] == 2.0


def test_the_zero_gradient_of_an_expert_without_tokens_is_not_taken_for_that_of_another(tmp_path: Path) -> None:
    zero, other = torch.zeros(3), f"{_REDUCE[:-9]}1.forward"
    ranks = [
        {
            f"{_GRADIENT}0": {"weight": [element(part)]},
            _REDUCE: _reduction(first, first),
            other: _reduction(part, _WHOLE),
        }
        for part, first in ((zero, zero), (_WHOLE, _PARTS[0]))
    ]
    assert _by_tokens(tmp_path, *ranks)["Max"] == 4.0
