from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_msprobe.fixtures.recording import folder_name

STEP = """
import torch

def step():
    weight = torch.ones(4, 3, requires_grad=True)
    torch.nn.functional.softmax(torch.arange(8.0).reshape(2, 4) @ weight, dim=-1).sum().backward()
"""

FAULTY_DEVICE = """
from pytest_msprobe.devices.sim import SimDevice

class Faulty(SimDevice):
    name = "faulty"

    def call(self, func, args, kwargs, *, record):
        output = super().call(func, args, kwargs, record=record)
        return output * 2 if record == "Functional.softmax.0.forward" else output

def pytest_msprobe_register_devices(registry):
    registry.add(Faulty())
"""


def outcomes(result: pytest.RunResult) -> dict[str, int]:
    return {key: count for key, count in result.parseoutcomes().items() if key != "warnings"}


def test_a_test_records_and_checks_what_it_ran(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        STEP
        + """
def test_step(msprobe_dump):
    step()
    records = [result.record for result in msprobe_dump.check()]
    assert "Functional.softmax.0.backward" in records
"""
    )
    assert outcomes(pytester.runpytest_subprocess()) == {"passed": 1}


def test_a_recorded_call_that_raised_is_skipped_with_its_error(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
import contextlib, torch

def test_step(msprobe_dump):
    with contextlib.suppress(RuntimeError):
        torch.ones(2, 3) @ torch.ones(2, 3)
    torch.ones(2).relu()
    raised, fine = msprobe_dump.check()
    assert raised.skip.name == "RAISED" and "shapes cannot be multiplied" in raised.verdict.reason
    assert fine.verdict.outcome == "pass"
"""
    )
    assert outcomes(pytester.runpytest_subprocess()) == {"passed": 1}


def test_each_wrong_api_is_a_failed_subtest(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(FAULTY_DEVICE)
    pytester.makepyfile(STEP + "\ndef test_step(msprobe_dump):\n    step()\n    msprobe_dump.check()\n")
    result = pytester.runpytest_subprocess("--msprobe-device", "faulty")
    result.stdout.fnmatch_lines(["*test_step [[]Functional.softmax.0.forward[]]*", "*output.0*"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_a_test_that_recorded_nothing_fails_and_says_why(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        STEP
        + """
import pytest

def test_nothing(msprobe_dump):
    pass

@pytest.mark.msprobe_record(list=["conv2d"])
def test_all_filtered(msprobe_dump):
    step()
"""
    )
    result = pytester.runpytest_subprocess()
    assert outcomes(result) == {"failed": 2}
    result.stdout.fnmatch_lines(
        ["*nothing was recorded: no supported call ran*", "*nothing was recorded: everything was removed*"]
    )


def test_modules_are_recorded_from_start_with_a_model(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
import pytest, torch
from msprobe_hooks.dump.layout import find_dumps
from msprobe_hooks.dump.reader import read_dump

@pytest.mark.msprobe_record(level="mix")
def test_model(msprobe_dump):
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    msprobe_dump.start(model)
    model(torch.ones(1, 2))
    msprobe_dump.check()
    (path,) = find_dumps(msprobe_dump.path)
    assert read_dump(path).module_count
"""
    )
    assert outcomes(pytester.runpytest_subprocess()) == {"passed": 1}


def test_options_come_from_ini_fixture_and_marker_in_that_order(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nmsprobe_record_options =\n    summary_mode=md5\n    list=[linear]\n")
    pytester.makepyfile(
        test_ini="def test_ini(msprobe_dump_options):\n"
        "    assert msprobe_dump_options == {'summary_mode': 'md5', 'list': ['linear']}\n",
        test_override="""
import json, pytest, torch

@pytest.fixture
def msprobe_dump_options():
    return {"task": "tensor"}

@pytest.mark.msprobe_record(task="statistics")
def test_marker_wins(msprobe_dump):
    torch.ones(2).relu()
    msprobe_dump.check()
    (path,) = msprobe_dump.path.rglob("dump.json")
    assert json.loads(path.read_text())["task"] == "statistics"
""",
    )
    assert outcomes(pytester.runpytest_subprocess()) == {"passed": 2}


def test_a_wrong_option_fails_the_test_with_what_is_allowed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import pytest\n@pytest.mark.msprobe_record(level='L7')\ndef test_step(msprobe_dump):\n    pass\n"
    )
    result = pytester.runpytest_subprocess()
    result.stdout.fnmatch_lines(["*msprobe_dump: level*L7*L0*L1*mix*"])


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_marked_tests_are_recorded_into_a_folder_each(pytester: pytest.Pytester, workers: tuple[str, ...]) -> None:
    pytester.makepyfile(
        STEP
        + """
import pytest

@pytest.mark.msprobe_record
@pytest.mark.parametrize("case", ["a/b", "c"])
def test_step(case):
    step()

def test_unmarked():
    step()
"""
    )
    result = pytester.runpytest_subprocess("--msprobe-record", "dumps", *workers)
    assert outcomes(result) == {"passed": 3}
    dumps = sorted(pytester.path.joinpath("dumps").rglob("dump.json"))
    assert len(dumps) == 2
    for dump in dumps:
        assert "Functional.softmax.0.forward" in json.loads(dump.read_text())["data"]


def test_ids_that_differ_only_in_unsafe_characters_get_folders_of_their_own() -> None:
    folders = {folder_name(f"test_x.py::test_f[{case}]") for case in ("a b", "a_b", "a*b", "../a")}
    assert len(folders) == 4
    assert all(".." not in folder.parts and not folder.is_absolute() for folder in folders)


def test_a_plain_id_is_its_own_folder() -> None:
    assert folder_name("tests/test_x.py::test_f[1-2]") == Path("tests/test_x.py/test_f[1-2]")
