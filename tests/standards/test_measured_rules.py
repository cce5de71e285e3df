"""Rules with limits that were measured: they leave an allowance, and what hides below them is known."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from msprobe_standards import Policy, Standard, judge
from msprobe_standards.policy_files import measured_file, measured_rules

LINES = measured_file("mindspore-cpu").read_text().splitlines()[2:]
DEFAULT = Policy.load("default")


def on_mindspore_cpu(api: str, dtype: torch.dtype, *, backward: bool = False) -> Standard:
    return DEFAULT.select(api, output_dtype=dtype, framework="mindspore", device="cpu", backward=backward)


@pytest.mark.parametrize("line", LINES)
def test_each_limit_is_at_least_eight_times_and_at_most_sixteen_times_what_was_measured(line: str) -> None:
    limit, measured = float(re.findall(r"max_ulp: (\d+)", line)[0]), float(line.rpartition("#")[2])
    least = 8 if "output: [float32]" in line else 4
    assert 8 * measured <= limit <= max(16 * measured, least)


@pytest.mark.parametrize(
    ("api", "fault"),
    [
        ("softmax", lambda x: torch.softmax(x.half(), -1).float()),
        ("silu", lambda x: torch.nn.functional.silu(x.half()).float()),
        ("log", lambda x: torch.log(x.abs() + 1e-4)),
        ("erf", lambda x: torch.erf(x) + 2e-5),
        ("sigmoid", lambda x: torch.sigmoid(x) * 1.0002),
    ],
)
def test_a_fault_that_is_larger_than_what_a_kernel_errs_by_is_found(api: str, fault: object) -> None:
    x = torch.randn(64, 32, generator=torch.Generator().manual_seed(0))
    golden = {
        "softmax": lambda x: torch.softmax(x, -1),
        "silu": torch.nn.functional.silu,
        "log": lambda x: torch.log(x.abs()),
        "erf": torch.erf,
        "sigmoid": torch.sigmoid,
    }[api]
    by = on_mindspore_cpu(api, torch.float32)
    assert judge(golden(x), golden(x.double()), standard=by).outcome == "pass"
    assert judge(fault(x), golden(x.double()), standard=by).outcome == "fail"  # type: ignore[operator]


def test_a_gradient_of_a_logarithm_that_is_off_by_two_hundred_thousandths_is_found() -> None:
    x = torch.rand(1000, generator=torch.Generator().manual_seed(0)) + 0.5
    by = on_mindspore_cpu("log", torch.float32, backward=True).for_gradients(lambda: 0.5)
    assert judge(1 / x, 1 / x.double(), standard=by).outcome == "pass"
    assert judge(1.00002 / x, 1 / x.double(), standard=by).outcome == "fail"


def test_where_a_function_is_flat_its_gradient_is_related_to_the_gradients_that_arrive() -> None:
    x = torch.linspace(9, 12, 50, dtype=torch.float64)
    golden = 1 - x.tanh().square()
    kernel = (golden + 1e-5).float()
    by = on_mindspore_cpu("tanh", torch.float32, backward=True)
    assert judge(kernel, golden, standard=by).outcome == "fail"
    assert judge(kernel, golden, standard=by.for_gradients(lambda: 1.0)).outcome == "pass"
    assert judge(kernel, golden, standard=by.for_gradients(lambda: 1e-6)).outcome == "fail"


def test_an_unknown_list_of_measured_rules_is_refused_with_those_there_are(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("rules:\n- {measured: no-such}\n")
    with pytest.raises(ValueError, match=rf"rules\[0\]: measured: .*no-such.*known: {', '.join(measured_rules())}"):
        Policy.load(path)


def test_the_rules_hold_on_mindspores_cpu_alone() -> None:
    for device, framework in (("npu", "mindspore"), ("cpu", "pytorch")):
        rule = DEFAULT.select("tanh", output_dtype=torch.float32, framework=framework, device=device)
        assert rule.bounds(torch.float32).ulp <= 8
