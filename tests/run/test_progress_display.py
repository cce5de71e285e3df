"""What a terminal shows while a run goes on."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.support.terminals import on_a_terminal


@pytest.mark.nightly
@pytest.mark.slow
def test_a_long_run_shows_share_rate_and_time_left_below_pytests_own_lines(
    pytester: pytest.Pytester, write_dump: Any, records: Any, make_device: Any
) -> None:
    write_dump(records)
    make_device("import time; time.sleep(1.0)")
    run = (sys.executable, "-m", "pytest", "--msprobe-dump=dump.json", "--msprobe-device=faulty", "--tb=no")
    written = on_a_terminal(*run, folder=pytester.path)
    total = len(records)
    assert f" of {total} (" in written
    assert " left" in written
    # The cursor goes back to the line of dots, and the progress is gone in the end.
    assert written.count("\x1b7") == written.count("\x1b8") > 0
    assert "\x1b[J" in written[written.rindex("\x1b8") :]
    without = on_a_terminal(*run, "-p", "no:msprobe-progress-line", folder=pytester.path)
    assert "\x1b7" not in without


@pytest.mark.nightly
@pytest.mark.slow
def test_a_debugger_has_the_terminal_for_itself(
    pytester: pytest.Pytester, write_dump: Any, records: Any, make_device: Any
) -> None:
    write_dump(records)
    last = list(records)[-1]
    make_device(f"import time; time.sleep(1.0)\nif record == {last!r}: result = result + 1")
    run = (sys.executable, "-m", "pytest", "--msprobe-dump=dump.json", "--msprobe-device=faulty", "--pdb")
    written = on_a_terminal(*run, folder=pytester.path, answer="import time; time.sleep(1.5)\nq\n")
    before, _, debugged = written.partition("(Pdb)")
    assert " left" in before
    assert "\x1b7" not in debugged


@pytest.mark.parametrize("arguments", [["dump.json"], ["no_such_file.py"]])
def test_a_run_that_never_begins_keeps_no_terminal_open(
    pytester: pytest.Pytester, write_dump: Any, records: Any, arguments: list[str]
) -> None:
    write_dump(records)
    program = f"""
import os, pathlib, pytest
where = os.readlink("/proc/self/fd/1")
def kept():
    links = []
    for link in pathlib.Path("/proc/self/fd").iterdir():
        try:
            links.append(os.readlink(link))
        except OSError:
            pass
    return links.count(where)
before = kept()
pytest.main(["--collect-only", "--msprobe-dump=dump.json", *{arguments!r}])
assert kept() == before, (kept(), before)
"""
    assert pytester.runpython_c(program).ret == 0
