"""PtdbgDispatch: msprobe's tables of operators compared while they run."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import pytest_msprobe
from msprobe_hooks import ConfigError
from pytest_msprobe import PtdbgDispatch
from pytest_msprobe.errors import FolderError
from pytest_msprobe.extensions.live_checks.ptdbg_dispatch import measure
from tests.support.dumps.faulty_calls import ChangedKernel
from tests.support.hosts.disks import files_of_at_most

Rows = dict[str, dict[str, str]]


def rows(dispatch: PtdbgDispatch, table: str, name: str) -> Rows:
    (path,) = dispatch.folder.glob(f"accuracy_checking_{table}_*.csv")
    with path.open(encoding="utf-8", newline="") as file:
        return {row[name]: row for row in csv.DictReader(file)}


def results(dispatch: PtdbgDispatch) -> Rows:
    return rows(dispatch, "result", "API name")


def details(dispatch: PtdbgDispatch) -> Rows:
    return rows(dispatch, "details", "Npu Name")


def files(dispatch: PtdbgDispatch) -> set[str]:
    return {str(path.relative_to(dispatch.folder)) for path in dispatch.folder.rglob("*.npy")}


def test_each_operator_forward_and_backward_has_a_row_and_each_output_one(tmp_path: Path) -> None:
    x = torch.randn(4, 4, requires_grad=True)
    dispatch = PtdbgDispatch(dump_path=tmp_path, tag="first")
    with dispatch:
        values, _ = (x @ x).topk(2)
        values.sum().backward()
    found = results(dispatch)
    assert {"mm_1", "topk_1", "sum_1", "mm_2", "mm_3"} <= found.keys()
    assert {row["Forward Test Success"] for row in found.values()} == {"pass"}
    assert {"topk_1_output.0", "topk_1_output.1", "mm_1_output"} <= details(dispatch).keys()
    assert dispatch.folder.name.startswith("msprobe_first_rank0_")


@pytest.mark.parametrize("factor", [0.8, 1.0001, 0.9999])
def test_a_wrong_operator_fails_whatever_its_size_and_sign(tmp_path: Path, factor: float) -> None:
    dispatch = PtdbgDispatch(dump_path=tmp_path)
    with ChangedKernel(torch.ops.aten.mul.Tensor, lambda result: result * factor), dispatch:
        torch.full((9,), 0.5) * torch.full((9,), 1.9)
        torch.full((9,), 50.0) * torch.full((9,), 2.0)
    assert {row["Status"] for row in details(dispatch).values() if "mul" in row["Npu Name"]} == {"error"}


def test_half_precision_is_judged_by_its_own_limits(tmp_path: Path) -> None:
    dispatch = PtdbgDispatch(dump_path=tmp_path)
    x = torch.linspace(0.1, 3, 50)
    with dispatch:
        x.half().exp()
        x.bfloat16().exp()
    first, second = (details(dispatch)[f"exp_{k}_output"] for k in (1, 2))
    assert (first["Status"], first["error_thd"], first["eb_thd"]) == ("pass", str(2**-11), str(2**-10))
    assert (second["Status"], second["error_thd"], second["eb_thd"]) == ("pass", str(2**-8), str(2**-7))
    assert float(first["max_rel_diff"]) > 2**-14


def test_infinities_count_where_golden_has_none(tmp_path: Path) -> None:
    dispatch = PtdbgDispatch(dump_path=tmp_path)
    spoil = ChangedKernel(torch.ops.aten.sin.default, lambda result: result.index_fill(0, torch.tensor([2]), math.nan))
    with spoil, dispatch:
        torch.ones(3).log1p().div(0)
        torch.ones(3).sin()
    found = results(dispatch)
    assert found["div_1"]["Forward Test Success"] == "pass"
    assert "1 elements are inf or NaN" in found["sin_1"]["Message"]


def test_the_numbers_are_those_of_their_definition() -> None:
    generator = np.random.default_rng(3)
    golden = generator.normal(scale=2, size=200)
    target = golden * (1 + generator.normal(scale=1e-3, size=200))
    found = measure(torch.from_numpy(target), torch.from_numpy(golden), torch.float64)
    errors = [(t - g) / (1 if abs(g) < 1 else abs(g) + 1.2e-7) for t, g in zip(target, golden, strict=True)]
    small = {i: abs(errors[i]) for i in range(200) if abs(golden[i]) < 1}
    large = {i: abs(errors[i]) for i in range(200) if abs(golden[i]) >= 1}
    assert found["error_balance"] == pytest.approx(sum(errors) / 200)
    assert found["max_abs_idx"] == max(small, key=small.__getitem__)
    assert found["max_abs_diff"] == pytest.approx(max(small.values()))
    assert found["max_rel_idx"] == max(large, key=large.__getitem__)
    assert found["max_rel_diff"] == pytest.approx(max(large.values()))


@pytest.mark.parametrize(
    ("options", "operators"),
    [
        ({"dump_mode": "all"}, {"sin_1", "cos_1"}),
        ({"dump_mode": "list", "api_list": ["cos", "no_such"]}, {"cos_1"}),
        ({"dump_mode": "auto"}, {"sin_1"}),
        ({"dump_mode": "OFF"}, set()),
    ],
)
def test_the_mode_says_whose_tensors_are_written(tmp_path: Path, options: dict[str, Any], operators: set[str]) -> None:
    x, dispatch = torch.linspace(0, 1, 5), PtdbgDispatch(dump_path=tmp_path, **options)
    with ChangedKernel(torch.ops.aten.sin.default, lambda result: result + 0.1), dispatch:
        x.sin()
        x.cos()
    expected = {f"{side}/{name}_output.npy" for name in operators for side in ("cpu", "npu")}
    assert files(dispatch) == expected | {f"npu/{name}_input.0.npy" for name in operators}
    for name in operators:
        assert np.array_equal(np.load(dispatch.folder / "npu" / f"{name}_input.0.npy"), x.numpy())


def test_a_step_computes_the_same_bits(tmp_path: Path) -> None:
    def step() -> list[torch.Tensor]:
        torch.manual_seed(0)
        x = torch.randn(4, 4, requires_grad=True)
        F.dropout(x @ x, 0.5).relu_().sum().backward()
        return [x.grad, torch.get_rng_state()]

    plain = step()
    with PtdbgDispatch(dump_mode="all", dump_path=tmp_path):
        checked = step()
    assert all(map(torch.equal, plain, checked))


def test_two_in_one_second_have_folders_of_their_own(tmp_path: Path) -> None:
    for _ in range(2):
        with PtdbgDispatch(dump_path=tmp_path):
            torch.ones(2).sin()
    assert len(list(tmp_path.iterdir())) == 2


def test_a_full_disk_ends_the_comparison_and_not_the_program(tmp_path: Path) -> None:
    done = []

    def program() -> None:
        with PtdbgDispatch(dump_path=tmp_path):
            done.extend(torch.ones(2).sin() for _ in range(50))

    with files_of_at_most(1000), pytest.raises(FolderError, match=str(tmp_path)):
        program()
    assert len(done) == 50


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ({"dump_mode": "some"}, "dump_mode is 'some'; allowed: all, list, auto, OFF"),
        ({"dump_path": "no/such/folder"}, "allowed: an existing folder"),
        ({"tag": "a/b"}, "tag is 'a/b'; allowed: letters"),
        ({"dump_mode": "list"}, "api_list is None; allowed: a list"),
        ({"dump_mode": "list", "api_list": ["../x"]}, "allowed: names of letters"),
        ({"debug": 1}, "debug is 1; allowed: true or false"),
        ({"process_num": -1}, "process_num is -1; allowed: a whole number from 0"),
    ],
)
def test_a_wrong_argument_is_refused(tmp_path: Path, options: dict[str, Any], reported: str) -> None:
    with pytest.raises(ConfigError, match=reported):
        PtdbgDispatch(**{"dump_path": tmp_path, **options})


def test_it_is_refused_inside_of_a_live_check(tmp_path: Path) -> None:
    dispatch = PtdbgDispatch(dump_path=tmp_path)
    with pytest_msprobe.live(), pytest.raises(ConfigError, match="inside of another"), dispatch:
        pass
    with dispatch:
        torch.ones(2).sin()
    assert results(dispatch).keys() >= {"sin_1"}
