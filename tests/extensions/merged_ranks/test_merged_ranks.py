"""Runs of other layouts compared: ranks of a tensor and pipeline parallel training next to one process."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from pytest_msprobe.commands.main import main
from tests.support.dumps.dump_files import Json, forward, tensor_around, write_dump
from tests.support.dumps.parallel import record_run

Compare = Callable[..., pytest.RunResult]
_TARGET, _GOLDEN = "--msprobe-target-layout", "--msprobe-golden-layout"


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Record the training of the small transformer by a layout, once for each."""
    runs: dict[tuple[int, ...], Path] = {}

    def folder(tp: int = 1, pp: int = 1, vpp: int = 1, replicas: int = 1) -> Path:
        key = (tp, pp, vpp, replicas)
        if key not in runs:
            runs[key] = record_run(tmp_path_factory.mktemp("run"), tp, pp, vpp, replicas=replicas)
        return runs[key]

    return folder


def test_a_right_run_of_four_ranks_equals_that_of_one(compare: Compare, trained: Callable[..., Path]) -> None:
    result = compare(trained(tp=2, pp=2), trained(), _TARGET, "tp=2,pp=2")
    result.assert_outcomes(passed=456)
    result.stdout.fnmatch_lines(
        [
            "msprobe: ranks merged, target by tp=2,pp=2,vpp=1,order=tp-cp-ep-dp-pp",
            "no compared call differs*",
            "456 calls: 456 equal enough",
            "not compared, because ranks hold parts of a sum, and no recorded call reduces it: Functional.linear.3.*",
        ]
    )


@pytest.mark.slow
def test_both_runs_may_be_merged(compare: Compare, trained: Callable[..., Path]) -> None:
    result = compare(trained(tp=4), trained(tp=2, pp=2), _TARGET, "tp=4", _GOLDEN, "tp=2,pp=2")
    result.assert_outcomes(passed=456)


@pytest.mark.slow
def test_chunks_of_virtual_stages_are_one_model(compare: Compare, trained: Callable[..., Path]) -> None:
    result = compare(trained(pp=2, vpp=2), trained(), _TARGET, "pp=2,vpp=2")
    result.assert_outcomes(passed=456)


def test_data_parallel_ranks_are_pairs_of_their_own(compare: Compare, tmp_path: Path) -> None:
    target, golden = _ranks(tmp_path / "ours", 0, 1, 2, 3), _ranks(tmp_path / "theirs", 0, 1)
    result = compare(target, golden, _TARGET, "tp=2")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["wrong calls by rank and step:", "*rank0*ok", "*rank1*ok"])


def test_a_weight_that_is_wrong_on_one_rank_is_the_first_culprit(
    compare: Compare, trained: Callable[..., Path], tmp_path: Path
) -> None:
    def spoil(rank: int, weights: dict[str, torch.Tensor]) -> None:
        if rank == 3:
            weights["2.mlp.up"] = weights["2.mlp.up"] * 1.01

    wrong = record_run(tmp_path, tp=2, pp=2, spoil=spoil)
    result = compare(wrong, trained(), _TARGET, "tp=2,pp=2")
    result.stdout.fnmatch_lines(
        [
            "first forward culprit: weight layers.2.mlp.up differs (*); first read by Functional.linear.16.forward",
            "    in Module.layers.2.mlp.Mlp.forward.0",
        ]
    )
    assert "culprit: Functional.linear.4." not in result.stdout.str()


def test_a_copied_parameter_that_ranks_hold_differently_fails(
    compare: Compare, trained: Callable[..., Path], tmp_path: Path
) -> None:
    def spoil(rank: int, weights: dict[str, torch.Tensor]) -> None:
        if rank == 1:
            weights["2.mlp.bias"] = weights["2.mlp.bias"] * 1.01

    result = compare(record_run(tmp_path, tp=2, spoil=spoil), trained(), _TARGET, "tp=2")
    result.stdout.fnmatch_lines(
        [
            "first forward culprit: *",
            "    in Module.layers.2.mlp.Mlp.forward.0",
            "copies of the ranks differ; compared the one furthest from the golden run's: *"
            "Module.layers.2.mlp.Mlp.forward.0 parameters.bias*",
        ]
    )


def test_without_layouts_ranks_are_compared_each(compare: Compare, tmp_path: Path) -> None:
    result = compare(_ranks(tmp_path / "ours", 0, 1), _ranks(tmp_path / "theirs", 0, 1))
    result.assert_outcomes(passed=2)


def test_the_command_for_one_item_runs_it_again(compare: Compare, trained: Callable[..., Path]) -> None:
    first = trained(tp=2, pp=2) / "rank0" / "dump.json"
    name = "Functional.linear.12.forward"
    result = compare(Path(f"{first}::{name}"), trained(), _TARGET, "tp=2,pp=2")
    result.assert_outcomes(passed=1)


def test_a_layout_may_stand_in_a_file(
    compare: Compare, trained: Callable[..., Path], pytester: pytest.Pytester
) -> None:
    pytester.path.joinpath("target.yaml").write_text("tp: 2\npp: 2\norder: tp-cp-ep-dp-pp\n")
    compare(
        trained(tp=2, pp=2), trained(), _TARGET, "target.yaml", "-omsprobe_compare_quick=true"
    ).stdout.fnmatch_lines(["msprobe: ranks merged, target by tp=2,pp=2,vpp=1,order=tp-cp-ep-dp-pp"])


