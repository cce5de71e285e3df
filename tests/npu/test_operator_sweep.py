"""Torch's own operators, and torch_npu's, on a simulated card: what fails is where torch_npu differs from torch."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.extensions.operators.test_sweep import TENTH
from tests.support.npu.process import run_command
from tests.support.runs import Checked

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("cards")]

Check = Callable[..., Checked]
#: torch_npu has no gradient of the target of the first, and refuses one of the window of the second.
OF_TORCH_NPU = {
    *(f"Functional.binary_cross_entropy_with_logits.{number}.backward" for number in range(4)),
    "Torch.stft.0.forward",
}


def swept(check_on_npu: Check, dtype: str, *words: str) -> Checked:
    done = run_command("operators", "--dtype", dtype, "-o", "operators", *words)
    assert done.returncode == 0, done.stderr
    return check_on_npu("--msprobe-dump=operators")


def test_a_tenth_of_the_operators_has_no_alarm(check_on_npu: Check) -> None:
    patterns = [word for pattern in TENTH for word in ("--op", pattern)]
    checked = swept(check_on_npu, "float32", "--samples", "1", *patterns)
    assert checked.wrong - OF_TORCH_NPU == set()
    assert len(checked.outcomes) > 100


@pytest.mark.parametrize(
    ("dtype", "words"),
    [
        pytest.param("float32", (), id="all", marks=pytest.mark.nightly),
        pytest.param("bfloat16", ("--op", "torch_npu.*"), id="torch_npu", marks=pytest.mark.nightly),
        pytest.param("bfloat16", ("--op", "npu_m[h-o]*", "--samples", "2"), id="some of torch_npu"),
    ],
)
def test_no_other_operator_has_an_alarm(check_on_npu: Check, dtype: str, words: tuple[str, ...]) -> None:
    checked = swept(check_on_npu, dtype, *words)
    assert checked.wrong - OF_TORCH_NPU == set()
    assert [*checked.outcomes.values()].count("passed") > 0.8 * len(checked.outcomes)
