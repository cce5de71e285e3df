from __future__ import annotations

import dataclasses
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msprobe_hooks.errors import RecordError
from msprobe_hooks.extensions.overflow.anomaly import (
    AnomalyKind,
    Finding,
    find_scene,
    may_hold_non_finite,
    read_record_io,
)
from tests.support.dumps.dump_files import Json, value
from tests.support.dumps.ranks import call, dump, tensor


def scene(body: Json, name: str = "Torch.mul.0.forward") -> Finding | None:
    return find_scene(read_record_io(dump({name: body}), name))


@pytest.mark.parametrize(
    ("bad_in", "bad_out", "expected"),
    [
        (False, False, None),
        (False, True, AnomalyKind.ARISES),
        (True, True, AnomalyKind.PASSES_ON),
        (True, False, AnomalyKind.VANISHES),
    ],
)
def test_the_scene_is_what_came_in_and_what_went_out(bad_in: bool, bad_out: bool, expected: AnomalyKind | None) -> None:
    found = scene(call([tensor(bad=bad_in)], [tensor(bad=bad_out)]))
    assert (found and found.scene) == expected


def test_a_gradient_of_what_was_no_number_passes_it_on_though_finite_ones_arrive() -> None:
    forward = {"Torch.mul.0.forward": call([tensor(bad=True)], [tensor(bad=True)])}
    backward = {"Torch.mul.0.backward": {"input": [tensor()], "output": [tensor(bad=True)]}}
    found = find_scene(read_record_io(dump({**forward, **backward}), "Torch.mul.0.backward"))
    assert found is not None
    assert (found.scene, [place.path for place in found.inputs]) == (AnomalyKind.PASSES_ON, ["forward.output.0"])


@pytest.mark.parametrize("number", ["nan", "inf"])
def test_a_gradient_of_a_call_that_was_given_nan_or_inf_passes_it_on(number: str) -> None:
    given = {**tensor(), "Max": number, "Min": number if number == "nan" else -1.0}
    forward = {"Functional.cross_entropy.0.forward": call([given], [tensor()])}
    backward = {"Functional.cross_entropy.0.backward": {"input": [tensor()], "output": [tensor(bad=True)]}}
    found = find_scene(read_record_io(dump({**forward, **backward}), "Functional.cross_entropy.0.backward"))
    assert found is not None
    assert (found.scene, [place.path for place in found.inputs]) == (AnomalyKind.PASSES_ON, ["forward.input.0"])


def test_a_gradient_that_is_none_of_a_call_that_was_given_a_mask_arises_there() -> None:
    masked = {"Torch.mul.0.forward": call([{**tensor(), "Min": "-inf"}], [tensor()])}
    backward = {"Torch.mul.0.backward": {"input": [tensor()], "output": [tensor(bad=True)]}}
    found = find_scene(read_record_io(dump({**masked, **backward}), "Torch.mul.0.backward"))
    assert found is not None
    assert found.scene is AnomalyKind.ARISES


def test_a_clean_gradient_is_clean_whatever_its_call_gave() -> None:
    forward = {"Torch.mul.0.forward": call([tensor()], [tensor(bad=True)])}
    backward = {"Torch.mul.0.backward": {"input": [tensor()], "output": [tensor()]}}
    assert find_scene(read_record_io(dump({**forward, **backward}), "Torch.mul.0.backward")) is None


def test_the_levels_are_those_of_msprobe() -> None:
    own = (AnomalyKind.COMES_IN, AnomalyKind.NAN_OF_INF, AnomalyKind.OVERWRITTEN)
    assert [scene.level for scene in AnomalyKind if scene not in own] == ["critical", "high", "medium", "high"]


@pytest.mark.parametrize("spelling", ["NaN", "Infinity", "-Infinity", "nan", "inf", "-inf", "nan\t", "-inf\t"])
@pytest.mark.parametrize("key", ["Max", "Min"])
def test_every_spelling_of_inf_and_nan_counts(spelling: str, key: str) -> None:
    found = scene(call([tensor()], [tensor(**{key: spelling})]))
    assert found is not None
    assert found.scene is AnomalyKind.ARISES


