"""Dumps checked on cards that torch takes for another device's."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.dumps.dump_files import Json, forward, tensor, value
from tests.support.npu.process import run_command, run_script
from tests.support.runs import Checked

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples/check_a_dump/dump.json"

Check = Callable[..., Checked]
Write = Callable[..., Path]


def calls(*names: str) -> Json:
    """Return a dump of functions of one tensor, each called once."""
    x = tensor(4, 8, low=0.1, high=1.0)
    return {f"Torch.{name}.0.forward": forward(x) for name in names}


def test_a_recorded_step_of_a_model_is_checked_on_the_card_which_auto_takes(check_on_npu: Check) -> None:
    checked = check_on_npu(f"--msprobe-dump={EXAMPLE}", "--msprobe-device=auto")
    assert checked.exit_code == 0
    assert len(checked.cases) == 362
    assert "npu:0 Ascend910B1" in checked.output


@pytest.mark.parametrize("how", [["-n", "auto"], ["--msprobe-isolate"]], ids=" ".join)
def test_what_torch_offers_for_any_accelerator_is_enough_for_a_recorded_step(
    check_on_npu: Check, pytester: pytest.Pytester, how: list[str]
) -> None:
    pytester.makeconftest(
        """
        def pytest_msprobe_register_devices(registry):
            from pytest_msprobe.devices.accelerator import Accelerator

            registry.add(Accelerator("npu"))
        """
    )
    checked = check_on_npu(f"--msprobe-dump={EXAMPLE}", *how)
    assert checked.exit_code == 0
    assert [*checked.outcomes.values()].count("passed") == 362
    assert "npu:0 Ascend910B1" in checked.output
    assert "HF32 conv on" in checked.output


def test_what_a_card_does_wrong_is_reported_call_by_call(
    check_on_npu: Check, write_dump: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = "exp=missing,sin=fails,cos=out-of-memory,tanh=wrong"
    monkeypatch.setenv("SIMULATED_CANN_FAULTS", faults)
    checked = check_on_npu(f"--msprobe-dump={write_dump(calls('exp', 'sin', 'cos', 'tanh', 'sqrt'))}")
    expected = {
        "exp": ("skipped", "does not implement this API"),
        "sin": ("failed", "raises on the device, but not on the CPU: RuntimeError: call aclnnSin failed"),
        "cos": ("failed", "memory ran out: OutOfMemoryError: NPU out of memory"),
        "tanh": ("failed", "1 of 32 elements wrong"),
        "sqrt": ("passed", ""),
    }
    for name, (outcome, text) in expected.items():
        case = checked.cases[f"Torch.{name}.0.forward"]
        assert case.outcome == outcome
        assert text in case.text


@pytest.mark.nightly
def test_the_smallest_input_that_fails_is_a_program_that_fails_on_the_card(
    check_on_npu: Check, write_dump: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIMULATED_CANN_FAULTS", "tanh=wrong")
    checked = check_on_npu(f"--msprobe-dump={write_dump(calls('tanh'))}", "--msprobe-explore=3")
    text = checked.cases["Torch.tanh.0.forward"].text
    program = "\n".join(line[4:] for line in text.splitlines() if line.startswith("    "))
    wrong = re.search(r"^# wrong: output.0 is (.*)$", program, re.MULTILINE)
    assert wrong
    printed = run_script(f"{program}\nprint(result.device, result.tolist())").splitlines()
    assert printed[-1] == f"npu:0 {wrong[1]}"


def test_a_card_that_dies_costs_the_call_that_ran_and_no_other(
    check_on_npu: Check, write_dump: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIMULATED_CANN_FAULTS", "sin=loses-card,cos=kills,tanh=hangs")
    dump = write_dump(calls("sin", "exp", "cos", "sqrt", "tanh", "relu"))
    checked = check_on_npu(f"--msprobe-dump={dump}", "--msprobe-isolate", "--msprobe-timeout=10")
    assert checked.wrong == {"Torch.sin.0.forward", "Torch.cos.0.forward", "Torch.tanh.0.forward"}
    assert "Afterwards, device npu:0 no longer works" in checked.output
    assert "1 crash, 1 timeout" in checked.output


def test_an_error_that_comes_up_where_the_card_is_waited_for_is_that_of_the_record_that_made_it(
    check_on_npu: Check, write_dump: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIMULATED_CANN_FAULTS", "mm=fails-later,sin=fails-later,bmm=slow")
    monkeypatch.setenv("SIMULATED_CANN_SLOW", "0.1")
    batch = tensor(2, 256, 256)
    products = {
        "Torch.mm.0.forward": forward(tensor(256, 128), tensor(128, 256), output=[tensor(256, 256)]),
        "Torch.bmm.0.forward": forward(batch, batch),
    }
    checked = check_on_npu(f"--msprobe-dump={write_dump(products | calls('sin', 'exp'))}")
    assert checked.wrong == {"Torch.mm.0.forward", "Torch.sin.0.forward"}
    for name in ("mm", "sin"):
        text = checked.cases[f"Torch.{name}.0.forward"].text
        assert "error code is 507015" in text
        assert f"EZ9999: kernel aten::{name}" in text


@pytest.mark.nightly
def test_each_worker_has_a_card_of_those_that_are_visible(
    check_on_npu: Check, write_dump: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIMULATED_CANN_CARDS", "4")
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "1,3")
    checked = check_on_npu(f"--msprobe-dump={write_dump(calls('exp', 'sin', 'cos', 'tanh'))}", "-n", "auto")
    assert set(checked.outcomes.values()) == {"passed"}
    assert "npu:0 Ascend910B1" in checked.output
    assert "npu:1 Ascend910B1" in checked.output


CONVOLUTION = {
    "Functional.conv2d.0.forward": forward(
        tensor(2, 3, 8, 8), tensor(4, 3, 3, 3), value(None), output=[tensor(2, 4, 6, 6)]
    )
}


@pytest.mark.nightly
def test_a_convolution_in_hf32_passes_as_such_and_fails_by_its_dtype(check_on_npu: Check, write_dump: Write) -> None:
    dump = write_dump(CONVOLUTION)
    by_mode = check_on_npu(f"--msprobe-dump={dump}")
    assert by_mode.exit_code == 0
    assert "HF32 conv on, jit compile off" in by_mode.output
    assert "1 judged under HF32, as the device says" in by_mode.output
    by_dtype = check_on_npu(f"--msprobe-dump={dump}", "--msprobe-math-mode=strict")
    assert by_dtype.wrong == set(CONVOLUTION)


@pytest.mark.nightly
def test_a_conftest_sets_the_modes_of_the_training(
    check_on_npu: Check, write_dump: Write, pytester: pytest.Pytester
) -> None:
    pytester.makeconftest(
        """
        import torch, torch_npu
        torch.npu.set_compile_mode(jit_compile=True)
        torch.npu.config.allow_internal_format = False
        torch.npu.conv.allow_hf32 = False
        """
    )
    checked = check_on_npu(f"--msprobe-dump={write_dump(CONVOLUTION)}", "--msprobe-math-mode=strict")
    assert checked.exit_code == 0
    assert "HF32 conv off, jit compile on" in checked.output


@pytest.mark.nightly
def test_a_failing_call_is_saved_and_judged_again_and_what_the_card_errs_by_measures_another(
    check_on_npu: Check, write_dump: Write, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIMULATED_CANN_FAULTS", "tanh=wrong")
    dump = write_dump(calls("tanh", "exp"))
    check_on_npu(f"--msprobe-dump={dump}", "--msprobe-save-failures=cases", "--msprobe-save-baseline=card.jsonl")
    [case] = (folder for folder in (pytester.path / "cases").iterdir() if folder.is_dir())
    replayed = run_command("replay", case, "--device", "npu:1")
    assert replayed.returncode == 1
    assert "on npu:1 Ascend910B1" in replayed.stdout
    assert "1 of 32 elements wrong" in replayed.stdout
    judged = check_on_npu(f"--msprobe-dump={dump}", "--msprobe-baseline=card.jsonl", "--msprobe-device=npu:1")
    assert judged.exit_code == 0
    assert "card.jsonl: 2 records on npu:0 Ascend910B1" in judged.output
    assert "1 of its records were wrong there; such errors count as normal here" in judged.output


@pytest.mark.nightly
def test_what_the_cpu_computed_for_the_card_is_reported_for_every_record_that_used_it(
    check_on_npu: Check, write_dump: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch_npu 2.13 has no kernel of these two, and leaves them to the CPU; one is in the gradient of the other."""
    monkeypatch.setenv("SIMULATED_CANN_FAULTS", "mul=wrong")
    x = tensor(4, 8, low=0.1, high=1.0, requires_grad=True)
    records = {f"Torch.{name}.{i}.forward": forward(x) for name in ("lgamma", "digamma", "sin") for i in (0, 1)}
    gradient = {"Torch.lgamma.0.backward": {"input": [x], "output": [x]}}
    checked = check_on_npu(f"--msprobe-dump={write_dump(records | gradient)}")
    assert checked.wrong == {*gradient}
    assert "The card has no aten::digamma.out: computed by the CPU." in checked.cases["Torch.lgamma.0.backward"].text
    assert "2 passed with weak evidence: the card has no aten::lgamma.out: computed by the CPU" in checked.output
    assert "2 passed with weak evidence: the card has no aten::digamma.out: computed by the CPU" in checked.output
    for i in (0, 1):
        properties = checked.cases[f"Torch.digamma.{i}.forward"].properties
        assert properties["msprobe.little_judged"] == "the card has no aten::digamma.out: computed by the CPU"
        assert "msprobe.little_judged" not in checked.cases[f"Torch.sin.{i}.forward"].properties
