"""Sign similarities next to the series of a pair."""

from __future__ import annotations

from pathlib import Path

from pytest_msprobe.extensions.monitor.golden.judge import signs_of
from pytest_msprobe.extensions.monitor.page import build
from pytest_msprobe.extensions.monitor.page.build import RankRuns, build_page
from tests.support.dumps.probed import write_probe
from tests.support.dumps.watched import norm, write_norms


def test_a_pair_that_was_probed_too_shows_how_many_signs_agree(tmp_path: Path) -> None:
    target, golden = tmp_path / "a", tmp_path / "b"
    write_probe(target / "rank0", [{"fc.weight": [1, -1, 1, -1]}, {"fc.weight": [1, 1, 1, 1]}])
    write_probe(golden / "rank0", [{"fc.weight": [1, -1, 1, -1]}, {"fc.weight": [1, 1, 1, -1]}])
    runs = [
        write_norms(run / "Dec03_21-34-40-rank0-1d6d9d83", {norm("fc.weight"): [1.0, 1.0]}) for run in (target, golden)
    ]
    signs = signs_of(*runs, [], None)
    assert signs is not None
    found = [signs.series(key) for key in signs.keys]
    page = build_page([RankRuns("", runs[0].keys, *runs, similarities=found)], title="a", about="b", verdict="c")
    norms, shares = page.curves
    assert (norms.key.name, norms.key.task) == (shares.key.name, shares.key.task)
    assert shares.key.statistic == "sign_similarity"
    assert shares.target is not None
    assert shares.target.low.tolist() == [1.0, 0.75]
    assert shares.gap is not None
    assert shares.gap[0] == build.EQUAL < shares.gap[1]


def test_without_a_probe_of_both_there_is_nothing_to_show(tmp_path: Path) -> None:
    runs = [
        write_norms(tmp_path / run / "Dec03_21-34-40-rank0-1d6d9d83", {norm("fc.weight"): [1.0]}) for run in ("a", "b")
    ]
    write_probe(tmp_path / "a" / "rank0", [{"fc.weight": [1, 1]}])
    assert signs_of(*runs, [], None) is None
    write_probe(tmp_path / "b" / "rank1", [{"fc.weight": [1, 1]}])
    assert signs_of(*runs, [], None) is None
