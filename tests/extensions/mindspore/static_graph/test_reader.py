"""Iterations of static graphs, read from files as MindSpore writes them."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
import pytest

from msprobe_hooks.dump.reader import open_dump
from msprobe_hooks.dump.recording_paths import StepRank, find_dumps, step_rank
from msprobe_hooks.dump.values import read_values
from msprobe_hooks.errors import DumpError, RecordError
from msprobe_hooks.extensions.mindspore.static_graph.reader import GraphDump
from tests.support.dumps.static_graphs import TITLES, GraphFolder

ONE = np.ones((2, 3), np.float32)


@pytest.fixture
def run(tmp_path: Path) -> GraphFolder:
    return GraphFolder(tmp_path)


def opened(folder: Path) -> GraphDump:
    (path,) = find_dumps(folder)
    return cast("GraphDump", open_dump(path))


def test_kernels_are_records_in_the_order_in_which_they_ran(run: GraphFolder) -> None:
    iteration = run.iteration()
    run.kernel(iteration, "MatMul.Default_f-Dense_MatMul-op0", [ONE, ONE.T], [ONE @ ONE.T])
    run.kernel(iteration, "Add.Default_Add-op0", [ONE, ONE], [ONE])
    run.kernel(iteration, "MatMul.Gradients_Default_f-Dense_MatMul-op1", [ONE], [ONE])
    run.kernel(iteration, "Parameter.f_weight", [], [ONE])
    dump = opened(run.folder)
    assert list(dump.records) == [
        "Kernel.Default_f-Dense_MatMul-op0.0.forward",
        "Kernel.Default_Add-op0.0.forward",
        "Kernel.Gradients_Default_f-Dense_MatMul-op1.0.backward",
        "Parameter.f_weight.0.forward",
    ]
    assert (dump.framework, dump.level, dump.task) == ("mindspore", "L2", "tensor")


def test_the_tensors_of_a_kernel_have_shape_dtype_and_file(run: GraphFolder) -> None:
    iteration = run.iteration()
    mask = np.zeros((3,), np.bool_)
    files = run.kernel(iteration, "ReduceSum.Expand__SumExt_ReduceSum-op0", {0: ONE, 2: mask}, [ONE[0]])
    kernel = opened(run.folder).kernels["Kernel.Expand__SumExt_ReduceSum-op0.0.forward"]
    assert kernel.type == "ReduceSum"
    assert {slot: (x.dtype, x.shape) for slot, x in kernel.inputs.items()} == {
        0: ("Float32", (2, 3)),
        2: ("Bool", (3,)),
    }
    assert kernel.outputs[0].data_name == f"0/0/{files[-1].name}"


def test_an_op_that_runs_again_has_the_next_number(run: GraphFolder) -> None:
    iteration = run.iteration()
    for power in (2, 4, 8):
        run.kernel(iteration, "Mul.Default_while_Mul-op0", [ONE * power], [ONE * power * 2])
    dump = opened(run.folder)
    assert list(dump.records) == [f"Kernel.Default_while_Mul-op0.{number}.forward" for number in range(3)]
    for number, power in enumerate((2, 4, 8)):
        first, *_ = read_values(dump, f"Kernel.Default_while_Mul-op0.{number}.forward")
        assert first.place == "input.0"
        assert np.load(dump.tensor_folder / str(first.value.data_name))[0, 0] == power


def test_iterations_are_steps_and_their_folders_show_the_rank(run: GraphFolder) -> None:
    for rank, number in ((0, 2), (0, 10), (3, 2)):
        run.kernel(run.iteration(number, rank=rank), "Add.Default_Add-op0", [ONE], [ONE])
    assert [step_rank(path) for path in find_dumps(run.folder)] == [StepRank(2, 0), StepRank(10, 0), StepRank(2, 3)]


def test_graphs_that_ran_in_one_iteration_are_one_dump(run: GraphFolder) -> None:
    run.kernel(run.iteration(4, graph=1), "Add.Default_Add-op1", [ONE], [ONE])
    run.kernel(run.iteration(4, graph=0), "Add.Default_Add-op0", [ONE], [ONE])
    assert list(opened(run.folder).records) == ["Kernel.Default_Add-op1.0.forward", "Kernel.Default_Add-op0.0.forward"]


def test_a_name_that_was_too_long_stands_in_the_mapping(run: GraphFolder) -> None:
    iteration = run.iteration()
    file, _ = run.kernel(iteration, "Add.Default_Add-op0", [ONE], [ONE])
    file.rename(iteration / "17.npy")
    (iteration / "mapping.csv").write_text(f"id,name\n17,{file.name}\n")
    assert list(opened(run.folder).kernels["Kernel.Default_Add-op0.0.forward"].inputs) == [0]


def test_a_number_without_mapping_is_an_error_that_names_both(run: GraphFolder) -> None:
    iteration = run.iteration()
    file, _ = run.kernel(iteration, "Add.Default_Add-op0", [ONE], [ONE])
    file.rename(iteration / "17.npy")
    with pytest.raises(DumpError, match=r"0/17\.npy: .* no mapping\.csv next to it lists it; copy that file"):
        opened(run.folder)


def test_a_file_that_is_no_tensor_of_a_kernel_is_named(run: GraphFolder) -> None:
    np.save(run.iteration() / "notes.npy", ONE)
    with pytest.raises(DumpError, match=r"notes\.npy: not the name of a kernel's tensor"):
        opened(run.folder)


@pytest.mark.parametrize("kept", [0, 40, 140])
def test_a_file_that_was_cut_off_costs_its_kernel_alone(run: GraphFolder, kept: int) -> None:
    iteration = run.iteration()
    run.kernel(iteration, "Add.Default_Add-op0", [ONE], [ONE])
    *_, last = run.kernel(iteration, "Mul.Default_Mul-op0", [ONE], [ONE])
    last.write_bytes(last.read_bytes()[:kept])
    dump = opened(run.folder)
    assert len(read_values(dump, "Kernel.Default_Add-op0.0.forward")) == 2
    with pytest.raises(RecordError, match=r"Mul-op0.*output\.0.*: incomplete, .*; the run ended while it was written"):
        dump.body("Kernel.Default_Mul-op0.0.forward")


@pytest.mark.parametrize("header", ["{'descr': '<f4', 'shape': (", "{[]: 1}", "'a text"])
def test_a_header_that_is_damaged_costs_its_kernel_alone(run: GraphFolder, header: str) -> None:
    *_, last = run.kernel(run.iteration(), "Mul.Default_Mul-op0", [ONE], [ONE])
    last.write_bytes(b"\x93NUMPY\x01\x00\x76\x00" + header.ljust(0x75).encode() + b"\n" + bytes(24))
    with pytest.raises(RecordError, match=r"output\.0.*: incomplete, its header cannot be read"):
        opened(run.folder).body("Kernel.Default_Mul-op0.0.forward")


def test_bfloat16_is_reported_by_the_name_of_its_file(run: GraphFolder) -> None:
    iteration = run.iteration()
    for file in run.kernel(iteration, "Add.Default_Add-op0", [ONE], [ONE]):
        file.rename(file.with_name(file.name.replace("Float32", "BFloat16")))
    assert opened(run.folder).kernels["Kernel.Default_Add-op0.0.forward"].inputs[0].dtype == "BFloat16"


def test_statistics_are_read_from_their_table(run: GraphFolder) -> None:
    row = 'Add,Default/net-Net/Add-op0,0,0,17,{},0,24,float32,"(2,3)",{},-inf,nan,5'
    table = run.iteration() / "statistic.csv"
    table.write_text("\n".join([TITLES, row.format("input", "3.5"), row.format("output", "null")]) + "\n")
    dump = opened(run.folder)
    assert (dump.task, dump.has_statistics) == ("statistics", True)
    given, made = read_values(dump, "Kernel.Default_net-Net_Add-op0.0.forward")
    value, result = given.value, made.value
    assert (given.place, value.dtype, value.shape) == ("input.0", "float32", (2, 3))
    assert value.statistics is not None
    assert value.statistics[:2] == (3.5, float("-inf"))
    assert np.isnan(value.statistics[2] or 0)
    assert result.statistics is not None
    assert result.statistics[0] is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Op Type,Op Name\nAdd,x\n", "has no column 'Timestamp'"),
        ("", "has no column 'Op Type'"),
        (f"{TITLES}\nAdd,Default/Add-op0,0,0,17,inp", "line 2 is damaged: Add,Default/Add-op0,0,0,17,inp"),
        (f'{TITLES}\n"Add', "not a table"),
    ],
)
def test_a_damaged_table_of_statistics_is_one_clear_error(run: GraphFolder, text: str, problem: str) -> None:
    (run.iteration() / "statistic.csv").write_text(text)
    with pytest.raises(DumpError, match=f"statistic\\.csv: {problem}"):
        opened(run.folder)
