"""Tests generated for the inputs that a failure was seen with: explored and shrunk, or saved as a case."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from pytest_msprobe.commands.main import main
from pytest_msprobe.engine.values.tensor_text import PlainTensor, plain_tensor, tensor_of
from tests.support.conftests import device_after_each_call
from tests.support.dumps.dump_files import Json

# Only elements beyond any that is recorded are wrong.
WRONG_BEYOND = device_after_each_call(
    "if record == 'Torch.exp.0.forward': result = torch.where(args[0] > 1.5, result * 1.5, result)"
)
ALWAYS_WRONG = device_after_each_call("if record == 'Torch.exp.0.forward': result = result * 1.5")


@pytest.fixture
def exp(write_dump: Callable[..., Path], forward: Json, element: Json) -> Path:
    """Write a dump with one call, of more elements than a module spells."""
    return write_dump({"Torch.exp.0.forward": forward(element(16, 16))})


def run(pytester: pytest.Pytester, dump: Path, conftest: str, *words: str) -> None:
    pytester.makeconftest(conftest)
    pytester.runpytest_inprocess(f"--msprobe-dump={dump}", "--msprobe-device=faulty", *words).assert_outcomes(failed=1)


def test_an_explored_failure_becomes_a_test_of_its_smallest_input(pytester: pytest.Pytester, exp: Path) -> None:
    run(pytester, exp, WRONG_BEYOND, "--msprobe-explore=60", "--msprobe-journal=run.jsonl")
    assert main(["generate", str(exp), "--failed", "run.jsonl", "-o", "made", "--no-run"]) == 0
    text = (pytester.path / "made" / "test_torch_exp_0_forward.py").read_text()
    assert text.startswith('"""torch.exp on the smallest input that exploring found to fail: Torch.exp.0.forward.\n')
    assert 'inputs={"args.0": torch.tensor([[2.0]], dtype=torch.float32)}' in text
    result = pytester.runpytest_inprocess("made", "--msprobe-device=faulty")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*output.0 torch.float32 (1, 1): fail by *"])


def test_other_inputs_are_drawn_where_a_seed_asks_for_them(pytester: pytest.Pytester, exp: Path) -> None:
    run(pytester, exp, WRONG_BEYOND, "--msprobe-explore=60", "--msprobe-journal=run.jsonl")
    assert main(["generate", str(exp), "--failed", "run.jsonl", "-o", "made", "--no-run", "--seed", "7"]) == 0
    assert "inputs=" not in (pytester.path / "made" / "test_torch_exp.py").read_text()


def test_a_saved_case_becomes_a_test_of_its_input(pytester: pytest.Pytester, exp: Path) -> None:
    run(pytester, exp, ALWAYS_WRONG, "--msprobe-save-failures=failures", "--msprobe-seed=5")
    exp.unlink()
    assert main(["generate", "failures", "-o", "made", "--no-run"]) == 0
    (module,) = (pytester.path / "made").glob("test_torch_exp_0_forward_*.py")
    assert "SEED = 5" in module.read_text()
    (file,) = (pytester.path / "made" / "tensors").iterdir()
    assert torch.load(file, weights_only=True).shape == (16, 16)
    pytester.runpytest_inprocess("made", "--msprobe-device=faulty").assert_outcomes(failed=1)
    pytester.runpytest_inprocess("made", "--msprobe-device=sim").assert_outcomes(passed=1)


@pytest.mark.parametrize("words", [("--seed", "1"), ("-k", "exp"), ("--failed", "run.jsonl"), ("--iterations", "2")])
def test_a_saved_case_takes_no_option_that_chooses_records_or_inputs(
    pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str], words: tuple[str, str]
) -> None:
    (pytester.path / "case.json").write_text("{}")
    assert main(["generate", str(pytester.path / "case.json"), *words]) == 2
    assert f"{words[0]}: not for saved cases, which have their own inputs" in capsys.readouterr().err


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor([[1.5, -0.0], [float("nan"), float("inf")]], dtype=torch.bfloat16),
        torch.arange(6).view(2, 3).t(),
        torch.tensor([True, False]),
        torch.tensor(1 + 2j),
        torch.empty(0, 3),
    ],
    ids=lambda tensor: str(tensor.dtype),
)
def test_a_tensor_in_a_journal_comes_back_as_it_was(tensor: torch.Tensor) -> None:
    back = tensor_of(plain_tensor(tensor))
    assert (back.dtype, back.shape, back.stride()) == (tensor.dtype, tensor.shape, tensor.stride())
    torch.testing.assert_close(back, tensor, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    "plain",
    [
        PlainTensor("torch.float32", (3,), (1,), "AAAA"),
        PlainTensor("torch.float32", (1,), (1, 1), "AAAAAA=="),
        PlainTensor("torch.float32", (1,), (-1,), "AAAAAA=="),
        PlainTensor("torch.float32", (1,), (1,), "no base64!"),
    ],
    ids=["too-few-bytes", "other-strides", "negative-strides", "no-base64"],
)
def test_what_is_no_tensor_in_a_journal_is_a_value_error(plain: PlainTensor) -> None:
    with pytest.raises(ValueError, match=r"."):
        tensor_of(plain)


def test_cases_that_are_called_alike_become_tests_of_their_own(pytester: pytest.Pytester, exp: Path) -> None:
    run(pytester, exp, ALWAYS_WRONG, "--msprobe-save-failures=all/one")
    shutil.copytree("all/one", "all/two")
    assert main(["generate", "all", "-o", "made", "--no-run"]) == 0
    assert len([*(pytester.path / "made").glob("test_torch_exp_0_forward_*.py")]) == 2
