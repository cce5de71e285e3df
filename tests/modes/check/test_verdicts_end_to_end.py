from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

DUMPS = Path(__file__).parents[2] / "data" / "dumps"

Write = Callable[..., Path]
Json = dict[str, Any]

ARGUMENTS = ("--msprobe-dump=dump.json", "--msprobe-device=faulty")


@pytest.fixture
def calls(records: Json, element: Any, forward: Any) -> Json:
    """Return the shared records and those of calls that change their arguments or return several results."""
    x = element(16, 32, requires_grad=True)
    integers = {value: {"type": "int", "value": value} for value in (1, 32)}
    channels = element(4, low=0.5, high=1.5)
    training = {"type": "bool", "value": True}
    return records | {
        "Functional.layer_norm.0.forward": forward(x, [integers[32]]),
        "Functional.layer_norm.0.backward": {"input": [x], "output": [x, None, None]},
        "Torch.abs.0.forward": forward(element(1000, 1000)),
        "Torch.max.0.forward": forward(
            element(16, 32), integers[1], output=[element(16), element(16, dtype="int64", low=0, high=31)]
        ),
        "Tensor.add_.0.forward": forward(element(16, 32), element(16, 32)),
        "Functional.batch_norm.0.forward": forward(
            element(8, 4, 5), channels, channels, element(4), element(4), training, output=[element(8, 4, 5)]
        ),
    }


def corrupt(record: str, *statements: str) -> str:
    return "\n".join([f"if record == {record!r}:", *(f"    {statement}" for statement in statements)])


@pytest.mark.parametrize(
    ("record", "statement", "shape"),
    [
        # Adding a constant leaves the gradient alone, which is therefore right.
        ("Functional.softmax.0.forward", "result = result + (result * 0.01).detach()", (4, 8)),
        ("Functional.layer_norm.0.backward", "result = tuple(grad * 1.01 for grad in result)", (16, 32)),
        ("Torch.index_select.0.forward", "result[1, 2] += 1", (3, 8)),
    ],
)
def test_a_wrong_result_is_the_one_failing_item_and_says_all_that_is_needed(
    pytester: pytest.Pytester,
    write_dump: Write,
    calls: Json,
    make_device: Callable[[str], None],
    check: Any,
    record: str,
    statement: str,
    shape: tuple[int, ...],
) -> None:
    write_dump(calls)
    make_device(corrupt(record, statement))
    checked = check(*ARGUMENTS)
    assert checked.wrong == {record}
    assert checked.exit_code == pytest.ExitCode.TESTS_FAILED

    text = checked.cases[record].text
    why, _, what, _, how_much, *_ = text.splitlines()
    assert re.search(r"\(\S+ allowed\)|none allowed", why)
    assert what.startswith(f"{record} is wrong on ")
    assert str(shape) in how_much
    assert re.search(r"index \(\d+, \d+\)", text), "where"
    assert re.search(r"; at \[\d+, \d+\] \S+, golden \S+$", why), "how much"

    (command,) = (line.partition(": ")[2] for line in text.splitlines() if line.startswith("Run this item alone: "))
    program, *arguments = shlex.split(command)
    assert program == "pytest"
    again = pytester.runpytest_inprocess(*arguments)
    again.assert_outcomes(failed=1)
    assert f"{record} is wrong" in again.stdout.str()


@pytest.mark.parametrize(
    ("record", "statements", "said"),
    [
        ("Torch.abs.0.forward", ["result[500, 500] = float('nan')"], "(500, 500)"),
        ("Torch.abs.0.forward", ["result[500, 500] = float('inf')"], "(500, 500)"),
        ("Torch.abs.0.forward", ["result[999, 999] *= 1.001"], "(999, 999)"),
        ("Functional.linear.0.forward", ["result = result.float()"], "the dtype is torch.float32"),
        ("Torch.index_select.0.forward", ["result = result.long()"], "dtype is torch.int64"),
        ("Torch.abs.0.forward", ["result = result[:-1]"], "shape is (999, 1000), golden has (1000, 1000)"),
        ("Torch.max.0.forward", ["result = (result[0],)"], "output 1 is missing"),
        ("Torch.max.0.forward", ["result = (*result, result[0])"], "output 2 is not in golden"),
        ("Torch.max.0.forward", ["result = result[0]"], "output is a list, golden is a tuple"),
        ("Torch.abs.0.forward", ["result = None"], "output is NoneType, golden is Tensor"),
        ("Tensor.add_.0.forward", ["result = result.clone()", "args[0].add_(1)"], "changed.args.0"),
        ("Functional.batch_norm.0.forward", ["args[1].add_(0.01)"], "changed.args.1"),
        ("Functional.batch_norm.0.forward", ["args[2].mul_(1.01)"], "changed.args.2"),
        ("Torch.abs.0.forward", ["args[0].zero_()"], "changed.args.0"),
    ],
)
def test_everything_that_a_call_produces_is_judged(
    write_dump: Write,
    calls: Json,
    make_device: Callable[[str], None],
    check: Any,
    record: str,
    statements: list[str],
    said: str,
) -> None:
    write_dump(calls)
    make_device(corrupt(record, *statements))
    checked = check(*ARGUMENTS)
    assert checked.wrong == {record}
    assert said in checked.cases[record].text


