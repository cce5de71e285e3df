from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_msprobe.journal import read_journal

Write = Callable[..., Path]
Json = dict[str, Any]

DUMP = ["--msprobe-dump=dump.json", "--msprobe-device=cpu"]
MODES = "float32 matmul precision highest, deterministic off"


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
    assert MODES in lines[on]


@pytest.mark.slow
@pytest.mark.usefixtures("_dump")
def test_with_workers_the_first_one_to_start_shows_the_modes(pytester: pytest.Pytester) -> None:
    lines = pytester.runpytest_subprocess(*DUMP, "-n2").outlines
    on = place(lines, "msprobe: on ")
    assert place(lines, "2 workers [5 items]") < on < place(lines, "....")
    assert MODES in lines[on]
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
@pytest.mark.parametrize("workers", [[], pytest.param(["-n2"], marks=pytest.mark.slow)], ids=["alone", "workers"])
def test_a_run_shows_the_devices_own_modes_in_header_junit_and_journal(
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
    run = check("--msprobe-dump=dump.json", "--msprobe-device=fast", "--msprobe-journal=run.jsonl", *workers)
    reported = f"approximate exp on, {MODES}"
    line = next(line for line in run.result.outlines if line.startswith("msprobe: on "))
    assert line.endswith(reported)
    assert {case.properties["msprobe.math_modes"] for case in run.cases.values()} == {reported}
    starts = read_journal(pytester.path / "run.jsonl").starts
    assert {start.device for start in starts} == {case.properties["msprobe.device"] for case in run.cases.values()}
    assert {start.math_modes["approximate exp"] for start in starts} == {"on"}


CARD = """
    import torch
    from pytest_msprobe.devices.math_modes import ReducedPrecision
    from pytest_msprobe.devices.sim import SimDevice

    class Card(SimDevice):
        name = "card"

        def reduced_precision(self):
            return ReducedPrecision(matmul="tf32")

        def call(self, func, args, kwargs, *, record):
            def cut(value):
                return (value.view(torch.int32) >> BITS << BITS).view(torch.float32)

            return func(*map(cut, args), **kwargs)

    def pytest_msprobe_register_devices(registry):
        registry.add(Card())
    """
ON_CARD = ["--msprobe-dump=dump.json", "--msprobe-device=card"]


@pytest.fixture
def card(pytester: pytest.Pytester, write_dump: Write, element: Any, forward: Any) -> Callable[[int], None]:
    """Write the dump of a product, and register a card that cuts so many bits off its operands and states TF32."""

    def make(bits: int) -> None:
        inputs = element(20, 64), element(64, 30)
        write_dump({"Torch.mm.0.forward": forward(*inputs, output=[element(20, 30)])})
        pytester.makeconftest(CARD.replace("BITS", str(bits)))

    return make


def test_a_pass_in_a_mode_says_so_in_summary_junit_csv_and_journal(
    pytester: pytest.Pytester, card: Any, check: Any
) -> None:
    card(13)
    run = check(*ON_CARD, "--msprobe-journal=run.jsonl", "--msprobe-csv=tables")
    assert run.outcomes == {"Torch.mm.0.forward": "passed"}
    assert run.cases["Torch.mm.0.forward"].properties["msprobe.math_mode"] == "TF32"
    assert "1 judged under TF32, as the device says" in run.output
    [details] = (pytester.path / "tables").glob("*details*.csv")
    assert "under TF32, which the device says is on" in details.read_text(encoding="utf-8-sig")
    [entry] = read_journal(pytester.path / "run.jsonl").entries.values()
    assert entry.result.extras["math_mode"] == "TF32"


def test_a_failure_in_a_mode_leads_with_it(card: Any, check: Any) -> None:
    card(15)
    failure = check(*ON_CARD).cases["Torch.mm.0.forward"]
    assert failure.outcome == "failed"
    assert "; under TF32, which the device says is on\n" in failure.text
    assert failure.properties["msprobe.math_mode"] == "TF32"


@pytest.mark.parametrize("twin", [True, False], ids=["ini", "option"])
def test_strict_judges_by_the_dtype_and_stands_in_the_command_that_runs_it_again(
    pytester: pytest.Pytester, card: Any, check: Any, twin: bool
) -> None:
    card(13)
    if twin:
        pytester.makeini("[pytest]\naddopts = --msprobe-math-mode=strict")
    failure = check(*ON_CARD, *([] if twin else ["--msprobe-math-mode=strict"])).cases["Torch.mm.0.forward"]
    assert failure.outcome == "failed"
    assert "msprobe.math_mode" not in failure.properties
    assert "--msprobe-math-mode strict" in failure.text


def test_a_run_in_another_math_mode_does_not_go_on_with_a_journal(card: Any, check: Any) -> None:
    card(13)
    check(*ON_CARD, "--msprobe-journal=run.jsonl")
    run = check(*ON_CARD, "--msprobe-resume=run.jsonl", "--msprobe-math-mode=strict")
    assert run.exit_code == pytest.ExitCode.USAGE_ERROR
    assert "math_mode" in run.errors


@pytest.mark.usefixtures("_dump")
@pytest.mark.parametrize(
    ("given", "reported"),
    [
        ("lenient", "--msprobe-math-mode 'lenient': not one of auto, strict"),
        (
            "",
            "device 'sim': reduced_precision() raises MSPROBE_SIM_MATH_MODES: "
            "math mode 'tf33' of conv: not one of tf32, hf32, bf16; did you mean 'tf32'?",
        ),
    ],
)
def test_an_unknown_mode_is_one_error(check: Any, given: str, reported: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSPROBE_SIM_MATH_MODES", "conv=tf33")
    run = check(
        "--msprobe-dump=dump.json", "--msprobe-device=sim", *([f"--msprobe-math-mode={given}"] if given else [])
    )
    assert [line for line in run.errors.splitlines() if line] == [f"ERROR: {reported}"]
