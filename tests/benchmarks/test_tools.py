"""The bench for tools: what each tool says of cases that are made by hand, and the tables of what was said."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from benchmarks.tools import __main__ as command
from benchmarks.tools import msprobe, ours, planted, running, tolerances
from benchmarks.tools.cases import Case, Cases, Planted
from benchmarks.tools.judged import Judged
from benchmarks.tools.report import report
from benchmarks.tools.tool import Tool
from msprobe_hooks import record
from tests.corpus.correct_devices import other_dropout_generator, sequential_products
from tests.corpus.fault import Variant, VariantDevice, variant
from tests.corpus.faults_of_memory import stale_output
from tests.corpus.trials import read_calls

ASSERT_CLOSE, IN_FLOAT64, NUMPY, OP_INFO = tolerances.TOOLS
BY_TENSORS, BY_STATISTICS = ours.TOOLS
IN_PROCESS = (*ours.TOOLS, *tolerances.TOOLS)


def cases_of(program: Callable[[], Any], folder: Path, device: Variant | None, *, is_faulty: bool = True) -> list[Case]:
    """Return the cases that a device makes of what a program calls."""
    torch.manual_seed(0)
    with record(folder, task="tensor", level="L1"):
        program()
    calls = read_calls(sorted(folder.rglob("dump.json")), 9)
    return list(Cases(calls).of(Planted("kind", "name", device, is_faulty)))


def gelu() -> None:
    F.gelu(torch.randn(8, 32, requires_grad=True)).backward(torch.randn(8, 32))


def matmul() -> None:
    torch.matmul(torch.randn(16, 300), torch.randn(300, 16))


def dropout() -> None:
    F.dropout(torch.randn(64, 64), 0.5)


def special_values() -> None:
    torch.sqrt(torch.tensor([-1.0, 4.0]))


def by_name(tools: tuple[Tool, ...]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("tool", tools, ids=lambda tool: tool.name)


@by_name(IN_PROCESS)
@pytest.mark.parametrize("fault", [planted.one_wrong_element, planted.one_wrong_tile, planted.lost_sign])
def test_every_tool_finds_a_wrong_result(tool: Tool, fault: Variant, tmp_path: Path) -> None:
    (case,) = cases_of(gelu, tmp_path, fault)
    assert tool.judge(case) == "wrong"


@by_name(IN_PROCESS)
@pytest.mark.parametrize("fault", [planted.gradient_doubled, planted.element_of_a_gradient_lost])
def test_every_tool_finds_a_gradient_that_alone_is_wrong(tool: Tool, fault: Variant, tmp_path: Path) -> None:
    (case,) = cases_of(gelu, tmp_path, fault)
    torch.testing.assert_close(case.result.outputs, case.on_cpu.outputs if case.on_cpu else [])
    assert tool.judge(case) == "wrong"


def test_a_product_that_is_summed_in_another_order_is_wrong_by_the_defaults_of_numpy_alone(tmp_path: Path) -> None:
    (case,) = cases_of(matmul, tmp_path, sequential_products, is_faulty=False)
    answers = {tool.name: tool.judge(case) for tool in (BY_TENSORS, BY_STATISTICS, OP_INFO, NUMPY)}
    # rtol=1e-7 is less than a rounding of float32, 6e-8 of each of 300 terms.
    assert list(answers.values()) == ["right", "right", "right", "wrong"]


def test_a_mask_of_another_generator_is_right_by_properties_and_wrong_by_values(tmp_path: Path) -> None:
    (case,) = cases_of(dropout, tmp_path, other_dropout_generator, is_faulty=False)
    assert case.draws
    assert [BY_TENSORS.judge(case), ASSERT_CLOSE.judge(case), IN_FLOAT64.judge(case)] == ["right", "wrong", "wrong"]


def test_nan_in_the_right_place_is_wrong_by_the_defaults_of_assert_close(tmp_path: Path) -> None:
    (case,) = cases_of(special_values, tmp_path, None, is_faulty=False)
    assert [BY_TENSORS.judge(case), ASSERT_CLOSE.judge(case), OP_INFO.judge(case)] == ["right", "wrong", "right"]


def test_an_argument_that_only_the_device_overwrote_is_wrong(tmp_path: Path) -> None:
    @variant("relu")
    def overwriting(launch: Any) -> Any:
        result = launch.run().clone()
        launch.args[0].zero_()
        return result

    (case,) = cases_of(lambda: F.relu(torch.randn(9)), tmp_path, overwriting)
    assert [BY_TENSORS.judge(case), ASSERT_CLOSE.judge(case)] == ["wrong", "wrong"]


def test_an_operator_without_an_op_info_is_not_judged_by_its_tolerances(tmp_path: Path) -> None:
    def cell() -> None:
        torch.gru_cell(torch.randn(2, 3), torch.randn(2, 4), torch.randn(12, 3), torch.randn(12, 4))

    (case,) = cases_of(cell, tmp_path, planted.one_wrong_element)
    assert [OP_INFO.judge(case), ASSERT_CLOSE.judge(case)] == ["-", "wrong"]


def test_an_error_that_torch_tolerates_of_an_operator_is_right_by_its_op_info(tmp_path: Path) -> None:
    def transposed() -> None:
        F.conv_transpose2d(torch.randn(1, 2, 5, 5), torch.randn(2, 2, 3, 3))

    # torch's tests allow conv_transpose2d at least 1e-4 in float32, and by default 1e-5 + 1.3e-6 of the value.
    @variant("conv_transpose2d")
    def off(launch: Any) -> Any:
        return launch.run() + 8e-5

    (case,) = cases_of(transposed, tmp_path, off)
    assert [OP_INFO.judge(case), ASSERT_CLOSE.judge(case)] == ["right", "wrong"]


def test_an_operator_of_a_namespace_has_faults_too(tmp_path: Path) -> None:
    fault = next(planted.faults_of("det", "float32"))
    (case,) = cases_of(lambda: torch.linalg.det(torch.randn(3, 3)), tmp_path, fault.variant)
    assert (case.name, ASSERT_CLOSE.judge(case)) == ("Torch.linalg.det.0", "wrong")


def test_a_gradient_that_autograd_knows_to_be_zero_can_be_sent_elsewhere(tmp_path: Path) -> None:
    def sign() -> None:
        torch.sgn(torch.randn(4, requires_grad=True)).backward(torch.ones(4))

    (case,) = cases_of(sign, tmp_path, None, is_faulty=False)
    (gradient,) = case.result.gradients.values()
    assert gradient is not None
    assert not gradient._is_zerotensor()


def test_results_that_are_equal_bit_for_bit_make_no_case(tmp_path: Path) -> None:
    assert cases_of(gelu, tmp_path, variant("gelu")(lambda launch: launch.run())) == []


def test_a_device_of_a_case_remembers_what_came_before(tmp_path: Path) -> None:
    def twice() -> None:
        for _ in range(9):
            torch.exp(torch.randn(4))

    cases = cases_of(twice, tmp_path, stale_output)
    assert cases
    for case in cases:
        device: VariantDevice = case.device()
        (x,) = case.trial.subject.arguments.args
        again = device.call(torch.exp, [x], {}, record=f"{case.name}.forward")
        assert torch.equal(again, case.result.outputs[0])
        assert not torch.equal(again, x.exp())


@pytest.mark.slow
@pytest.mark.parametrize("version", msprobe.ENVIRONMENTS)
def test_msprobe_finds_a_wrong_element_and_lets_the_cpu_pass(version: str, tmp_path: Path) -> None:
    if version in msprobe.missing():
        pytest.skip(f"no environment with {version}")
    (wrong,) = cases_of(gelu, tmp_path / "wrong", planted.one_wrong_element)
    (gradient,) = cases_of(gelu, tmp_path / "gradient", planted.gradient_doubled)
    (right,) = cases_of(gelu, tmp_path / "right", None, is_faulty=False)
    with contextlib.closing(msprobe.Peer(msprobe.ENVIRONMENTS[version])) as peer:
        assert [peer.judge(case) for case in (wrong, gradient, right)] == ["wrong", "wrong", "right"]


def tool_named(name: str) -> Tool:
    return Tool(name, "everything", lambda case: "right")


def judged(name: str, *answers: str, is_faulty: bool = True, calls: tuple[str, ...] = ("a", "b")) -> Judged:
    return Judged("kind", name, is_faulty, list(calls), [False, True], {"first": list(answers)})


def test_a_table_counts_faults_by_device_and_accusations_by_call() -> None:
    devices = [
        judged("found", "right", "wrong"),
        judged("found where the right device is accused too", "wrong", "right"),
        judged("missed", "right", "-"),
        judged("right", "wrong", "warning", is_faulty=False),
        Judged("kind", "not shown", True, [], [], {"first": []}),
    ]
    header, _, row, warned, *_ = report(devices, [tool_named("first")], ["second"]).splitlines()
    assert header.startswith("| tool | faults found of 3 | of these by a call of which it accuses no right device |")
    assert row == "| first | 2 (66.7 %) | 1 | 1 | 1 | 0 | everything |"
    assert warned == "| first, warnings counted | 2 (66.7 %) | 0 | 1 | 1 | 1 | everything |"


def test_a_tool_that_is_not_installed_has_a_row() -> None:
    text = report([judged("found", "wrong", "wrong")], [tool_named("first")], ["msprobe 1.2.2"])
    assert "| msprobe 1.2.2 | not installed |" in text


def test_a_run_goes_on_where_one_of_the_same_code_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "JOURNAL", tmp_path / "journal.jsonl")
    header = {"torch": "2", "tools": ["first"], "code": "a"}
    assert command.begin(header) == {}
    with command.JOURNAL.open("a") as journal:
        journal.write(json.dumps([7, judged("found", "wrong", "wrong")]) + "\n[8, [")
    assert [Judged(*each).name for each in command.begin(header).values()] == ["found"]
    assert command.JOURNAL.read_text().count("\n") == len(command.JOURNAL.read_text().splitlines()) == 2
    assert command.begin({**header, "code": "b"}) == {}


def test_a_tool_of_ones_own_is_named_by_its_module() -> None:
    tools = running.measured_tools(["benchmarks.tools.tolerances:TOOLS"])
    assert tools[-1] is tolerances.TOOLS  # type: ignore[comparison-overlap]


def test_every_planted_fault_counts_in_one_kind() -> None:
    faults = list(planted.faults())
    assert len({fault.name for fault in faults}) == len(faults) > 200
    assert all(fault.is_faulty for fault in faults)
    assert not any(device.is_faulty for device in planted.right_devices())
