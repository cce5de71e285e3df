"""Rows of a grouped product that belong to no group."""

from __future__ import annotations

import pytest
import torch

from tests.support.dumps.grouped_products import grouped
from tests.support.runs import run_pytest


@pytest.mark.parametrize(("groups", "kind"), [([3, 6], 0), ([3, 3], 1)], ids=["ends", "sizes"])
@pytest.mark.parametrize("with_files", [True, False], ids=["tensors", "statistics"])
def test_rows_behind_the_last_group_are_neither_compared_nor_checked(
    pytester: pytest.Pytester, groups: list[int], kind: int, with_files: bool
) -> None:
    target, golden = (
        grouped(folder, rubbish, groups, kind, with_files=with_files)
        for folder, rubbish in ((pytester.path / "target", 41.0), (pytester.path / "golden", 1.0))
    )
    assert run_pytest(pytester, f"--msprobe-compare={target}", f"--msprobe-golden={golden}").ret == 0
    run_pytest(pytester, f"--msprobe-dump={target}").assert_outcomes(passed=1)


def test_a_row_of_a_group_is_compared_though_others_are_undefined(pytester: pytest.Pytester) -> None:
    folders = [pytester.path / "target", pytester.path / "golden"]
    target, golden = (grouped(folder, at, [3, 6], 0) for folder, at in zip(folders, (9.0, 1.0), strict=True))
    file = folders[0] / "dump_tensor_data" / "y.pt"
    y = torch.load(file)
    y[5, 2] += 1.0
    torch.save(y, file)
    result = run_pytest(pytester, f"--msprobe-compare={target}", f"--msprobe-golden={golden}")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["output.0.0: 6 of 8 rows compared: the others belong to no group; *worst at [[]5, 2]*"]
    )
