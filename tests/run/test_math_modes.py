from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_msprobe.journal.file import read_journal

Write = Callable[..., Path]
Json = dict[str, Any]

DUMP = ["--msprobe-dump=dump.json", "--msprobe-device=cpu"]
TOLD = "float32 matmul precision highest, deterministic off"


@pytest.fixture
def _dump(write_dump: Write, records: Json) -> None:
    write_dump(records)


def place(lines: list[str], start: str) -> int:
    return next(i for i, line in enumerate(lines) if line.startswith(start))


@pytest.mark.usefixtures("_dump")
def test_the_modes_are_printed_above_the_first_item(pytester: pytest.Pytester) -> None:
    lines = pytester.runpytest_inprocess(*DUMP).outlines
    on = place(lines, "msprobe: on ")
    assert place(lines, "collected 5 items") < on < place(lines, "dump.json ....")
    assert TOLD in lines[on]


@pytest.mark.usefixtures("_dump")
def test_with_workers_the_first_one_to_start_tells_the_modes(pytester: pytest.Pytester) -> None:
    lines = pytester.runpytest_subprocess(*DUMP, "-n2").outlines
    on = place(lines, "msprobe: on ")
    assert place(lines, "2 workers [5 items]") < on < place(lines, "....")
    assert TOLD in lines[on]
    assert len([line for line in lines if line.startswith("msprobe: on ")]) == 1


@pytest.mark.usefixtures("_dump")
def test_quiet_runs_have_no_line_above_their_items(pytester: pytest.Pytester) -> None:
    assert "msprobe: on " not in pytester.runpytest_inprocess(*DUMP, "-q").stdout.str()


@pytest.mark.usefixtures("_dump")
def test_variables_stand_in_the_header_before_anything_starts(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    lines = pytester.runpytest_inprocess(*DUMP, "--collect-only").outlines
    assert "msprobe: NVIDIA_TF32_OVERRIDE=0" in lines
    assert not [line for line in lines if line.startswith("msprobe: on ")]


@pytest.mark.usefixtures("_dump")
@pytest.mark.parametrize("workers", [[], ["-n2"]], ids=["alone", "workers"])
def test_a_run_tells_the_devices_own_modes_in_header_junit_and_journal(
    pytester: pytest.Pytester, check: Any, workers: list[str]
) -> None:
    pytester.makeconftest(
        """
        from pytest_msprobe.devices.sim import SimDevice

        class FastDevice(SimDevice):
            name = "fast"

            def math_modes(self):
                return {"approximate exp": "on"}

        def pytest_msprobe_register_devices(registry):
            registry.add(FastDevice())
        """
    )
    run = check(
        "--msprobe-dump=dump.json", "--msprobe-device=fast", "--msprobe-journal=run.jsonl", *workers, apart=True
    )
    told = f"approximate exp on, {TOLD}"
    line = next(line for line in run.result.outlines if line.startswith("msprobe: on "))
    assert line.endswith(told)
    assert {case.properties["msprobe.math_modes"] for case in run.cases.values()} == {told}
    starts = read_journal(pytester.path / "run.jsonl").starts
    assert {start.device for start in starts} == {case.properties["msprobe.device"] for case in run.cases.values()}
    assert {start.math_modes["approximate exp"] for start in starts} == {"on"}
