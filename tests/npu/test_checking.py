"""Dumps checked on cards that torch takes for another device's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.dumps import Json
from tests.support.runs import Checked

pytestmark = pytest.mark.slow

Check = Callable[..., Checked]
Write = Callable[..., Path]


def test_a_dump_is_checked_on_the_card(check_on_npu: Check, write_dump: Write, records: Json) -> None:
    checked = check_on_npu(f"--msprobe-dump={write_dump(records)}")
    assert checked.outcomes == dict.fromkeys(records, "passed")
    assert "npu:0 Simulated card 0" in checked.output
