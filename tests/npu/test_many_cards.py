"""One dump on several cards of a machine, and what comes after a card is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import runs
from tests.support.dumps.dump_files import forward, tensor
from tests.support.runs import Checked

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("cards")]

Write = Callable[..., Path]

EXAMPLE = Path(__file__).parents[2] / "examples/check_a_dump/dump.json"


def check(pytester: pytest.Pytester, *arguments: str | Path) -> Checked:
    """Run pytest with these arguments in a process of its own."""
    return runs.check(pytester, *arguments, apart=True)


@pytest.mark.nightly
def test_eight_cards_check_the_example_with_a_worker_each(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIMULATED_CANN_CARDS", "8")
    checked = check(pytester, f"--msprobe-dump={EXAMPLE}", "--msprobe-device=npu:0-7", "-n", "8")
    assert checked.exit_code == 0
    assert len(checked.cases) == 362
    for card in range(8):
        assert f"npu:{card} " in checked.output


@pytest.mark.nightly
def test_two_of_eight_cards_are_used_and_no_other(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMULATED_CANN_CARDS", "8")
    checked = check(pytester, f"--msprobe-dump={EXAMPLE}", "--msprobe-device=npu:3,6", "-n", "2")
    assert checked.exit_code == 0
    used = {card for card in range(8) if f"npu:{card} " in checked.output}
    assert used == {3, 6}


@pytest.mark.nightly
def test_each_card_checks_everything_and_the_odd_one_is_named(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, write_dump: Write
) -> None:
    monkeypatch.setenv("SIMULATED_CANN_FAULTS", "tanh@1=wrong")
    x = tensor(4, 8, low=0.1, high=1.0)
    dump = write_dump({f"Torch.{name}.0.forward": forward(x) for name in ("exp", "tanh", "sin")})
    result = runs.run_pytest(
        pytester, f"--msprobe-dump={dump}", "--msprobe-device=npu:0-1", "-n", "2", "--dist", "each", apart=True
    )
    result.assert_outcomes(passed=5, failed=1)
    result.stdout.fnmatch_lines(["*Torch.tanh.0.forward is wrong on npu:1*"])


@pytest.mark.nightly
def test_a_run_that_lost_its_card_is_resumed_on_another(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, write_dump: Write
) -> None:
    x = tensor(4, 8, low=0.1, high=1.0)
    dump = write_dump({f"Torch.{name}.0.forward": forward(x) for name in ("exp", "tanh", "sin", "cos")})
    monkeypatch.setenv("SIMULATED_CANN_FAULTS", "tanh@0=loses-card")
    arguments = (f"--msprobe-dump={dump}", "--msprobe-isolate", "--msprobe-journal=run.jsonl")
    lost = check(pytester, *arguments, "--msprobe-device=npu:0")
    assert lost.exit_code == 1
    assert "Torch.tanh.0.forward" in lost.wrong
    resumed = check(
        pytester, f"--msprobe-dump={dump}", "--msprobe-resume=run.jsonl", "--msprobe-device=npu:1", "--msprobe-isolate"
    )
    assert set(resumed.cases) == {f"Torch.{name}.0.forward" for name in ("exp", "tanh", "sin", "cos")}
    assert "Torch.exp.0.forward" not in resumed.wrong


@pytest.mark.nightly
def test_a_card_is_judged_by_the_cpu_of_another_process(pytester: pytest.Pytester, write_dump: Write) -> None:
    x = tensor(4, 8, low=0.1, high=1.0)
    dump = write_dump({f"Torch.{name}.0.forward": forward(x) for name in ("exp", "tanh")})
    checked = check(
        pytester,
        f"--msprobe-dump={dump}",
        "--msprobe-device=npu",
        "--msprobe-baseline=remote:popen//device=cpu",
    )
    assert checked.exit_code == 0
    assert "baseline remote:popen//device=cpu" in checked.output


@pytest.mark.nightly
def test_a_card_of_another_process_is_checked_from_here(pytester: pytest.Pytester, write_dump: Write) -> None:
    x = tensor(4, 8, low=0.1, high=1.0)
    dump = write_dump({f"Torch.{name}.0.forward": forward(x) for name in ("exp", "tanh")})
    checked = check(pytester, f"--msprobe-dump={dump}", "--msprobe-device=remote:popen//device=npu:1")
    assert checked.exit_code == 0
    assert "Ascend910B1" in checked.output
