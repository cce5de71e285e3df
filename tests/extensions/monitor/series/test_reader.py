from __future__ import annotations

import os
import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from msprobe_hooks.errors import MonitorError
from msprobe_hooks.extensions.monitor.series.paths import rank_of, run_folder
from msprobe_hooks.extensions.monitor.series.reader import Run, SeriesKey, open_run, rank_folders
from msprobe_hooks.extensions.monitor.series.writer import Row, open_writer
from tests.support.requirements import require

HEADER = "vpp_stage,name,step,norm\n"


@pytest.fixture
def folder(tmp_path):
    """Make a folder with files of the given texts, written in their order."""

    def made(files: dict[str, str], name: str = "run") -> Path:
        (tmp_path / name).mkdir()
        for at, (file, text) in enumerate(files.items()):
            path = tmp_path / name / file
            path.write_text(text)
            os.utime(path, (at, at))
        return tmp_path / name

    return made


def values(run: Run) -> dict[str, dict[int, float]]:
    found = {f"{key.task} {key.name} {key.statistic}": run.read(key) for key in run.keys}
    return {name: dict(zip(each.steps.tolist(), each.values.tolist(), strict=True)) for name, each in found.items()}


def test_series_come_by_task_in_the_order_of_a_step_and_tensors_in_the_order_computed(folder):
    run = open_run(
        folder(
            {
                "grad_unreduced_0-0.csv": HEADER + "0,z,0,1\n0,b,0,1\n",
                "actv_0-0.csv": "vpp_stage,name,step,micro_step,norm,max\n0,b.input,0,0,1,2\n0,a.input,0,1,3,4\n",
            }
        )
    )
    assert run.keys == [
        SeriesKey("actv", 0, "b.input", 0, "norm"),
        SeriesKey("actv", 0, "b.input", 0, "max"),
        SeriesKey("actv", 0, "a.input", 1, "norm"),
        SeriesKey("actv", 0, "a.input", 1, "max"),
        SeriesKey("grad_unreduced", 0, "z", None, "norm"),
        SeriesKey("grad_unreduced", 0, "b", None, "norm"),
    ]


def test_reduced_gradients_come_in_the_order_in_which_the_unreduced_arrived(folder):
    files = {
        "grad_reduced_0-0.csv": HEADER + "0,a,0,1\n0,b,0,1\n0,c,0,1\n",
        "grad_unreduced_0-0.csv": HEADER + "0,c,0,1\n0,b,0,1\n0,a,0,1\n",
    }
    assert [key.name for key in open_run(folder(files)).keys] == ["c", "b", "a", "c", "b", "a"]


def test_a_series_goes_on_over_files_whose_statistics_differ(folder):
    run = open_run(
        folder({"param_0-0.csv": HEADER + "0,w,0,1\n", "param_1-1.csv": "vpp_stage,name,step,max,norm\n0,w,1,5,2\n"})
    )
    assert values(run) == {"param w norm": {0: 1.0, 1: 2.0}, "param w max": {1: 5.0}}


def test_a_file_of_26_shows_shape_and_dtype_next_to_the_statistics(folder):
    text = 'vpp_stage,name,step,norm,shape,dtype\n0,w,2,0.5,"[3, 4]",torch.float32\n0,b,2,nan,nan,nan\n'
    assert values(open_run(folder({"param_origin_2-2.csv": text})))["param_origin w norm"] == {2: 0.5}


def test_mindspores_files_show_input_and_output_in_one_line(folder):
    files = {
        "actv_grad_0-0.csv": (
            "module_name,step,input_grad.norm,input_grad.max,output_grad.norm,output_grad.max\nm,0,1,2,3,4\n"
        ),
        "param_0-0.csv": "vpp_stage,param_name,step,norm\n1,w,0,5\n",
    }
    run = open_run(folder(files))
    assert values(run) == {
        "param w norm": {0: 5.0},
        "actv_grad m.input norm": {0: 1.0},
        "actv_grad m.input max": {0: 2.0},
        "actv_grad m.output norm": {0: 3.0},
        "actv_grad m.output max": {0: 4.0},
    }
    assert run.keys[0].vpp_stage == 1


def test_mindspores_nan_is_an_empty_cell(folder):
    run = open_run(folder({"grad_reduced_0-0.csv": "param_name,step,norm,max\nw,0,,1.5\n"}))
    norm, largest = (run.read(key).values for key in run.keys)
    assert np.isnan(norm).tolist() == [True]
    assert largest.tolist() == [1.5]


def test_a_file_of_monitor_v2_holds_several_tasks(folder):
    text = "vpp_stage,step,module_name,scope,micro_step,norm\n0,0,m.input,forward,0,1\n0,0,m.input,backward,0,2\n"
    run = open_run(folder({"module_step0-0.csv": text}, "rank_3"))
    assert run.rank == 3
    assert values(run) == {"actv m.input norm": {0: 1.0}, "actv_grad m.input norm": {0: 2.0}}


