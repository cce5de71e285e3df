"""What is said of calls that a search did not raise."""

from __future__ import annotations

from msprobe_hooks.extensions.fix.run_plan import DRAWS, UNNAMED_LIBRARY, Left
from pytest_msprobe.extensions.bisect.search import left_text


def test_nothing_is_said_where_every_call_was_raised():
    assert left_text([], ["torch.ops.mylib.swish.0"], ["mylib"]) == []


def test_each_call_is_reported_with_its_reason_and_each_library_with_its_option():
    left = [Left("Functional.dropout", DRAWS), Left("torch.ops.mylib.swish", UNNAMED_LIBRARY)]
    assert left_text(left, [], ["otherlib"])[1:] == [
        "  --custom-op-namespaces otherlib: no operator of it with a result to change was called",
        "  Functional.dropout: it draws random numbers",
        "  torch.ops.mylib.swish: pass --custom-op-namespaces mylib",
    ]


def test_a_library_whose_operators_cannot_be_raised_is_not_called_unmet():
    lines = left_text([Left("torch.ops.mylib.swish", DRAWS)], [], ["mylib"])
    assert lines[1:] == ["  torch.ops.mylib.swish: it draws random numbers"]


def test_of_many_calls_the_first_are_reported_and_how_many_more_there_are():
    lines = left_text([Left(f"Torch.api{number:02}", DRAWS) for number in range(25)], [], [])
    assert lines[-1] == "  and 5 more"
    assert len(lines) == 22
