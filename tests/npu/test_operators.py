"""Every operator that has an example: recorded on a card with the real torch_npu, and judged there, right and wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_msprobe.engine.replay.ops.op_info import op_info
from tests.support.cann.operators import independent
from tests.support.npu.process import run_script
from tests.support.runs import Checked

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("cards")]

Check = Callable[..., Checked]
TASKS = pytest.mark.parametrize("task", ["statistics", "tensor"])

RECORD = "import sys; from tests.support.cann.record_examples import main; main(*sys.argv[1:])"


def forwards(checked: Checked) -> dict[str, set[str]]:
    """Return the outcomes of each operator's forward calls."""
    found: dict[str, set[str]] = {}
    for name, case in checked.cases.items():
        type_, operator, *_, direction = name.split(".")
        if type_ == "NPU" and direction == "forward":
            found.setdefault(operator, set()).add(case.outcome)
    return found


@TASKS
def test_right_examples_of_every_operator_pass_and_a_wrong_element_of_each_is_found(
    check_on_npu: Check, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_script(RECORD, "dump", task)
    right = check_on_npu("--msprobe-dump=dump")
    assert {name: right.cases[name].text for name in right.wrong} == {}
    assert [operator for operator, found in forwards(right).items() if found == {"skipped"}] == []

    # One element cannot show that what is drawn has another law.
    judged = [operator for operator in independent() if op_info(operator).random is None]
    monkeypatch.setenv("SIMULATED_CANN_FAULTS", ",".join(f"{operator}=wrong" for operator in judged))
    outcomes = forwards(check_on_npu("--msprobe-dump=dump"))
    wrong = outcomes.keys() & set(judged)
    assert len(wrong) > 200
    assert [operator for operator in sorted(wrong) if "failed" not in outcomes[operator]] == []
