"""MindSpore's operators: recorded from the table of samples, and judged as any dump."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import mindspore
import pytest
import torch

from msprobe_hooks.dump.reader import read_dump
from msprobe_hooks.dump.recording_paths import find_dumps
from msprobe_hooks.extensions.mindspore.apis import functions
from pytest_msprobe import check_dump
from pytest_msprobe.commands.main import main
from pytest_msprobe.devices.sim import SimDevice
from pytest_msprobe.engine.frameworks import framework_named
from pytest_msprobe.extensions.operators.database import Operator, Sample, find_operators
from pytest_msprobe.extensions.operators.recorder import record_operators
from pytest_msprobe.extensions.operators.sweep import Sweep, Task
from pytest_msprobe.results.result import DirectionResult
from tests.mindspore.checking import check, setup_with

#: Where MindSpore has what a record names by the first part.
PLACES = {
    "Functional": "mindspore.ops",
    "Mint": "mindspore.mint",
    "MintFunctional": "mindspore.mint.nn.functional",
    "Tensor": "mindspore.Tensor",
    "Distributed": "mindspore.communication.comm_func",
    "MintDistributed": "mindspore.mint.distributed",
}
#: MindSpore 2.10 on a CPU, in every dtype: see the defects in docs/mindspore.md.
WRONG = {
    *(f"{type_}.{name}.forward" for type_ in ("Mint", "Functional", "Tensor") for name in ("fmod", "remainder")),
    *(f"{type_}.{name}" for type_ in ("Functional", "Tensor") for name in ("nextafter.forward", "real.backward")),
    "Functional.selu.backward",
    "Primitive.SeLU.SeLU.backward",
    *(f"Tensor.{name}.forward" for name in ("add_", "sub_", "div_")),
}
#: The names of about a tenth of the operators begin so, of each kind some.
TENTH = ("mint.a[d-t]*", "mint.nn.functional.s*", "ops.[bl]*", "ops.Re*", "Tensor.[mn]*")
#: One that has an inverse.
MATRIX = torch.tensor([[4.0, 1.0], [1.0, 3.0]], requires_grad=True)
#: In float64 many kernels of a CPU compute in float32.
DTYPES = ("float32", "float16", "bfloat16", "int32", "int64", "bool")


def operator(name: str, *samples: Sample, dtypes: Iterable[str] = ("float32",)) -> Operator:
    function: Any = mindspore
    for attribute in name.split(".")[1:]:
        function = getattr(function, attribute)
    return Operator(name, function, lambda dtype: samples, tuple(dtypes))


def weight(*shape: int) -> torch.Tensor:
    return torch.linspace(0.25, 2, torch.Size(shape).numel()).reshape(shape).requires_grad_()


def recorded(folder: Path, *operators: Operator, task: Task = "tensor") -> tuple[Path, Sweep]:
    sweep = record_operators(folder, operators, "float32", task, 4)
    (dump,) = find_dumps(folder)
    return dump, sweep


def swept(folder: Path, patterns: Iterable[str], dtype: str, task: Task) -> tuple[Counter[str], dict[str, str], Sweep]:
    """Record operators of the table and check them; return how they ended, what did not pass, and what was recorded."""
    sweep = record_operators(folder, find_operators([*patterns], [], "mindspore"), dtype, task, 4)
    (dump,) = find_dumps(folder)
    checked = list(check_dump(dump, device="cpu"))
    remarks = {
        f"{kind}.{direction}": f"{one.outcome}: {one.result.reason}"
        for one in checked
        for kind, _, direction in [one.result.record.rsplit(".", 2)]
        if one.outcome != "pass"
    }
    return Counter(one.outcome for one in checked), remarks, sweep


def test_every_function_that_recordings_list_has_samples_or_a_reason_to_have_none() -> None:
    named = {one.name for one in find_operators([], [], "mindspore")}
    recordable = {
        f"{PLACES[type_]}.{name}" for *_, qualified in functions() for type_, _, name in [qualified.partition(".")]
    }
    assert sorted(recordable - named) == []


def test_no_operator_has_both_samples_and_a_reason_to_have_none() -> None:
    operators = find_operators([], [], "mindspore")
    assert {one.name for one in operators if one.why_not} & {one.name for one in operators if not one.why_not} == set()
    # Those of another version of MindSpore may be missing.
    assert not mindspore.__version__.startswith("2.10") or [one for one in operators if "none" in one.why_not] == []


def test_a_call_and_its_gradient_are_recorded_and_judged(tmp_path: Path) -> None:
    dump, sweep = recorded(tmp_path, operator("mindspore.mint.matmul", Sample((weight(4, 6), weight(6, 5)))))
    assert read_dump(dump).api_names == ["Mint.matmul.0.forward", "Mint.matmul.0.backward"]
    assert (sweep.framework, sweep.version) == ("mindspore", mindspore.__version__)
    assert [one.outcome for one in check_dump(dump, device="cpu")] == ["pass", "pass"]


def test_a_primitive_is_recorded_with_what_it_is_made_with(tmp_path: Path) -> None:
    settings = {"transpose_a": False, "transpose_b": True}
    dump, _ = recorded(tmp_path, operator("mindspore.ops.MatMul", Sample((weight(4, 6), weight(5, 6)), settings)))
    record = json.loads(dump.read_text())["data"]["Primitive.MatMul.MatMul.0.forward"]
    assert record["details"]["settings"] == settings
    assert [one.outcome for one in check_dump(dump, device="cpu")] == ["pass", "pass"]


def test_an_operator_without_a_kernel_has_no_record_and_what_mindspore_said(tmp_path: Path) -> None:
    refused = operator("mindspore.mint.add", Sample((weight(2), weight(3))))
    dump, sweep = recorded(tmp_path, refused, operator("mindspore.Tensor.tanh", Sample((weight(5),))))
    assert read_dump(dump).api_names == ["Tensor.tanh.0.forward", "Tensor.tanh.0.backward"]
    ((name, why),) = sweep.left_out()
    assert name == "mindspore.mint.add"
    assert why.startswith("ValueError: ")
    assert str(sweep) == "1 calls of 2 operators in float32, 1 refused by mindspore"


class Faulty(SimDevice):
    """Doubles the last element of each result of one record."""

    name = "faulty"

    def call(self, func, args, kwargs, *, record):  # type: ignore[no-untyped-def]
        result = func(*args, **kwargs)
        if record == "Functional.softmax.0.forward":
            result.detach().flatten()[-1] *= 2
        return result


def test_one_wrong_element_is_found_and_costs_only_its_record(tmp_path: Path) -> None:
    softmax, tanh = (operator(f"mindspore.ops.{name}", Sample((weight(4, 6),))) for name in ("softmax", "tanh"))
    dump, _ = recorded(tmp_path, softmax, tanh)
    outcomes = {one.record: one.verdict.outcome for one in check(dump, setup_with(Faulty()))}
    assert {record for record, outcome in outcomes.items() if outcome == "fail"} == {"Functional.softmax.0.forward"}
    assert len(outcomes) == 4


def judged(folder: Path, name: str, *args: Any, **kwargs: Any) -> dict[str, str]:
    dump, _ = recorded(folder, operator(name, Sample(args, kwargs)))
    results: list[DirectionResult] = list(check(dump, setup_with()))
    return {one.record.rpartition(".")[2]: f"{one.verdict.outcome} {one.verdict.reason}".strip() for one in results}


@pytest.mark.parametrize(
    ("name", "args"),
    [
        # Reciprocals, and no inverse matrices.
        ("ops.inv", (MATRIX,)),
        ("Tensor.inv", (MATRIX,)),
        # Deviations with ddof 0.
        ("ops.std_mean", (weight(5, 6), 1)),
        ("ops.var_mean", (weight(5, 6), 0)),
        ("Tensor.std", (weight(5, 6), 1)),
        ("Tensor.var", (weight(5, 6),)),
        # The first axis, the last axis.
        ("ops.aminmax", (weight(4, 6),)),
        ("ops.softmin", (weight(2, 3, 4),)),
        ("ops.dot", (weight(4, 6), weight(6, 5))),
        ("ops.ldexp", (weight(4), torch.tensor([-2, -1, 0, 3], dtype=torch.int32))),
        ("ops.index_fill", (weight(4, 6), 0, torch.tensor([0, 2], dtype=torch.int32), 0.5)),
        ("ops.expand", (weight(4, 1), torch.tensor([3, 4, 6]))),
    ],
)
def test_what_mindspore_means_by_a_name_of_torch_passes(name: str, args: tuple[Any, ...], tmp_path: Path) -> None:
    assert judged(tmp_path, f"mindspore.{name}", *args) == {"forward": "pass", "backward": "pass"}


def test_counts_are_floats(tmp_path: Path) -> None:
    assert judged(tmp_path, "mindspore.ops.bincount", torch.tensor([3, 1, 3, 0])) == {"forward": "pass"}


@pytest.mark.parametrize(("name", "args"), [("svd", (weight(3, 2),)), ("unique", (torch.tensor([3, 1, 3]),))])
def test_results_whose_order_no_definition_has_are_no_alarm(name: str, args: tuple[Any, ...], tmp_path: Path) -> None:
    framework_named("mindspore")
    assert judged(tmp_path, f"mindspore.ops.{name}", *args)["forward"].startswith("skip")


@pytest.mark.slow
def test_a_run_records_and_checks_what_its_settings_name(
    pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    pytester.makeini("[pytest]")
    settings = (
        "msprobe_operator_framework=mindspore",
        "msprobe_operator_names=mint.tanh ops.Tanh mint.nn.functional.selu",
    )
    words = [word for setting in settings for word in ("-o", setting)]
    done = pytester.runpytest_subprocess("--msprobe-operators=float32", *words, "--msprobe-journal=run.jsonl")
    done.assert_outcomes(passed=16)
    done.stdout.fnmatch_lines(["msprobe: 8 calls of 3 operators in float32, 4 refused by mindspore"])
    capsys.readouterr()
    assert main(["report", "--operators", "run.jsonl"]) == 0
    table = capsys.readouterr().out
    assert "| `Mint.tanh` | float32 | 8 |" in table
    assert (
        "| `mindspore.mint.nn.functional.selu` | float32 | `RuntimeError: The kernel SeLUExt unregistered.` |" in table
    )


@pytest.mark.slow
def test_a_tenth_of_the_operators_has_no_alarm_but_known_defects_and_few_skips(tmp_path: Path) -> None:
    outcomes, remarks, sweep = swept(tmp_path, TENTH, "float32", "tensor")
    assert {record for record, remark in remarks.items() if not remark.startswith("skip")} <= WRONG, remarks
    assert outcomes["skip"] <= 0.01 * outcomes.total(), remarks
    assert sum(one.recorded > 0 for one in sweep.operators.values()) >= 80


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("task", ["tensor", "statistics"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_no_operator_has_an_alarm_but_known_defects_in_any_dtype_and_task(
    tmp_path: Path, dtype: str, task: Task
) -> None:
    outcomes, remarks, sweep = swept(tmp_path, (), dtype, task)
    assert {record for record, remark in remarks.items() if not remark.startswith("skip")} <= WRONG, remarks
    assert outcomes["skip"] <= 0.01 * outcomes.total(), remarks
    least = {"float32": 800, "float16": 750}
    assert sum(one.recorded > 0 for one in sweep.operators.values()) >= least.get(dtype, 50)
