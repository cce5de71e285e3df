"""Calls whose raised copies do not fit into memory, through pytest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_msprobe.engine.replay import partition
from pytest_msprobe.engine.values import system_memory
from tests.support.dumps.dump_files import forward, tensor, value
from tests.support.runs import Checked

ADD, SORT = "Torch.add.0.forward", "Torch.sort.0.forward"
MIB = 2**20


@pytest.fixture
def checked(
    write_dump: Any, check: Any, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Checked]:
    """Check calls on three tensors of 48 MiB where 360 MiB are free; with their raised copies they take 576 MiB."""
    limit, usage = pytester.path / "memory.max", pytester.path / "memory.current"
    limit.write_text(str(400 * MIB))
    usage.write_text("0")
    monkeypatch.setattr(system_memory, "_CGROUP_LIMIT", limit)
    monkeypatch.setattr(system_memory, "_CGROUP_USAGE", usage)
    monkeypatch.setattr(partition, "_BLOCK", MIB)
    given = tensor(4096, 3072)
    index = tensor(4096, 3072, dtype="int64", low=0, high=3071)
    sort = forward(given, value(-1), output=[given, index])
    write_dump({ADD: forward(given, given, output=[tensor(4096, 3072, low=-2.0, high=2.0)]), SORT: sort})

    def run(device: str) -> Checked:
        found: Checked = check(f"--msprobe-device={device}", "--msprobe-dump=dump.json")
        return found

    return run


def test_what_can_be_cut_into_blocks_is_judged_where_the_whole_does_not_fit(checked: Any) -> None:
    run = checked("cpu")
    assert run.outcomes == {ADD: "passed", SORT: "skipped"}
    assert "too large for the free memory" in run.cases[SORT].text


@pytest.mark.nightly
@pytest.mark.slow
def test_a_wrong_element_of_it_fails(checked: Any, make_device: Callable[[str], None]) -> None:
    make_device("result[4000, 5] += 1")
    run = checked("faulty")
    assert run.outcomes[ADD] == "failed"
    assert "; at [4000, 5]" in run.cases[ADD].text
