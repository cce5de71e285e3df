"""msprobe's ``.trend.db``, written and read; what is expected was read from the tables by SQL."""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from msprobe_hooks.errors import MonitorError
from msprobe_hooks.extensions.monitor.series.conversion import read_database, write_database
from msprobe_hooks.extensions.monitor.series.reader import Run, SeriesKey, open_run
from tests.support.dumps.dump_files import forward, tensor_around, write_dump
from tests.support.dumps.watched import norm, write_norms

# The tables that msprobe 26.2 makes, with a row as its data2db writes them of a call of an API and of a module.
OF_MSPROBE = """
CREATE TABLE monitoring_targets (target_id INTEGER PRIMARY KEY AUTOINCREMENT, target_name TEXT NOT NULL,
    vpp_stage INTEGER NOT NULL, micro_step INTEGER NOT NULL DEFAULT 0, UNIQUE(target_name, vpp_stage, micro_step));
CREATE TABLE monitoring_metrics (metric_id INTEGER PRIMARY KEY AUTOINCREMENT, metric_name TEXT UNIQUE NOT NULL);
CREATE TABLE trend_data (rank INTEGER NOT NULL, step INTEGER NOT NULL, target_id INTEGER NOT NULL,
    metric_id INTEGER NOT NULL, norm REAL DEFAULT NULL, max REAL DEFAULT NULL, min REAL DEFAULT NULL,
    mean REAL DEFAULT NULL, PRIMARY KEY (rank, step, target_id, metric_id)) WITHOUT ROWID;
INSERT INTO monitoring_metrics VALUES (1, 'forward');
INSERT INTO monitoring_targets VALUES (1, 'Functional.linear.output.0', 0, 3), (2, 'Module.fc.Linear.output.0', 0, 1);
INSERT INTO trend_data VALUES (0, 5, 1, 1, 2.5, 1000000001.0, -1000000001.0, NULL), (0, 5, 2, 1, 1.0, 2.0, 3.0, 4.0),
    (1, 6, 2, 1, 8.0, 9.0, 10.0, 11.0);
"""


def read_table(path: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute(query).fetchall()


def recorded(folder: Path) -> Run:
    for step, at in ((0, 1.0), (1, 4.0)):
        x = tensor_around(3, at=at)
        records = {"Functional.linear.3.forward": forward(x), "Module.0.Linear.forward.1": forward(x)}
        write_dump(folder / f"step{step}/rank2", records, level="mix")
    return open_run(folder / "step0/rank2")


def test_a_database_of_msprobe_is_read_as_rows_of_each_rank_and_step(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.trend.db")) as database:
        database.executescript(OF_MSPROBE)
    first, second = read_database(tmp_path / "a.trend.db")
    assert (first[0], second[0]) == (0, 1)
    assert first[1] == ["norm", "max", "min", "mean"]
    call, module = first[2]
    assert (call.task, call.name, call.step, call.micro_step) == ("forward", "Functional.linear.3.output.0", 5, None)
    assert call.values[:3] == (2.5, math.inf, -math.inf)
    assert math.isnan(call.values[3])
    assert (module.name, module.micro_step, module.values) == ("Module.fc.Linear.output.0", 1, (1.0, 2.0, 3.0, 4.0))
    assert [(row.step, row.values) for row in second[2]] == [(6, (8.0, 9.0, 10.0, 11.0))]


def test_a_recording_becomes_the_rows_that_data2db_makes_of_it(tmp_path: Path) -> None:
    write_database(tmp_path / "a.trend.db", {2: recorded(tmp_path)})
    query = """SELECT rank, step, metric_name, target_name, vpp_stage, micro_step, norm, max, min, mean
        FROM trend_data JOIN monitoring_targets USING (target_id) JOIN monitoring_metrics USING (metric_id)"""
    tensors = [("Functional.linear", 3), ("Module.0.Linear", 1)]
    assert sorted(read_table(tmp_path / "a.trend.db", query)) == sorted(
        (2, step, "forward", f"{name}.{place}", 0, number, 2 * at, at, -at, at / 4)
        for step, at in ((0, 1.0), (1, 4.0))
        for name, number in tensors
        for place in ("input.0", "output.0")
    )
    assert read_table(tmp_path / "a.trend.db", "SELECT * FROM global_stats") == [(2, 0, 1, "norm,min,max,mean")]


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    run = recorded(tmp_path)
    write_database(tmp_path / "a.trend.db", {2: run})
    back = {
        (row.name, row.micro_step, statistic, row.step): value
        for _, statistics, rows in read_database(tmp_path / "a.trend.db")
        for row in rows
        for statistic, value in zip(statistics, row.values, strict=True)
    }
    series = [run.read(key) for key in run.keys]
    assert back == {
        (each.key.name, each.key.micro_step, each.key.statistic, step): value
        for each in series
        for step, value in zip(each.steps.tolist(), each.values.tolist(), strict=True)
    }


def test_layers_and_modules_are_tags_of_their_tensors(tmp_path: Path) -> None:
    run = write_norms(tmp_path / "run", {norm("layers.3.attn.weight"): [1.0, 2.0]})
    write_database(tmp_path / "a.trend.db", {0: run})
    tags = read_table(tmp_path / "a.trend.db", "SELECT tag_name, category FROM monitoring_tags")
    assert {("layers.3", "layer"), ("attn", "module"), ("weight", "module")} <= set(tags)
    assert read_table(tmp_path / "a.trend.db", "SELECT count(*) FROM tag_target_mapping") == [(len(tags),)]


def test_what_the_viewer_does_not_show_is_named(tmp_path: Path) -> None:
    run = write_norms(tmp_path / "run", {norm("weight"): [1.0]})
    odd = tmp_path / "run" / "grad_reduced_0-999.csv"
    odd.write_text(odd.read_text().replace(",norm", ",norm,rms").replace(",1.0", ",1.0,0.5"))
    (note,) = write_database(tmp_path / "a.trend.db", {0: open_run(run.folder)})
    assert note == "statistics that the trend viewer does not show are left out: rms"
    assert SeriesKey("grad_reduced", 0, "weight", None, "rms") in open_run(run.folder).keys


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "a.trend.db").write_text("mine")
    with pytest.raises(MonitorError, match="the file exists; remove it or choose another name"):
        write_database(tmp_path / "a.trend.db", {0: recorded(tmp_path)})


@pytest.mark.parametrize("content", [b"no database", b""], ids=["text", "empty"])
def test_a_file_that_is_no_trend_database_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.trend.db").write_bytes(content)
    with pytest.raises(MonitorError, match=r"a\.trend\.db: .*pass the \.trend\.db that"):
        [*read_database(tmp_path / "a.trend.db")]


def test_nothing_is_left_of_a_run_that_cannot_be_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = recorded(tmp_path)
    last, read = run.keys[-1], Run.read

    def read_until_the_last(self: Run, key: SeriesKey) -> Any:
        if key == last:
            raise MonitorError("the disk failed")
        return read(self, key)

    monkeypatch.setattr(Run, "read", read_until_the_last)
    with pytest.raises(MonitorError, match="the disk failed"):
        write_database(tmp_path / "a.trend.db", {2: run})
    assert [*tmp_path.glob("a.trend.db*")] == []
