"""Statistics of a recording, read as series over its steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from msprobe_hooks.errors import MonitorError
from msprobe_hooks.extensions.monitor.series.reader import SeriesKey, open_run, rank_folders
from tests.support.dumps.dump_files import forward, tensor, tensor_around, write_dump

OUTPUT = SeriesKey("forward", 0, "Module.layers.0.Linear.output.0", 0, "norm")


def record(folder: Path, step: int, at: float, *, rank: str = "rank0") -> Path:
    """Write a step whose statistics all grow with ``at``."""
    x = tensor_around(2, 4, at=at)
    records = {
        "Functional.linear.3.forward": forward(x),
        "Module.layers.0.Linear.forward.0": forward(x) | {"parameters": {"weight": tensor_around(4, 4, at=7 * at)}},
        "Module.layers.0.Linear.backward.0": {"input": [x], "output": [x]},
        "Module.layers.0.Linear.parameters_grad": {"weight": [tensor_around(4, 4, at=3 * at)]},
    }
    return write_dump(folder / f"step{step}" / rank, records, level="mix")


def test_a_tensor_of_a_module_is_a_series_over_the_steps(tmp_path: Path) -> None:
    for step, at in ((0, 1.0), (2, 5.0), (10, 3.0)):
        record(tmp_path, step, at)
    (folder,) = rank_folders(tmp_path)
    series = open_run(folder).read(OUTPUT)
    assert series.steps.tolist() == [0, 2, 10]
    assert series.values.tolist() == [2.0, 10.0, 6.0]


def test_a_process_without_a_rank_is_rank_0_also_where_a_later_one_went_on(tmp_path: Path) -> None:
    for step, process in ((0, "proc2033"), (1, "proc2033"), (2, "proc7")):
        record(tmp_path, step, 1.0, rank=process)
    (folder,) = rank_folders(tmp_path)
    assert folder == tmp_path / "step0/proc2033"
    assert open_run(folder).read(OUTPUT).steps.tolist() == [0, 1, 2]


def test_two_processes_without_a_rank_in_one_step_are_refused(tmp_path: Path) -> None:
    for process in ("proc1", "proc2"):
        record(tmp_path, 0, 1.0, rank=process)
    with pytest.raises(MonitorError, match="step0: proc1 and proc2 are both of rank 0; rename"):
        open_run(rank_folders(tmp_path)[0])


def test_every_kind_of_tensor_has_the_task_and_name_that_data2db_gives_it(tmp_path: Path) -> None:
    record(tmp_path, 0, 1.0)
    run = open_run(tmp_path / "step0/rank0")
    assert list(dict.fromkeys((key.task, key.name, key.micro_step) for key in run.keys)) == [
        ("forward", "Functional.linear.3.input.0", None),
        ("forward", "Functional.linear.3.output.0", None),
        ("forward", "Module.layers.0.Linear.input.0", 0),
        ("forward", "Module.layers.0.Linear.parameters.weight", 0),
        ("forward", "Module.layers.0.Linear.output.0", 0),
        ("backward", "Module.layers.0.Linear.input.0", 0),
        ("backward", "Module.layers.0.Linear.output.0", 0),
        ("parameters_grad", "Module.layers.0.Linear.weight", 0),
    ]


def test_the_four_statistics_keep_their_names(tmp_path: Path) -> None:
    write_dump(
        tmp_path / "step0/rank0", {"Torch.exp.0.forward": forward(tensor(3, Max=4.0, Min=-3.0, Mean=0.5, Norm=9.0))}
    )
    run = open_run(tmp_path / "step0/rank0")
    found = {key.statistic: run.read(key).values[0] for key in run.keys if key.name == "Torch.exp.0.input.0"}
    assert found == {"norm": 9.0, "max": 4.0, "min": -3.0, "mean": 0.5}


def test_each_rank_has_its_own_series(tmp_path: Path) -> None:
    for rank in (0, 1, 10):
        record(tmp_path, 0, 1.0 + rank, rank=f"rank{rank}")
        record(tmp_path, 1, 2.0 + rank, rank=f"rank{rank}")
    folders = rank_folders(tmp_path)
    assert [folder.name for folder in folders] == ["rank0", "rank1", "rank10"]
    assert open_run(folders[2]).read(OUTPUT).values.tolist() == [22.0, 24.0]


def test_an_infinite_and_a_missing_statistic_stay_what_they_are(tmp_path: Path) -> None:
    x = tensor(3, Max="Infinity", Min=-1.0, Mean=None, Norm="NaN")
    write_dump(tmp_path / "step0/rank0", {"Torch.exp.0.forward": forward(x)})
    run = open_run(tmp_path / "step0/rank0")
    values = [run.read(SeriesKey("forward", 0, "Torch.exp.0.input.0", None, name)).values[0] for name in ("max", "min")]
    assert values == [np.inf, -1.0]
    assert np.isnan(run.read(SeriesKey("forward", 0, "Torch.exp.0.input.0", None, "norm")).values[0])


def test_a_step_that_was_cut_off_is_left_out_with_a_note(tmp_path: Path) -> None:
    for step in range(3):
        path = record(tmp_path, step, 1.0 + step)
    path.write_text(path.read_text()[:200])
    run = open_run(tmp_path / "step0/rank0")
    assert run.read(OUTPUT).steps.tolist() == [0, 1]
    (note,) = run.notes
    assert note.startswith("a step is left out: ")
    assert "step2/rank0/dump.json" in note


def test_a_recording_without_statistics_is_refused_by_name(tmp_path: Path) -> None:
    x = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [3], "md5": "0badf00d"}
    write_dump(tmp_path / "step0/rank0", {"Torch.exp.0.forward": forward(x)}, task="structure")
    with pytest.raises(MonitorError, match=r"step0/rank0: no step can be read; .* record with the task statistics"):
        open_run(tmp_path / "step0/rank0")


def test_whole_numbers_and_plain_values_are_no_series(tmp_path: Path) -> None:
    index = tensor(3, dtype="int64", low=0, high=3)
    write_dump(tmp_path / "step0/rank0", {"Torch.exp.0.forward": forward(tensor_around(3), index)})
    run = open_run(tmp_path / "step0/rank0")
    assert {key.name for key in run.keys} == {"Torch.exp.0.input.0", "Torch.exp.0.output.0"}


def test_a_first_step_whose_dump_is_a_folder_is_no_step(tmp_path: Path) -> None:
    (tmp_path / "step0/rank0/dump.json").mkdir(parents=True)
    record(tmp_path, 1, 4.0)
    (folder,) = rank_folders(tmp_path)
    assert folder == tmp_path / "step1/rank0"
    assert open_run(folder).read(OUTPUT).steps.tolist() == [1]