def test_a_resumed_run_is_read_as_it_was_written_last(folder):
    run = open_run(
        folder(
            {
                "param_0-9.csv": HEADER + "".join(f"0,w,{step},1\n" for step in range(7)),
                "param_4-7.csv": HEADER + "".join(f"0,w,{step},2\n" for step in range(4, 8)),
            }
        )
    )
    assert values(run) == {"param w norm": {0: 1, 1: 1, 2: 1, 3: 1, 4: 2, 5: 2, 6: 2, 7: 2}}
    assert run.notes == ["param: steps 4 to 6 were written more than once; the last values are used"]


def test_which_file_was_written_last_is_reported_by_time_and_not_by_name(folder):
    run = open_run(folder({"param_4-7.csv": HEADER + "0,w,4,1\n", "param_0-9.csv": HEADER + "0,w,4,2\n"}))
    assert values(run) == {"param w norm": {4: 2.0}}


def test_a_step_that_is_resumed_in_the_same_file_is_reported(folder):
    run = open_run(folder({"param_0-9.csv": HEADER + "0,w,4,1\n0,w,5,1\n0,w,4,2\n"}))
    assert values(run) == {"param w norm": {4: 2.0, 5: 1.0}}
    assert run.notes == ["param: step 4 was written more than once; the last values are used"]


def test_steps_out_of_order_are_put_in_order_and_reported(folder):
    run = open_run(folder({"param_0-9.csv": HEADER + "0,w,5,1\n0,w,4,2\n"}))
    assert [*values(run)["param w norm"].items()] == [(4, 2.0), (5, 1.0)]
    assert run.notes == ["param: step 4 was written after later steps; sorted"]


def test_tensors_that_come_in_turn_are_no_disorder(folder):
    assert not open_run(folder({"param_0-9.csv": HEADER + "0,w,0,1\n0,b,0,1\n0,w,1,1\n0,b,1,1\n"})).notes


@pytest.mark.parametrize("end", ["0,w,1,2.", "0,w", '0,w,1,"[3', "0,w,1,2,0,w,2,3\n"])
def test_a_cut_line_is_left_out_and_named_by_its_number(folder, end):
    run = open_run(folder({"param_0-9.csv": HEADER + "0,w,0,1\n" + end}))
    assert values(run) == {"param w norm": {0: 1.0}}
    assert run.notes == ["param_0-9.csv: line 3 is cut off and left out"]


def test_a_file_that_ends_before_its_header_is_left_out_and_named(folder):
    run = open_run(folder({"param_0-0.csv": HEADER + "0,w,0,1\n", "param_1-1.csv": "vpp_sta"}))
    assert values(run) == {"param w norm": {0: 1.0}}
    assert run.notes == ["param_1-1.csv: it ends before its header does and is left out"]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("0,w,0,much", "expected a number, found 'much'"),
        ("0,w,first,1", "expected an integer, found 'first'"),
        (f"0,w,{10**30},1", "expected an integer, found"),
        ("0,w,0,\udcff", "expected a number, found"),
    ],
)
def test_text_that_cannot_be_read_is_named_by_file_and_line(tmp_path, line, problem):
    (tmp_path / "param_0-9.csv").write_bytes((HEADER + f"0,w,0,1\n{line}\n").encode(errors="surrogateescape"))
    with pytest.raises(MonitorError, match=rf"param_0-9\.csv:3: .*{problem}"):
        values(open_run(tmp_path))


@pytest.mark.parametrize(
    "header", ["a,b,c", "vpp_stage,name,step", "name,step,input.norm,output.max", "name,step,norm,norm"]
)
def test_columns_that_are_not_of_a_watched_run_are_named(folder, header):
    with pytest.raises(MonitorError, match=rf"param_0-9\.csv: its columns are '{header}'"):
        open_run(folder({"param_0-9.csv": f"{header}\n"}))


@pytest.mark.parametrize(
    ("file", "whose"),
    [
        ("deeper/step0/rank/dump.json", "pass the folder that holds step<N>/rank<N>/dump.json"),
        ("run/rank0/grad_summary_0.csv", r"pass the folder that holds rank<N>"),
        ("events.out.tfevents.1.vm.1.0", "TensorBoard events, which cannot be read"),
        ("stack_info.csv", "pass the folder that a monitored run wrote"),
    ],
)
def test_a_folder_of_another_tool_is_refused_with_what_it_is(tmp_path, file, whose):
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).touch()
    for read in (open_run, rank_folders):
        with pytest.raises(MonitorError, match=f"no series here.*{whose}"):
            read(tmp_path)


