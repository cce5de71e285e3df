"""Arguments that were set otherwise, weights and data from outside, next to numbers that drift."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from msprobe_hooks.dump.values import read_values
from pytest_msprobe.modes.compare.judging import given_values
from tests.support.dumps.dump_files import value

Compare = Callable[..., pytest.RunResult]


def layers(call: Any, tensor: Any, shift: float, *arguments: Any) -> Any:
    """Return a layer whose weight is shifted, and one with arguments behind it."""
    x, h = tensor(4, 4, Max=3.0), tensor(4, 4, Max=2.0 + shift)
    return {
        "Functional.linear.0.forward": call(x, tensor(4, 4, Max=1.0 + shift, requires_grad=True), out=h),
        "Functional.layer_norm.1.forward": call(h, [value(4)], None, None, *arguments, out=tensor(4, 4, Max=1.5)),
    }


def test_a_setting_is_listed_before_weights_that_drift(compare: Compare, runs: Any, call: Any, tensor: Any) -> None:
    paths = runs.both(layers(call, tensor, 1e-3, value(0.01)), layers(call, tensor, 0.0, value(1e-5)))
    result = compare(*paths)
    line = "settings that differ: Functional.layer_norm.1.forward: eps 0.01, golden 1e-05"
    result.stdout.fnmatch_lines(["input.4: eps 0.01, golden 1e-05", "* msprobe *", line, "first forward culprit: *"])


def test_the_quick_answer_names_a_setting(compare: Compare, runs: Any, call: Any, tensor: Any) -> None:
    paths = runs.both(layers(call, tensor, 1e-3, value(0.01)), layers(call, tensor, 0.0, value(1e-5)))
    result = compare(*paths, "-omsprobe_compare_quick=true")
    result.stdout.fnmatch_lines(["settings that differ: *eps 0.01, golden 1e-05", "2 of 2 records differ, first *"])


def test_the_page_names_a_setting(compare: Compare, runs: Any, call: Any, tensor: Any, tmp_path: Path) -> None:
    paths = runs.both(layers(call, tensor, 1e-3, value(0.01)), layers(call, tensor, 0.0, value(1e-5)))
    compare(*paths, "--msprobe-html", str(tmp_path / "page.html"))
    line = "settings that differ: Functional.layer_norm.1.forward: eps 0.01, golden 1e-05"
    assert line in (tmp_path / "page.html").read_text()


def apart(call: Any, tensor: Any, place: str, kind: str, value: Any) -> Any:
    """Return a cast with an argument that msprobe has no spelling for: our recorder keeps it in the details."""
    at = [{}] if place == "input.1" else []
    return {"Tensor.to.0.forward": call(tensor(4), *at) | {"details": {place: {"type": kind, "value": value}}}}


@pytest.mark.parametrize(
    ("place", "kind", "values", "words"),
    [
        ("input.1", "torch.dtype", ("torch.float64", "torch.float32"), "dtype torch.float64, golden torch.float32"),
        ("input.1", "torch.dtype", ("torch.int8", "torch.bfloat16"), "dtype torch.int8, golden torch.bfloat16"),
        ("kwargs.layout", "torch.layout", ("torch.jagged", "torch.strided"), "layout torch.jagged, golden *strided"),
        ("input.1", "complex", ([1.0, 3.0], [1.0, 2.0]), "input.1 ?1.0, 3.0?, golden ?1.0, 2.0?"),
    ],
)
def test_an_argument_that_only_our_details_hold_is_a_setting(
    compare: Compare, runs: Any, call: Any, tensor: Any, place: str, kind: str, values: tuple[Any, Any], words: str
) -> None:
    result = compare(*runs.both(*(apart(call, tensor, place, kind, value) for value in values)))
    result.stdout.fnmatch_lines([f"settings that differ: Tensor.to.0.forward: {words}"])


@pytest.mark.parametrize(("dtype", "failed"), [("torch.float64", 0), ("torch.int64", 1)])
def test_a_dtype_by_position_is_the_one_by_name(
    compare: Compare, runs: Any, call: Any, tensor: Any, dtype: str, failed: int
) -> None:
    ours = apart(call, tensor, "input.1", "torch.dtype", "torch.float64")
    theirs = {"Tensor.to.0.forward": call(tensor(4), dtype={"type": "torch.dtype", "value": dtype})}
    result = compare(*runs.both(ours, theirs))
    result.assert_outcomes(passed=1 - failed, failed=failed)


@pytest.mark.parametrize("ours", [value("npu:0"), {}])
def test_a_device_by_its_name_is_no_setting(compare: Compare, runs: Any, call: Any, tensor: Any, ours: Any) -> None:
    details = {} if ours else {"details": {"input.1": {"type": "torch.device", "value": "npu:0"}}}
    target = {"Tensor.to.0.forward": call(tensor(4), ours) | details}
    golden = {"Tensor.to.0.forward": call(tensor(4), value("cuda"))}
    compare(*runs.both(target, golden)).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("kind", "values"),
    [("torch.dtype", ("torch.bfloat16", "torch.float32")), ("torch.device", ("cuda:0", "cpu"))],
)
def test_a_positional_precision_or_device_is_no_setting(
    compare: Compare, runs: Any, call: Any, tensor: Any, kind: str, values: tuple[str, str]
) -> None:
    result = compare(*runs.both(*(apart(call, tensor, "input.1", kind, value) for value in values)))
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*settings that differ*")


@pytest.mark.parametrize(("weight", "passed"), [("torch.float64", 2), ("torch.float32", 1)])
def test_a_dtype_that_a_whole_run_is_in_is_no_setting(
    compare: Compare, runs: Any, call: Any, tensor: Any, weight: str, passed: int
) -> None:
    sides = []
    for dtype, of_weight in (("torch.float32", "torch.float32"), ("torch.float64", weight)):
        linear = call(tensor(4, dtype=dtype), tensor(4, dtype=of_weight, requires_grad=True))
        sides.append(apart(call, tensor, "input.1", "torch.dtype", dtype) | {"Functional.linear.0.forward": linear})
    compare(*runs.both(*sides)).assert_outcomes(passed=passed, failed=2 - passed)


def test_a_named_precision_is_no_setting(compare: Compare, runs: Any, call: Any, tensor: Any) -> None:
    sides = [
        {"Torch.sum.0.forward": call(tensor(4), dtype={"type": "torch.dtype", "value": dtype})}
        for dtype in ("torch.float16", "torch.float32")
    ]
    compare(*runs.both(*sides)).assert_outcomes(passed=1)


def test_nothing_is_said_of_a_dtype_that_one_run_alone_recorded(
    compare: Compare, runs: Any, call: Any, tensor: Any
) -> None:
    ours = apart(call, tensor, "input.1", "torch.dtype", "torch.float64")
    theirs = {"Tensor.to.0.forward": call(tensor(4), {})}
    for sides in ((ours, theirs), (theirs, ours)):
        compare(*runs.both(*sides)).assert_outcomes(passed=1)


def test_a_number_that_drifts_with_what_came_before_is_no_setting(
    compare: Compare, runs: Any, call: Any, tensor: Any
) -> None:
    sides = [layers(call, tensor, shift, value(0.123456789 * (1 + 3 * shift))) for shift in (1e-3, 0.0)]
    compare(*runs.both(*sides)).stdout.no_fnmatch_line("*settings that differ*")


@pytest.mark.parametrize("kind", [int, float])
def test_a_number_that_a_call_returned_is_no_setting(
    compare: Compare, runs: Any, call: Any, tensor: Any, kind: type
) -> None:
    sides = []
    for count in (8, 5):
        made = tensor(Max=float(count), Min=float(count), Mean=float(count), Norm=float(count))
        counted = {"Tensor.sum.0.forward": call(tensor(9, Max=float(count)), out=made)}
        sides.append(counted | layers(call, tensor, 0.0, value(kind(count))))
    compare(*runs.both(*sides)).stdout.no_fnmatch_line("*settings that differ*")


def test_the_headline_names_a_weight_and_not_the_call_that_reads_it(
    compare: Compare, runs: Any, call: Any, tensor: Any
) -> None:
    def moved(top: float) -> Any:
        weight = tensor(4, 4, Max=top, requires_grad=True)
        module = call(tensor(4, 4), out=tensor(4, 4)) | {"parameters": {"weight": weight}}
        return {"Tensor.to.15.forward": call(weight), "Module.mlp.up_proj.Linear.forward.0": module}

    result = compare(*runs.both(moved(1.001), moved(1.0), level="mix"))
    line = "first forward culprit: weight mlp.up_proj.weight differs (*); first read by Tensor.to.15.forward"
    result.stdout.fnmatch_lines([line])


def test_data_that_no_call_computed_is_another_input(compare: Compare, runs: Any, call: Any, tensor: Any) -> None:
    target, golden = ({"Torch.exp.0.forward": call(tensor(4, 4, Max=top))} for top in (1.5, 1.0))
    line = "first forward culprit: the runs were given other inputs: Torch.exp.0.forward input.0 (*)"
    compare(*runs.both(target, golden)).stdout.fnmatch_lines([line])


def test_what_a_call_before_computed_is_no_other_input(compare: Compare, runs: Any, call: Any, tensor: Any) -> None:
    made, changed = tensor(4, 4, Max=2.0), tensor(4, 4, Max=2.5)
    first = {"Torch.exp.0.forward": call(tensor(4, 4), out=made)}
    sides = [first | {"Torch.tanh.0.forward": call(read, out=read)} for read in (changed, made)]
    compare(*runs.both(*sides)).stdout.no_fnmatch_line("*other inputs*")


def test_records_before_the_first_culprit_are_read_once(
    compare: Compare, runs: Any, call: Any, tensor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = list[str]()

    def counted(dump: Any, record: str) -> Any:
        read.append(record)
        return read_values(dump, record)

    monkeypatch.setattr(given_values, "read_values", counted)
    sides = [
        {"Torch.exp.0.forward": call(tensor(4)), "Torch.stack.0.forward": call(*[tensor(4, Max=top)] * 5)}
        for top in (1.5, 1.25)
    ]
    compare(*runs.both(*sides)).stdout.fnmatch_lines(["first forward culprit: the runs were given other inputs: *"])
    assert read == ["Torch.exp.0.forward"]


def test_sizes_that_follow_from_another_choice_are_no_settings(
    compare: Compare, runs: Any, call: Any, tensor: Any
) -> None:
    sides = []
    for mean, sizes in ((1.5, [17, 15]), (1.25, [16, 16])):
        choice = tensor(32, dtype="torch.int64", Mean=mean)
        split = call(tensor(32), value(sizes), out=tensor(16))
        sides.append({"Tensor.argmax.0.forward": call(tensor(32, 4), out=choice), "Torch.split.0.forward": split})
    compare(*runs.both(*sides)).stdout.no_fnmatch_line("*settings that differ*")


def test_a_gradient_behind_a_backward_culprit_is_no_other_input(
    compare: Compare, runs: Any, call: Any, tensor: Any
) -> None:
    sides = [
        {
            "Functional.gelu.0.forward": call(tensor(4)),
            "Functional.gelu.0.backward": {"input": [tensor(4, Max=1.1)], "output": [tensor(4, Max=top)]},
            "Tensor.lerp_.0.forward": call(tensor(4), tensor(4, Max=2 * top), out=tensor(4, Max=2 * top)),
        }
        for top in (1.5, 1.25)
    ]
    result = compare(*runs.both(*sides))
    result.stdout.fnmatch_lines(["first forward culprit: Tensor.lerp_.0.forward *"])
    result.stdout.no_fnmatch_line("*other inputs*")


@pytest.mark.parametrize("record", ["Functional.gelu.0.backward", "Module.mlp.Linear.parameters_grad"])
def test_a_gradient_that_arrived_in_one_run_alone_is_no_other_input(
    compare: Compare, runs: Any, call: Any, tensor: Any, record: str
) -> None:
    sides = []
    for top in (1.5, 1.25):
        gradient = tensor(4, Max=top)
        lerp = {"Tensor.lerp_.0.forward": call(tensor(4), gradient, out=tensor(4, Max=2 * top))}
        made = {"weight": [gradient]} if "parameters" in record else {"input": [gradient], "output": [tensor(4)]}
        sides.append({record: made} | lerp if top == 1.5 else lerp)
    result = compare(*runs.both(*sides, level="mix"))
    result.stdout.fnmatch_lines(["first forward culprit: Tensor.lerp_.0.forward *"])
    result.stdout.no_fnmatch_line("*other inputs*")
