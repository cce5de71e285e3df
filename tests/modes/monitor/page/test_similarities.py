"""Sign similarities beside the series of a pair."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pytest_msprobe.modes.monitor.page import gap
from pytest_msprobe.modes.monitor.page.building import build_page
from pytest_msprobe.modes.monitor.page.model import RankRuns
from pytest_msprobe.modes.monitor.page.similarities import similarities
from tests.support.watched import norm, write_norms


def write_signs(run: Path, *steps: list[bool]) -> None:
    """Write the sign maps of a weight as a gradient probe of rank 0 does."""
    for step, signs in enumerate(steps):
        (run / "rank0" / f"step{step}").mkdir(parents=True)
        (run / "rank0" / f"grad_summary_{step}.csv").write_text("param_name\r\nfc.weight\r\n")
        np.save(run / "rank0" / f"step{step}" / "fc.weight", np.array(signs))


def test_a_pair_that_was_probed_too_shows_how_many_signs_agree(tmp_path: Path) -> None:
    target, golden = tmp_path / "a", tmp_path / "b"
    write_signs(target, [True, False, True, False], [True, True, True, True])
    write_signs(golden, [True, False, True, False], [True, True, True, False])
    runs = [
        write_norms(run / "Dec03_21-34-40-rank0-1d6d9d83", {norm("fc.weight"): [1.0, 1.0]}) for run in (target, golden)
    ]
    found = similarities(target, golden, 0)
    page = build_page([RankRuns("", runs[0].keys, *runs, similarities=found)], title="a", about="b", verdict="c")
    norms, signs = page.curves
    assert (norms.key.name, norms.key.task) == (signs.key.name, signs.key.task)
    assert signs.key.statistic == "sign_similarity"
    assert signs.target is not None
    assert signs.target.low.tolist() == [1.0, 0.75]
    assert signs.gap is not None
    assert signs.gap[0] == gap.EQUAL < signs.gap[1]


def test_without_a_probe_there_is_nothing_to_show(tmp_path: Path) -> None:
    write_signs(tmp_path / "a", [True])
    (tmp_path / "b").mkdir()
    assert similarities(tmp_path / "a", tmp_path / "b", 0) == []
    assert similarities(tmp_path / "a", tmp_path / "a", 1) == []
