"""Calls outside of all modules belong to what computes their inputs, or consumes them."""

from __future__ import annotations

from msprobe_hooks.extensions.merged_ranks.pipeline_parallel import place_outside_calls
from tests.support.dumps.dump_files import Json, forward, tensor
from tests.support.dumps.ranks import dump

_MODULES = [f"Module.fc.Linear.forward.{i}" for i in range(2)]


def _at(value: float) -> Json:
    return tensor(2, high=value, low=-value, Mean=0.0, Norm=value)


def _call(given: float, made: float) -> Json:
    return forward(_at(given), output=[_at(made)])


def _placed(records: Json) -> dict[str, str]:
    tops = {name: name for name in records if name in _MODULES}
    return place_outside_calls(dump(records), list(records), tops)


def test_the_slice_of_a_micro_batch_belongs_to_the_module_that_consumes_it() -> None:
    records = {
        "Tensor.__getitem__.0.forward": _call(1.0, 2.0),
        _MODULES[0]: _call(2.0, 3.0),
        "Tensor.__getitem__.1.forward": _call(1.0, 4.0),
        "Tensor.to.0.forward": _call(4.0, 5.0),
        _MODULES[1]: _call(5.0, 6.0),
    }
    placed = _placed(records)
    assert placed["Tensor.__getitem__.0.forward"] == _MODULES[0]
    assert placed["Tensor.__getitem__.1.forward"] == placed["Tensor.to.0.forward"] == _MODULES[1]


def test_a_loss_and_its_labels_belong_to_the_module_that_it_is_computed_from() -> None:
    records = {
        _MODULES[0]: _call(1.0, 2.0),
        "Tensor.__getitem__.0.forward": _call(7.0, 8.0),
        _MODULES[1]: _call(3.0, 4.0),
        "Functional.mse_loss.0.forward": forward(_at(2.0), _at(8.0), output=[_at(9.0)]),
    }
    assert set(_placed(records).values()) == {_MODULES[0]}


def test_a_call_that_nothing_is_known_of_is_left_to_its_place() -> None:
    records = {_MODULES[0]: _call(1.0, 2.0), "Torch.relu.0.forward": _call(5.0, 6.0), _MODULES[1]: _call(3.0, 4.0)}
    assert _placed(records) == {}
