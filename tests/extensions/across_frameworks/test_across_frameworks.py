"""A step of MindSpore compared with the same step of PyTorch, as a run of tests."""

from __future__ import annotations

import csv
import shutil
import tarfile
from pathlib import Path

import pytest

# An inner run in this process must find these loaded: torch cannot be loaded twice.
from msprobe_hooks.dump.reader import read_dump

DATA = Path(__file__).parents[2] / "data" / "across_frameworks"
MINDSPORE, CHANGED, PYTORCH = (DATA / name / "dump.json" for name in ("mindspore", "mindspore-changed", "pytorch"))


def compare(pytester: pytest.Pytester, target: Path, golden: Path, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess("--msprobe-compare", str(target), "--msprobe-golden", str(golden), *arguments)


def test_the_same_step_in_two_frameworks_has_no_culprit(pytester: pytest.Pytester) -> None:
    result = compare(pytester, MINDSPORE, PYTORCH)
    result.assert_outcomes(passed=35, skipped=1)


def test_nothing_changes_with_the_sides_exchanged(pytester: pytest.Pytester) -> None:
    result = compare(pytester, PYTORCH, MINDSPORE)
    result.assert_outcomes(passed=35, skipped=1)


def test_recorded_tensors_of_two_frameworks_are_compared(pytester: pytest.Pytester, tmp_path: Path) -> None:
    with tarfile.open(DATA / "tensors.tar.xz") as archive:
        archive.extractall(tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    out = tmp_path / "out"
    result = compare(pytester, tmp_path / "mindspore", tmp_path / "pytorch", "--msprobe-csv", str(out))
    result.assert_outcomes(passed=35, skipped=1)
    (table,) = out.glob("compare_result*.csv")
    rows = {row["NPU Name"]: row for row in csv.DictReader(table.read_text().splitlines())}
    row = rows["MintFunctional.softmax.0.forward.output.0"]
    assert float(row["Cosine"]) > 0.999999
    assert row["Data_name"].count(".npy") == row["Data_name"].count(".pt") == 1


@pytest.mark.parametrize(
    ("target", "golden", "culprit"),
    [(CHANGED, PYTORCH, "Primitive.dense.Dense.0.forward"), (PYTORCH, CHANGED, "Functional.linear.0.forward")],
)
def test_the_first_culprit_is_the_call_whose_weight_was_changed(
    pytester: pytest.Pytester, target: Path, golden: Path, culprit: str
) -> None:
    result = compare(pytester, target, golden)
    result.stdout.fnmatch_lines(
        [
            f"first forward culprit: weight block.up.weight differs (*); first read by {culprit}",
            "*block.up.Linear.forward.0",
        ]
    )


def test_rows_are_in_execution_order(pytester: pytest.Pytester, tmp_path: Path) -> None:
    compare(pytester, MINDSPORE, PYTORCH, "--msprobe-csv", str(tmp_path))
    (table,) = tmp_path.glob("compare_result*.csv")
    names = [row["NPU Name"] for row in csv.DictReader(table.read_text().splitlines()) if row["NPU Name"] != "N/A"]
    order = list(read_dump(MINDSPORE).records)
    places = [max(i for i, record in enumerate(order) if name.startswith(f"{record}.")) for name in names]
    assert places == sorted(places)


def test_a_layer_mapping_leads_to_renamed_layers_and_is_written_as_a_data_mapping(
    pytester: pytest.Pytester, tmp_path: Path
) -> None:
    shutil.copytree(PYTORCH.parent, tmp_path / "golden")
    for file in (tmp_path / "golden").iterdir():
        text = (
            file.read_text().replace("Module.block.down.", "Module.layer.w2.").replace("Module.block.", "Module.layer.")
        )
        file.write_text(text)
    layers = tmp_path / "layers.yaml"
    layers.write_text("layer:\n  TopLayer:\n    block: layer\n  Block:\n    down: w2\n")
    out, golden = tmp_path / "out", tmp_path / "golden" / "dump.json"
    words = ("--msprobe-mapping", str(layers), "--msprobe-csv", str(out))
    compare(pytester, CHANGED, golden, *words).stdout.fnmatch_lines(
        [
            "first forward culprit: weight *; first read by Primitive.dense.Dense.0.forward",
            "*in Cell.block.up.Linear.forward.0",
        ]
    )
    (written,) = out.glob("data_mapping_*.yaml")
    assert (
        "Cell.block.down.Dense.forward.0.output.0: Module.layer.w2.Linear.forward.0.output.0\n" in written.read_text()
    )
    values = tmp_path / "values.yaml"
    values.write_text(f"data: {written}\n")
    result = compare(pytester, MINDSPORE, golden, "--msprobe-mapping", str(values))
    result.assert_outcomes(passed=35, skipped=1)


def test_a_failure_says_how_to_run_it_again_with_the_same_mappings(pytester: pytest.Pytester, tmp_path: Path) -> None:
    apis = tmp_path / "apis.yaml"
    apis.write_text("api: [{ms_api: Mint.matmul, pt_api: Torch.matmul}]\ncell: built-in\n")
    result = compare(pytester, CHANGED, PYTORCH, f"--msprobe-mapping={apis}")
    result.stdout.fnmatch_lines([f"Run this item alone: *--msprobe-mapping {apis}"])
