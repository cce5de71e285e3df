"""``pytest-msprobe msprobe series`` as a user runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from msprobe_hooks.extensions.monitor.series.reader import open_run, rank_folders
from pytest_msprobe.commands.main import main
from tests.support.dumps.dump_files import forward, tensor_around, write_dump


def record(folder: Path) -> Path:
    for step in range(3):
        for rank in range(2):
            x = tensor_around(3, at=1.0 + step + rank)
            write_dump(folder / f"step{step}/rank{rank}", {"Module.0.Linear.forward.0": forward(x)}, level="L0")
    return folder


def test_a_recording_becomes_a_database_and_that_a_monitored_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dump, database, back = record(tmp_path / "dump"), tmp_path / "run.trend.db", tmp_path / "back"
    assert main(["msprobe", "series", str(dump), "-o", str(database)]) == 0
    assert capsys.readouterr().out == f"16 series of 2 ranks: {database}\n"
    assert main(["msprobe", "series", str(database), "-o", str(back)]) == 0
    for ours, theirs in zip(rank_folders(dump), rank_folders(back), strict=True):
        before, after = open_run(ours), open_run(theirs)
        assert {*before.keys} == {*after.keys}
        for key in before.keys:
            assert before.read(key).values.tolist() == after.read(key).values.tolist()


@pytest.mark.parametrize(
    ("source", "target", "problem"),
    [
        ("dump", "out.csv", "not a .trend.db file"),
        ("nothing", "a.trend.db", "no such folder"),
        ("nothing.trend.db", "out", "no such file"),
        ("empty", "a.trend.db", "no series here"),
    ],
)
def test_what_cannot_be_converted_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str, target: str, problem: str
) -> None:
    record(tmp_path / "dump")
    (tmp_path / "empty").mkdir()
    assert main(["msprobe", "series", str(tmp_path / source), "-o", str(tmp_path / target)]) == 2
    error = capsys.readouterr().err
    assert problem in error
    assert len(error.splitlines()) == 1


def test_an_unknown_command_of_msprobe_is_answered_with_the_one_that_was_meant(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["msprobe", "seires"])
    assert "; did you mean 'series'?\n" in capsys.readouterr().err
