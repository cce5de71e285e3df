from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from _pytest._io import TerminalWriter

from pytest_msprobe.reports.failure_repr import ShownFailure
from tests.support.runs import run_pytest

TEXT = (
    "output.0: off by 3\n\na.0 is wrong on npu:1\n\noutput.0 float32 (2,): fail by ulp\n\nRun this item alone: pytest a"
)


def shown(colour: bool) -> str:
    file = StringIO()
    tw = TerminalWriter(file)
    tw.hasmarkup = colour
    ShownFailure("d.json::a.0", TEXT).toterminal(tw)
    return file.getvalue()


def test_without_colours_the_text_is_shown_as_it_is() -> None:
    assert shown(colour=False) == TEXT + "\n"


def test_with_colours_the_reason_is_red_and_the_verdict_and_the_command_stand_out() -> None:
    lines = shown(colour=True).splitlines()
    assert lines[0].startswith("\x1b[31m")
    assert lines[2].startswith("\x1b[1m")
    assert "\x1b[31mfail\x1b[0m by ulp" in lines[4]
    assert "\x1b[36m pytest a\x1b[0m" in lines[6]


@pytest.mark.parametrize("workers", [[], pytest.param(["-n1"], marks=pytest.mark.slow)], ids=["alone", "a worker"])
def test_by_tb_line_a_failure_is_one_line(
    pytester: Any, write_dump: Callable[..., Any], records: dict[str, Any], make_device: Any, workers: list[str]
) -> None:
    write_dump(records)
    make_device("if record == 'Functional.softmax.0.forward': result = result + 1")
    run = ("--msprobe-dump=dump.json", "--msprobe-device=faulty", "--tb=line", *workers)
    result = run_pytest(pytester, *run, apart=bool(workers))
    lines = result.stdout.lines
    assert [line for line in lines if line.startswith("dump.json::Functional.softmax.0.forward: output.0: ")]
    assert not any("Run this item alone" in line for line in lines)
