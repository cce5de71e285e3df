"""Every operator that has an example: recorded on a card with the real torch_npu, and judged there, right and wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_msprobe.engine.replay.ops.op_info import op_info
from tests.support.cann.examples import all_examples
from tests.support.cann.operators import independent
from tests.support.npu.process import run_script
from tests.support.runs import Checked

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("cards")]

Check = Callable[..., Checked]
# The first operator of each family of examples that has a definition of its own.
FAMILIES = {name.partition("-")[0]: operator for operator, name, _ in reversed(list(all_examples()))}
SOME = tuple(sorted({*FAMILIES.values()} & {*independent()}))

RECORD = "import sys; from tests.support.cann.record_examples import main; main(*sys.argv[1:])"


def forwards(checked: Checked) -> dict[str, set[str]]:
    """Return the outcomes of each operator's forward calls."""
    found: dict[str, set[str]] = {}
    for name, case in checked.cases.items():
        type_, operator, *_, direction = name.split(".")
        if type_ == "NPU" and direction == "forward":
            found.setdefault(operator, set()).add(case.outcome)
    return found


@pytest.mark.parametrize(
    ("task", "operators", "at_least"),
    [
        pytest.param("tensor", SOME, 20, id="one of each family"),
        pytest.param("statistics", (), 200, id="statistics", marks=pytest.mark.nightly),
        pytest.param("tensor", (), 200, id="tensor", marks=pytest.mark.nightly),
    ],
)
def test_right_examples_of_operators_pass_and_a_wrong_element_of_each_is_found(
    check_on_npu: Check, task: str, operators: tuple[str, ...], at_least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_script(RECORD, "dump", task, *operators)
    right = check_on_npu("--msprobe-dump=dump")
    assert {name: right.cases[name].text for name in right.wrong} == {}
    assert [operator for operator, found in forwards(right).items() if found == {"skipped"}] == []

    # One element cannot show that what is drawn has another law.
    judged = [operator for operator in independent() if op_info(operator).random is None]
    monkeypatch.setenv("SIMULATED_CANN_FAULTS", ",".join(f"{operator}=wrong" for operator in judged))
    outcomes = forwards(check_on_npu("--msprobe-dump=dump"))
    wrong = outcomes.keys() & set(judged)
    assert len(wrong) > at_least
    assert [operator for operator in sorted(wrong) if "failed" not in outcomes[operator]] == []