@pytest.mark.parametrize(
    "inputs",
    [
        [[tensor(bad=True)]],
        [[tensor()], {"a": {"b": [tensor(bad=True)]}}],
        [None, [None, [tensor(bad=True), tensor()]]],
    ],
)
def test_nested_inputs_are_looked_into(inputs: list[object]) -> None:
    found = scene(call(inputs, [tensor(bad=True)]))
    assert found is not None
    assert found.scene is AnomalyKind.PASSES_ON


def test_arguments_by_name_and_parameters_of_a_module_are_inputs() -> None:
    by_name = scene(call([tensor()], [tensor(bad=True)], weight=tensor(bad=True)))
    assert by_name is not None
    assert [place.path for place in by_name.inputs] == ["kwargs.weight"]
    body = call([tensor()], [tensor(bad=True)]) | {"parameters": {"weight": tensor(bad=True)}}
    module = scene(body, "Module.fc.Linear.forward.0")
    assert module is not None
    assert [place.path for place in module.inputs] == ["parameters.weight"]


def test_an_infinite_number_given_as_an_argument_is_an_input() -> None:
    found = scene(call([tensor(), tensor(), {"type": "float", "value": "-Infinity"}], [tensor(Min="-Infinity")]))
    assert found is not None
    assert found.scene is AnomalyKind.PASSES_ON


def test_a_mean_that_overflowed_over_finite_extrema_is_no_anomaly() -> None:
    assert scene(call([tensor()], [tensor(Mean="-Infinity", Max=0.0, Min=-3.4e38)])) is None


def test_a_mean_counts_where_there_are_no_extrema() -> None:
    assert scene(call([tensor()], [tensor(Mean="NaN", Max=None, Min=None)])) is not None


def test_a_backward_record_is_judged_by_the_gradients_that_arrive_and_leave() -> None:
    found = scene({"input": [tensor()], "output": [None, tensor(bad=True)]}, "Torch.sqrt.0.backward")
    assert found is not None
    assert (found.scene, [place.path for place in found.outputs]) == (AnomalyKind.ARISES, ["output.1"])
    module = {"input": [tensor(bad=True)], "output": [tensor()]}
    vanished = scene(module, "Module.fc.Linear.backward.0")
    assert vanished is not None
    assert vanished.scene is AnomalyKind.VANISHES


@given(before=st.floats(0, 1e6), after=st.floats(0, 1e6))
def test_a_norm_that_grows_more_than_a_hundredfold_is_a_jump(before: float, after: float) -> None:
    found = scene(call([tensor(norm=before), tensor(norm=0.0)], [tensor(norm=after), tensor(norm=None)]))
    jumps = after / before > 100 if before else after > 100
    assert (found is not None) == jumps
    assert found is None or found.growth == (after / before if before else after)


def test_a_norm_that_is_nan_or_missing_is_no_jump() -> None:
    assert scene(call([tensor(norm=1.0)], [tensor(Norm="NaN")])) is None
    assert scene(call([value(2)], [tensor(norm=1e9)])) is None


@given(st.floats())
def test_what_is_skipped_undecoded_holds_no_inf_or_nan(number: float) -> None:
    body = call([tensor()], [tensor(Max=str(number) if not math.isfinite(number) else number)])
    raw = bytes(dump({"Torch.mul.0.forward": body}).records["Torch.mul.0.forward"])
    assert may_hold_non_finite(raw) == (not math.isfinite(number))


@pytest.mark.parametrize("key", ["Max", "Norm"])
def test_a_statistic_that_no_float_can_hold_is_a_malformed_record(key: str) -> None:
    text = f'{{"output": [{{"type": "torch.Tensor", "dtype": "torch.int64", "shape": [], "{key}": 1{"0" * 400}}}]}}'
    records = dataclasses.replace(dump({}), records={"Torch.mul.0.forward": msgspec.Raw(text.encode())})
    with pytest.raises(RecordError, match=rf"output\[0\]\.{key}: expected a number"):
        read_record_io(records, "Torch.mul.0.forward")


def test_a_name_without_grammar_is_a_malformed_record() -> None:
    with pytest.raises(RecordError, match="is not of the form"):
        scene(call([], []), "nonsense")
