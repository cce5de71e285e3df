"""Which dump and which card: said wherever a record is named, where there are several."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.dumps.dump_files import SOFTMAX

Write = Callable[..., Path]


def test_ids_that_v_prints_select_what_they_name(pytester: pytest.Pytester, write_dump: Write) -> None:
    write_dump(SOFTMAX)
    printed = pytester.runpytest_inprocess("--msprobe-dump=dump.json", "--msprobe-device=sim", "-v")
    ids = [line.split()[0] for line in printed.outlines if " PASSED " in line]
    assert len(ids) == 2
    for printed_id in ids:
        pytester.runpytest_inprocess(printed_id, "--msprobe-device=sim").assert_outcomes(passed=1)


@pytest.mark.slow
def test_dump_and_card_are_named_where_there_are_several(
    pytester: pytest.Pytester, write_dump: Write, make_device: Callable[[str], None]
) -> None:
    name = "Functional.softmax.0.forward"
    for rank in (0, 1):
        write_dump({name: SOFTMAX[name]}, f"ranks/rank{rank}")
    make_device("if self.index == 5: result = result + 1")
    arguments = ("--msprobe-dump=ranks", "--msprobe-device=faulty:2,5", "--dist=each", "--tx=2*popen")
    reported = pytester.runpytest_inprocess(*arguments).stdout.str()
    for rank in ("rank0", "rank1"):
        assert f"__ {name} ({rank}) __" in reported, "headline"
        assert f"{name} is wrong on faulty:5, in {rank}" in reported
        assert f"{name} ({rank}) on faulty:5  (benchmark)" in reported, "the worst"
        assert f"/{rank}/dump.json::{name} --msprobe-device faulty:5" in reported
    assert "4 API records: 2 passed, 2 failed" in reported
    assert "on faulty:2: 2 passed (simulated card 2 " in reported
    assert "on faulty:5: 2 failed (simulated card 5 " in reported
