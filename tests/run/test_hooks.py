from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Write = Callable[..., Path]
Json = dict[str, Any]


def test_a_registered_device_is_listed_in_errors_and_usable(
    pytester: pytest.Pytester, write_dump: Write, records: Json, check: Any, make_device: Callable[[str], None]
) -> None:
    write_dump(records)
    make_device("pass")
    checked = check("--msprobe-dump=dump.json", "--msprobe-device=faulty:1")
    assert checked.exit_code == 0
    assert {case.properties["msprobe.device"] for case in checked.cases.values()} == {"faulty:1"}
    result = pytester.runpytest_inprocess("--msprobe-device=other")
    result.stderr.fnmatch_lines(["*known are auto, npu, cuda, cpu, sim, *faulty*"])


def test_a_device_may_take_the_place_of_a_built_in_one(
    pytester: pytest.Pytester, write_dump: Write, records: Json, check: Any, make_device: Callable[[str], None]
) -> None:
    write_dump(records)
    make_device("result = result + 1 if record == 'Torch.index_select.0.forward' else result")
    conftest = pytester.path / "conftest.py"
    conftest.write_text(conftest.read_text().replace('name = "faulty"', 'name = "sim"'))
    assert check("--msprobe-dump=dump.json", "--msprobe-device=sim").wrong == {"Torch.index_select.0.forward"}


def test_a_plugin_registers_like_a_conftest(
    pytester: pytest.Pytester, write_dump: Write, records: Json, make_device: Callable[[str], None]
) -> None:
    write_dump(records)
    make_device("pass")
    (pytester.path / "conftest.py").rename(pytester.path / "my_devices.py")
    pytester.syspathinsert()
    result = pytester.runpytest_inprocess("-p", "my_devices", "--msprobe-dump=dump.json", "--msprobe-device=faulty")
    result.assert_outcomes(passed=len(records))


@pytest.mark.parametrize("workers", [[], pytest.param(["-n1"], marks=pytest.mark.slow)], ids=["alone", "a worker"])
def test_a_registered_standard_judges_by_policy_and_by_marker(
    pytester: pytest.Pytester, always_warns: list[str], write_dump: Write, records: Json, workers: list[str]
) -> None:
    write_dump(records)
    pytester.makepyfile(
        test_mine="""
        import pytest, torch

        @pytest.mark.precision_standard("doubtful")
        def test_it(precision):
            precision.check(torch.tanh, torch.randn(4))
        """
    )
    result = pytester.runpytest_inprocess(
        "test_mine.py",
        "--msprobe-dump=dump.json",
        "--msprobe-device=cpu",
        "-Wdefault::UserWarning",
        *always_warns,
        *workers,
    )
    # Integers have to be equal, whatever the standard; those do not warn.
    result.assert_outcomes(passed=len(records) + 1, warnings=len(records))


def test_a_standard_lives_as_long_as_its_session(
    pytester: pytest.Pytester, always_warns: list[str], write_dump: Write, records: Json
) -> None:
    write_dump(records)
    run = ("--msprobe-dump=dump.json", "--msprobe-device=cpu", "-k", "linear", "-Wdefault::UserWarning", *always_warns)
    for _ in range(2):
        assert pytester.runpytest_inprocess(*run).ret == pytest.ExitCode.OK
    (pytester.path / "conftest.py").unlink()
    assert "unknown standard 'doubtful'" in pytester.runpytest_inprocess(*run).stderr.str()


def test_a_standard_whose_name_is_taken_is_a_usage_error(
    pytester: pytest.Pytester, always_warns: list[str], write_dump: Write, records: Json
) -> None:
    write_dump(records)
    conftest = pytester.path / "conftest.py"
    conftest.write_text(conftest.read_text().replace('registry.add("doubtful"', 'registry.add("ulp"'))
    result = pytester.runpytest_inprocess("--msprobe-dump=dump.json", "--msprobe-device=cpu")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "pytest_msprobe_register_standards: standard 'ulp' is already registered" in result.stderr.str()


@pytest.fixture
def npu_record(write_dump: Write, element: Any, forward: Any) -> str:
    """Write a dump with a call of an NPU API that no one knows."""
    name = "NPU.npu_twice.0.forward"
    write_dump({name: forward(element(4, dtype="float16"))})
    return name


def test_an_npu_api_without_a_golden_definition_skips(npu_record: str, check: Any) -> None:
    checked = check("--msprobe-dump=dump.json", "--msprobe-device=sim")
    assert checked.outcomes == {npu_record: "skipped"}
    assert "no golden definition for this NPU API: NPU.npu_twice" in checked.cases[npu_record].text


def test_a_registered_reference_is_the_golden_definition(
    pytester: pytest.Pytester, npu_record: str, check: Any
) -> None:
    pytester.makeconftest(
        """
        import torch
        from pytest_msprobe.devices.sim import SimDevice

        def twice(x):
            with open("dtypes.txt", "a") as file:
                print(x.dtype, file=file)
            return x * 2

        class Faulty(SimDevice):
            name = "faulty"

            def call(self, func, args, kwargs, *, record):
                return func(*args, **kwargs) * 1.1

        def pytest_msprobe_register_references(registry):
            registry.add("NPU.npu_twice", twice)

        def pytest_msprobe_register_devices(registry):
            registry.add(Faulty())
        """
    )
    assert check("--msprobe-dump=dump.json", "--msprobe-device=sim").outcomes == {npu_record: "passed"}
    assert set((pytester.path / "dtypes.txt").read_text().split()) == {"torch.float16", "torch.float32"}
    assert check("--msprobe-dump=dump.json", "--msprobe-device=faulty").outcomes == {npu_record: "failed"}