@pytest.mark.parametrize("record", ["Torch.abs.0.forward", "Functional.softmax.0.forward"])
def test_an_api_that_raises_on_the_device_alone_is_one_failure(
    write_dump: Write, calls: Json, make_device: Callable[[str], None], check: Any, record: str
) -> None:
    write_dump(calls)
    make_device(corrupt(record, "raise RuntimeError('the kernel exploded')"))
    checked = check(*ARGUMENTS)
    assert checked.wrong == {record}
    said = "the API raises on the device, but not on the CPU: RuntimeError: the kernel exploded"
    assert said in checked.cases[record].text
    if record == "Functional.softmax.0.forward":
        assert checked.outcomes["Functional.softmax.0.backward"] == "skipped"
        assert "the forward call could not be run" in checked.cases["Functional.softmax.0.backward"].text


def test_an_api_that_raises_in_its_backward_on_the_device_alone_is_one_failure(
    write_dump: Write, calls: Json, make_device: Callable[[str], None], check: Any
) -> None:
    record = "Functional.softmax.0.backward"
    write_dump(calls)
    make_device(corrupt(record, "raise RuntimeError('the kernel exploded')"))
    checked = check(*ARGUMENTS)
    assert checked.wrong == {record}
    assert "the kernel exploded" in checked.cases[record].text


@pytest.mark.parametrize(
    "error",
    [
        "NotImplementedError(\"Could not run 'aten::abs' with arguments from the 'NPU' backend\")",
        "RuntimeError('\"abs_npu\" not implemented for \\'Float\\'')",
    ],
)
def test_an_api_that_the_device_does_not_implement_skips_with_the_devices_words(
    write_dump: Write, calls: Json, make_device: Callable[[str], None], check: Any, error: str
) -> None:
    write_dump(calls)
    make_device(corrupt("Torch.abs.0.forward", f"raise {error}"))
    checked = check(*ARGUMENTS)
    assert {name for name, outcome in checked.outcomes.items() if outcome != "passed"} == {"Torch.abs.0.forward"}
    text = checked.cases["Torch.abs.0.forward"].text
    assert "the device does not implement this API for these dtypes: " in text
    assert "'aten::abs'" in text or "abs_npu" in text


@pytest.mark.parametrize(
    ("verbosity", "shown"),
    [([], 1), (["-v"], 2), (["-vv"], 2)],
    ids=["short", "-v", "-vv"],
)
def test_verbosity_shows_the_deciding_output_then_every_output_then_every_number(
    write_dump: Write,
    calls: Json,
    make_device: Callable[[str], None],
    check: Any,
    verbosity: list[str],
    shown: int,
) -> None:
    record = "Torch.max.0.forward"
    write_dump({record: calls[record]})
    make_device(corrupt(record, "result = (result[0] + 1, result[1] - result[1])"))
    text = check(*ARGUMENTS, *verbosity).cases[record].text
    assert len(re.findall(r"^output\.\d .*: fail by \w+$", text, re.MULTILINE)) == shown
    assert ("1 more output is wrong; -v shows each" in text) == (shown == 1)
    assert ("error_rate: " in text) == ("-vv" in verbosity)


@pytest.mark.parametrize(
    "dump", [pytest.param("resnet18", marks=pytest.mark.nightly), "gpt2", "lstm-1.2.2-md5", "lstm-mix"]
)
def test_a_healthy_device_raises_no_alarm_on_a_real_dump(check: Any, dump: str) -> None:
    checked = check(f"--msprobe-dump={DUMPS / dump / 'dump.json'}", "--msprobe-device=sim", "--msprobe-seed=3")
    verdicts = Counter(case.properties["msprobe.verdict"] for case in checked.cases.values())
    assert checked.exit_code == 0
    assert set(verdicts) <= {"pass", "skip"}
    assert verdicts["pass"] >= 0.95 * verdicts.total()