def test_a_folder_that_is_not_there_is_one_error(tmp_path):
    with pytest.raises(MonitorError, match=r"gone: cannot be read: No such file or directory"):
        open_run(tmp_path / "gone")


def test_ranks_are_in_the_order_of_their_numbers_and_of_several_starts_the_last_counts(folder, tmp_path):
    files = {"param_0-0.csv": HEADER + "0,w,0,1\n"}
    names = ("Nov03_21-34-40-rank0-1d6d9d83", "Dec03_21-34-40-rank0-2d6d9d83", "Dec03_21-34-40-rank10-3d6d9d83")
    older, last, ten = (folder(files, name) for name in names)
    two = folder(files, "Dec03_21-34-41-rank2-4d6d9d83")
    assert rank_folders(tmp_path) == [last, two, ten]
    assert open_run(last).notes == [f"{older.name} is left out: an earlier start of the same rank"]
    assert open_run(older).notes == []


@pytest.mark.parametrize(("rank", "reported"), [(None, 0), (3, 3)])
def test_a_folder_of_a_new_run_shows_its_rank(tmp_path, rank, reported):
    new = run_folder(tmp_path, rank)
    assert re.fullmatch(rf"[A-Z][a-z]{{2}}\d\d_\d\d-\d\d-\d\d-rank{reported}-[0-9a-f]{{8}}", new.name)
    assert rank_of(new) == reported


def test_a_ranks_own_folder_gives_itself(folder):
    run = folder({"param_0-0.csv": HEADER})
    assert rank_folders(run) == [run]
    assert open_run(run).keys == []


def test_a_series_that_a_run_does_not_have_is_a_key_error(folder):
    run = open_run(folder({"param_0-0.csv": HEADER + "0,w,0,1\n"}))
    for name, statistic in (("v", "norm"), ("w", "max")):
        with pytest.raises(KeyError):
            run.read(SeriesKey("param", 0, name, None, statistic))


def test_a_run_that_is_being_written_is_read_as_it_was_when_it_was_opened(folder):
    path = folder({"param_0-9.csv": HEADER + "0,w,0,1\n0,w,1"}) / "param_0-9.csv"
    run = open_run(path.parent)
    with path.open("a") as file:
        file.write(",2\n0,w,2,3\n")
    assert values(run) == {"param w norm": {0: 1.0}}
    assert values(open_run(path.parent)) == {"param w norm": {0: 1.0, 1: 2.0, 2: 3.0}}


@pytest.mark.parametrize("text", ["0,w,0,1\n", "0,w,0,1\n" * 3])
def test_a_run_whose_files_become_others_while_it_is_read_is_one_error(folder, text):
    path = folder({"param_0-9.csv": HEADER + "0,w,10,1\n0,v,10,1\n"}) / "param_0-9.csv"
    run = open_run(path.parent)
    path.write_text(HEADER + text)
    with pytest.raises(MonitorError, match="changed while"):
        run.read(run.keys[0])


def test_a_file_that_goes_while_a_run_is_read_is_one_error(folder):
    path = folder({"param_0-9.csv": HEADER + "0,w,0,1\n"})
    run = open_run(path)
    (path / "param_0-9.csv").unlink()
    with pytest.raises(MonitorError, match=r"param_0-9\.csv: cannot be read: No such file or directory"):
        run.read(run.keys[0])


def test_a_csv_holds_what_was_added_though_the_program_went_no_further(tmp_path):
    writer = open_writer("csv", tmp_path, ["norm"], ndigits=6, steps_per_file=10)
    for step in range(3):
        writer.add([Row("param", 0, "w", step, None, (0.5,))])
        assert [*values(open_run(tmp_path))["param w norm"]] == [*range(step + 1)]


def test_parquet_holds_what_was_flushed_though_the_program_went_no_further(tmp_path):
    require(find_spec("pyarrow"), "pyarrow")
    writer = open_writer("parquet", tmp_path, ["norm"], ndigits=6, steps_per_file=10)
    writer.add([Row("param", 0, "w", 0, None, (0.5,))])
    writer.flush()
    writer.add([Row("param", 0, "w", 1, None, (1.5,))])
    assert values(open_run(tmp_path)) == {"param w norm": {0: 0.5}}


def test_a_writer_of_parquet_keeps_no_more_than_so_many_rows(tmp_path, monkeypatch):
    require(find_spec("pyarrow"), "pyarrow")
    monkeypatch.setattr("msprobe_hooks.extensions.monitor.series.writer._MOST_ROWS_WAITING", 3)
    writer = open_writer("parquet", tmp_path, ["norm"], ndigits=6, steps_per_file=1000)
    for step in range(5):
        writer.add([Row("param", 0, "w", step, None, (0.5,))])
    assert [*values(open_run(tmp_path))["param w norm"]] == [0, 1, 2, 3]
