"""Next to plugins that run items again, and next to those that collect files of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.dumps.compared import Runs
from tests.support.dumps.dump_files import SOFTMAX, forward, tensor_around

Write = Callable[..., Path]

RERUNS = ("-p", "rerunfailures", "--reruns=2")


def test_a_forward_record_is_run_again_and_counted_once(
    write_dump: Write, make_device: Callable[[str], None], check: Any
) -> None:
    write_dump(SOFTMAX)
    make_device(
        """
with Path("calls").open("a") as calls:
    calls.write("x")
result = result + 1 if record.endswith("forward") and len(Path("calls").read_text()) < 3 else result
"""
    )
    checked = check("--msprobe-dump=dump.json", "--msprobe-device=faulty", *RERUNS)
    outcomes = checked.result.parseoutcomes()
    assert (outcomes["passed"], outcomes["rerun"]) == (2, 2)
    assert "2 API records: 2 passed" in checked.output


def test_a_record_that_stays_wrong_is_counted_once_and_shows_its_properties_once(
    pytester: pytest.Pytester, write_dump: Write, make_device: Callable[[str], None]
) -> None:
    write_dump(SOFTMAX)
    make_device("result = result + 1 if record.endswith('forward') else result")
    arguments = ("--msprobe-dump=dump.json", "--msprobe-device=faulty", "--junitxml=junit.xml", "-k", "forward")
    reported = pytester.runpytest_inprocess(*arguments, *RERUNS).stdout.str()
    assert "1 API record: 1 failed" in reported
    assert reported.count("Functional.softmax.0.forward  (benchmark)") == 1, "the worst"
    # Of each attempt pytest writes a case.
    cases = (pytester.path / "junit.xml").read_text().split("<testcase")[1:]
    assert [case.count('name="msprobe.verdict"') for case in cases] == [1, 1, 1]


def test_a_compared_call_that_is_run_again_is_counted_once(pytester: pytest.Pytester) -> None:
    golden = {f"Torch.relu.{number}.forward": forward(tensor_around(4, 4)) for number in range(2)}
    target = golden | {"Torch.relu.0.forward": forward(tensor_around(4, 4), output=[tensor_around(4, 4, at=2.0)])}
    ours, theirs = Runs(pytester.path).both(target, golden)
    result = pytester.runpytest_inprocess(f"--msprobe-compare={ours}", f"--msprobe-golden={theirs}", *RERUNS)
    result.stdout.fnmatch_lines(["2 calls: 1 equal enough, 1 wrong"])


COLLECTS_JSON = """
import pytest

class Specification(pytest.File):
    def collect(self):
        yield Check.from_parent(self, name="check")

class Check(pytest.Item):
    def runtest(self):
        pass

def pytest_collect_file(file_path, parent):
    if file_path.suffix == ".json":
        return Specification.from_parent(parent, path=file_path)
"""


@pytest.mark.parametrize("text", ['{"openapi": "3.1", "paths": {"level": 1}}', '{"data": {"task": 1}}', "[]"])
def test_a_json_file_of_another_plugin_is_left_to_it(pytester: pytest.Pytester, text: str) -> None:
    pytester.makeconftest(COLLECTS_JSON)
    (pytester.path / "api.json").write_text(text)
    pytester.runpytest_inprocess("api.json").assert_outcomes(passed=1)