@pytest.mark.parametrize(("arguments", "shape"), [((), "[2]"), (("--golden", "theirs"), "[4]")])
def test_the_command_draws_merged_ranks(tmp_path: Path, arguments: tuple[str, ...], shape: str) -> None:
    name = "Module.layers.0.Layer.forward.0"
    for rank, at in enumerate((1.0, 3.0)):
        records = {name: forward(tensor_around(2, at=at))}
        write_dump(tmp_path / "ours" / f"rank{rank}", records, level="mix", parents={name: None})
    write_dump(tmp_path / "theirs" / "rank0", {name: forward(tensor_around(4))}, level="mix", parents={name: None})
    words = [str(tmp_path / word) if word == "theirs" else word for word in arguments]
    assert main(["graph", str(tmp_path / "ours"), "--layout", "tp=2", "-o", str(tmp_path / "graphs"), *words]) == 0
    (database,) = (tmp_path / "graphs").glob("*.vis.db")
    query = "select input_data from tb_nodes where data_source = 'NPU' and node_name = ?"
    ((data,),) = sqlite3.connect(database).execute(query, (name,)).fetchall()
    element = json.loads(data)[f"{name}.input.0"]
    assert (element["shape"], element["Max"], element["Mean"]) == (shape, "3.0", "0.5")


def _ranks(folder: Path, *ranks: int) -> Path:
    call: Json = {"Torch.mul.0.forward": forward(tensor_around(2))}
    for rank in ranks:
        write_dump(folder / f"rank{rank}", call)
    return folder


@pytest.mark.parametrize(
    ("target", "golden", "layouts", "problem"),
    [
        ((0, 1, 2), (0,), ["tp=2"], "*{target}: tp=2 and pp=1 make 2 ranks of one model, which do not divide the 3 *"),
        ((0, 2, 3), (0,), ["tp=2"], "*{target}: rank 1 of ranks 0 to 3 is missing; *"),
        (
            (0, 1, 2, 3),
            (0,),
            ["tp=2"],
            "*{target}/rank2/dump.json: the golden run has no dump of rank 1; *; merged runs are paired by *",
        ),
        ((0, 1), (0, 1), ["tp=2"], "*{golden}/rank1/dump.json: the target has no dump of rank 1; *; merged runs *"),
        ((0, 1), (0, 1, 2), ["tp=2", "tp=2"], "*{golden}: tp=2 and pp=1 make 2 ranks of one model, *the 3 *"),
    ],
)
def test_ranks_and_layouts_that_do_not_fit_are_one_error(
    compare: Compare, tmp_path: Path, target: tuple[int, ...], golden: tuple[int, ...], layouts: list[str], problem: str
) -> None:
    folders = {"target": _ranks(tmp_path / "ours", *target), "golden": _ranks(tmp_path / "theirs", *golden)}
    options = [word for flag, layout in zip((_TARGET, _GOLDEN), layouts, strict=False) for word in (flag, layout)]
    result = compare(*folders.values(), *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([problem.format(**folders)])


@pytest.mark.parametrize(
    ("layout", "problem"),
    [
        ("two", "*--msprobe-target-layout 'two': no such file, and not of the form tp=2,pp=2"),
        ("tp=2,tp=4", "*--msprobe-target-layout 'tp=2,tp=4': a name is there twice; delete one"),
        ("tp=-1", "*--msprobe-target-layout 'tp=-1': tp=-1 is not a valid number of ranks; specify 1 or more"),
        ("broken.yaml", "*broken.yaml*not a layout; a line looks like  tp: 2"),
    ],
)
def test_a_layout_that_cannot_be_read_is_one_error(
    compare: Compare, tmp_path: Path, pytester: pytest.Pytester, layout: str, problem: str
) -> None:
    pytester.path.joinpath("broken.yaml").write_text("- 2\n")
    result = compare(_ranks(tmp_path / "ours", 0, 1), _ranks(tmp_path / "theirs", 0), _TARGET, layout)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([problem])


def test_a_rank_that_is_not_the_first_of_its_run_is_refused_with_the_one_that_is(
    compare: Compare, tmp_path: Path
) -> None:
    folder = _ranks(tmp_path / "ours", 0, 1)
    result = compare(folder / "rank1" / "dump.json", _ranks(tmp_path / "theirs", 0), _TARGET, "tp=2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*one rank of a merged run; name its first rank, {folder}/rank0/dump.json, or *"])


def test_a_layout_without_a_comparison_is_refused(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest(_TARGET, "tp=2")
    result.stderr.fnmatch_lines(
        ["*--msprobe-target-layout has no effect without --msprobe-compare; pass --msprobe-compare PATH"]
    )


def test_a_copy_without_its_neighbours_is_no_run(compare: Compare, tmp_path: Path) -> None:
    path = _ranks(tmp_path / "ours", 0) / "rank0" / "dump.json"
    shutil.move(path, tmp_path / "dump.json")
    result = compare(tmp_path / "dump.json", _ranks(tmp_path / "theirs", 0), _TARGET, "tp=2")
    result.stderr.fnmatch_lines(
        ["*dump.json: not in its own folder rank0, rank1 ...; put the dump of each rank into one*"]
    )
