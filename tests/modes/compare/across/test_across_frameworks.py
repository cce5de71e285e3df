"""A run of MindSpore compared with one of PyTorch: a real pair, and small ones that a test writes."""

from __future__ import annotations

import csv
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

# An inner run in this process must find these loaded: torch cannot be loaded twice.
import pytest_msprobe.modes.compare.files  # noqa: F401
from msprobe_hooks.dump.reader import read_dump
from pytest_msprobe.modes.compare.across.options import AcrossOptions
from pytest_msprobe.modes.compare.across.translation import Translation, read_mappings, translation
from pytest_msprobe.modes.compare.pairs import Pair
from pytest_msprobe.modes.compare.policy import load_policy
from tests.support.dumps import Json, forward, tensor_around, write_dump
from tests.support.dumps import value as number

DATA = Path(__file__).parents[3] / "data" / "across_frameworks"
MINDSPORE, CHANGED, PYTORCH = (DATA / name / "dump.json" for name in ("mindspore", "mindspore-changed", "pytorch"))


def tensor(*shape: int, dtype: str = "Float32", at: float = 1.0) -> Json:
    return tensor_around(*shape, dtype=dtype, at=at)


def torch_tensor(*shape: int, at: float = 1.0) -> Json:
    return tensor(*shape, dtype="torch.float32", at=at)


def call(*args: Any, out: Any = None, **kwargs: Any) -> Json:
    return forward(*args, output=[out or args[0]], **kwargs)


def write(folder: Path, framework: str, records: Json, parents: Json | None = None) -> Path:
    level = "mix" if parents else "L1"
    return write_dump(folder, records, level=level, framework=framework, parents=parents or {})


def pair_of(tmp_path: Path, ours: Json, theirs: Json, frameworks: str = "mindspore pytorch", **files: str) -> Pair:
    first, second = frameworks.split()
    target = read_dump(write(tmp_path / "target", first, ours))
    golden = read_dump(write(tmp_path / "golden", second, theirs))
    paths = {}
    for name, text in files.items():
        paths[name] = tmp_path / f"{name}.yaml"
        paths[name].write_text(text)
    options = AcrossOptions(**paths, wants_apis="apis" in paths)  # type: ignore[arg-type]
    names: Translation = translation(target, golden, read_mappings(options), options)
    return Pair(0, target, golden, policy=load_policy("default"), translation=names)


def partners(pair: Pair) -> dict[str | None, str | None]:
    return {match.target: match.golden for match in pair.matching.matches}


def compare(pytester: pytest.Pytester, target: Path, golden: Path, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess("--msprobe-compare", str(target), "--msprobe-golden", str(golden), *arguments)


# A real pair


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
        [f"first forward culprit: {culprit} (input.1: differs by *", "*block.up.Linear.forward.0"]
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
    layers.write_text("TopLayer:\n  block: layer\nBlock:\n  down: w2\n")
    out, golden = tmp_path / "out", tmp_path / "golden" / "dump.json"
    words = ("--msprobe-layer-mapping", str(layers), "--msprobe-csv", str(out))
    compare(pytester, CHANGED, golden, *words).stdout.fnmatch_lines(
        ["first forward culprit: Primitive.dense.Dense.0.forward *", "*in Cell.block.up.Linear.forward.0"]
    )
    (written,) = out.glob("data_mapping_*.yaml")
    assert (
        "Cell.block.down.Dense.forward.0.output.0: Module.layer.w2.Linear.forward.0.output.0\n" in written.read_text()
    )
    result = compare(pytester, MINDSPORE, golden, "--msprobe-data-mapping", str(written))
    result.assert_outcomes(passed=35, skipped=1)


def test_a_failure_says_how_to_run_it_again_with_the_same_mappings(pytester: pytest.Pytester, tmp_path: Path) -> None:
    apis = tmp_path / "apis.yaml"
    apis.write_text("- {ms_api: Mint.matmul, pt_api: Torch.matmul}\n")
    result = compare(pytester, CHANGED, PYTORCH, f"--msprobe-api-mapping={apis}", "--msprobe-cell-mapping")
    result.stdout.fnmatch_lines([f"Run this item alone: *--msprobe-api-mapping={apis} --msprobe-cell-mapping"])


# Names


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("Mint.add.0.forward", "Torch.add.0.forward"),
        ("MintFunctional.relu.0.forward", "Functional.relu.0.forward"),
        ("Functional.abs.0.forward", "Torch.abs.0.forward"),
        ("Functional.dense.0.forward", "Functional.linear.0.forward"),
        ("Tensor.gather_elements.0.forward", "Tensor.gather.0.forward"),
        ("Tensor.__add__.0.forward", "Tensor.add.0.forward"),
    ],
)
def test_an_api_of_one_framework_finds_that_of_the_other(tmp_path: Path, ours: str, theirs: str) -> None:
    pair = pair_of(tmp_path, {ours: call(tensor(2))}, {theirs: call(torch_tensor(2))})
    assert partners(pair) == {ours: theirs}
    assert pair.compare(ours).outcome == "pass"


def test_two_apis_that_are_one_in_the_other_framework_count_together(tmp_path: Path) -> None:
    ours = {
        "Mint.matmul.0.forward": call(tensor(2)),
        "Functional.matmul.0.forward": call(tensor(3)),
        "Mint.matmul.1.forward": call(tensor(4)),
    }
    theirs = {f"Torch.matmul.{i}.forward": call(torch_tensor(2 + i)) for i in range(3)}
    assert list(partners(pair_of(tmp_path, ours, theirs)).values()) == list(theirs)


def test_casts_that_pytorch_writes_in_one_way_count_together(tmp_path: Path) -> None:
    ours = {
        "Tensor.astype.0.forward": call(tensor(2)),
        "Tensor.to.0.forward": call(tensor(3)),
        "Tensor.astype.1.forward": call(tensor(4)),
    }
    theirs = {f"Tensor.to.{i}.forward": call(torch_tensor(2 + i)) for i in range(3)}
    assert list(partners(pair_of(tmp_path, ours, theirs)).values()) == list(theirs)


def test_a_layer_named_like_a_framework_keeps_its_name(tmp_path: Path) -> None:
    name = "Cell.Mint.Cell.Block.forward.0"
    pair = pair_of(tmp_path, {name: call(tensor(2))}, {"Module.Mint.Cell.Block.forward.0": call(torch_tensor(2))})
    assert partners(pair) == {name: "Module.Mint.Cell.Block.forward.0"}


def test_mindtorch_has_the_names_of_pytorch(tmp_path: Path) -> None:
    ours, theirs = {"Torch.add.0.forward": call(tensor(2))}, {"Torch.add.0.forward": call(torch_tensor(2))}
    pair = pair_of(tmp_path, ours, theirs, "mindtorch pytorch")
    assert pair.compare("Torch.add.0.forward").outcome == "pass"


def test_a_method_finds_the_function_of_its_name_in_the_same_module(tmp_path: Path) -> None:
    pair = pair_of(tmp_path, {}, {})
    module = {"Cell.a.Block.forward.0": call(tensor(2)), "Mint.reshape.0.forward": call(tensor(2))}
    other = {"Module.a.Block.forward.0": call(torch_tensor(2)), "Tensor.reshape.0.forward": call(torch_tensor(2))}
    write(tmp_path / "target", "mindspore", module, {"Mint.reshape.0.forward": "Cell.a.Block.forward.0"})
    write(tmp_path / "golden", "pytorch", other, {"Tensor.reshape.0.forward": "Module.a.Block.forward.0"})
    target, golden = (read_dump(tmp_path / side / "dump.json") for side in ("target", "golden"))
    pair = Pair(
        0,
        target,
        golden,
        policy=load_policy("default"),
        translation=translation(target, golden, read_mappings(AcrossOptions()), AcrossOptions()),
    )
    assert partners(pair)["Mint.reshape.0.forward"] == "Tensor.reshape.0.forward"


@pytest.mark.parametrize(("count", "found"), [(2, 2), (3, 0)])
def test_without_modules_methods_find_functions_where_they_are_as_many(tmp_path: Path, count: int, found: int) -> None:
    same = {"Mint.add.0.forward": call(tensor(2))}, {"Torch.add.0.forward": call(torch_tensor(2))}
    ours = same[0] | {f"Mint.reshape.{i}.forward": call(tensor(2)) for i in range(2)}
    theirs = same[1] | {f"Tensor.reshape.{i}.forward": call(torch_tensor(2)) for i in range(count)}
    pairs = partners(pair_of(tmp_path, ours, theirs))
    assert sum(name is not None and pairs[name] is not None for name in ours) == 1 + found


@pytest.mark.parametrize(
    ("text", "module"),
    [
        ("fc2.Dense: head.Linear", "Module.head.Linear.forward.0"),
        ("fc2: head", "Module.head.Dense.forward.0"),
        ("c2: head", None),
    ],
)
def test_a_cell_mapping_replaces_whole_words(tmp_path: Path, text: str, module: str | None) -> None:
    theirs = {name: call(torch_tensor(5)) for name in ("Module.head.Linear.forward.0", "Module.head.Dense.forward.0")}
    ours = {"Cell.fc2.Dense.forward.0": call(tensor(2))}
    assert partners(pair_of(tmp_path, ours, theirs, cells=text))["Cell.fc2.Dense.forward.0"] == module


# Values


def test_the_three_floats_stand_for_each_other_and_other_dtypes_do_not(tmp_path: Path) -> None:
    ours = {f"Mint.add.{i}.forward": call(tensor(2, dtype=dtype)) for i, dtype in enumerate(("BFloat16", "Int32"))}
    theirs = {f"Torch.add.{i}.forward": call(torch_tensor(2)) for i in range(2)}
    pair = pair_of(tmp_path, ours, theirs)
    assert [pair.compare(name).outcome for name in ours] == ["pass", "fail"]


@pytest.mark.parametrize("frameworks", ["mindspore pytorch", "pytorch mindspore"])
def test_integers_of_other_widths_are_compared_by_their_values(tmp_path: Path, frameworks: str) -> None:
    apis = {"mindspore": "Mint.add", "pytorch": "Torch.add"}
    narrow, wide = ("Int32", "torch.int64") if frameworks.startswith("mindspore") else ("torch.int64", "Int32")
    names = [apis[framework] for framework in frameworks.split()]
    ours = {f"{names[0]}.{i}.forward": call(tensor(2, dtype=narrow, at=7)) for i in range(2)}
    theirs = {f"{names[1]}.{i}.forward": call(tensor(2, dtype=wide, at=at)) for i, at in enumerate((7, 8))}
    pair = pair_of(tmp_path, ours, theirs, frameworks)
    assert [pair.compare(name).outcome for name in ours] == ["pass", "fail"]
    assert {row.target.dtype for row in pair.compare(next(iter(ours))).rows if row.target} == {narrow}


def test_arguments_that_only_one_framework_takes_are_left_out(tmp_path: Path) -> None:
    ours = {"Mint.add.0.forward": call(tensor(2), number(1), mode={"type": "NoneType", "value": None})}
    theirs = {"Torch.add.0.forward": call(torch_tensor(2), number(1), inplace=number(False))}
    assert pair_of(tmp_path, ours, theirs).compare("Mint.add.0.forward").outcome == "pass"


def test_another_number_is_a_difference(tmp_path: Path) -> None:
    ours = {"Mint.add.0.forward": call(tensor(2), number(1))}
    theirs = {"Torch.add.0.forward": call(torch_tensor(2), number(2))}
    assert pair_of(tmp_path, ours, theirs).compare("Mint.add.0.forward").outcome == "fail"


def test_parameters_of_mindspores_layers_find_those_of_pytorchs(tmp_path: Path) -> None:
    name, other = "Cell.n.LayerNorm.forward.0", "Module.n.LayerNorm.forward.0"
    ours = {name: call(tensor(2)) | {"parameters": {"gamma": tensor(2), "beta": tensor(2, at=3)}}}
    theirs = {other: call(torch_tensor(2)) | {"parameters": {"weight": torch_tensor(2), "bias": torch_tensor(2, at=3)}}}
    found = pair_of(tmp_path, ours, theirs).compare(name)
    assert found.outcome == "pass"
    assert all(row.target and row.golden for row in found.rows)


def test_buffers_that_pytorch_does_not_record_are_left_out_and_a_missing_parameter_is_not(tmp_path: Path) -> None:
    name, other = "Cell.n.BatchNorm2d.forward.0", "Module.n.BatchNorm2d.forward.0"
    running = {"moving_mean": tensor(2), "moving_variance": tensor(2)}
    ours = {name: call(tensor(2)) | {"parameters": {"gamma": tensor(2)} | running}}
    theirs = {other: call(torch_tensor(2)) | {"parameters": {"weight": torch_tensor(2)}}}
    assert pair_of(tmp_path / "buffers", ours, theirs).compare(name).outcome == "pass"
    theirs[other]["parameters"]["bias"] = torch_tensor(2)
    found = pair_of(tmp_path / "bias", ours, theirs).compare(name)
    assert [row.place for row in found.rows if row.outcome == "fail"] == ["parameters.bias"]


def test_a_gradient_that_one_framework_leaves_out_does_not_shift_the_others(tmp_path: Path) -> None:
    forward, other = {"Mint.add.0.forward": call(tensor(2))}, {"Torch.add.0.forward": call(torch_tensor(2))}
    ours = {"Mint.add.0.backward": {"input": [tensor(2)], "output": [None, tensor(3, at=5)]}}
    theirs = {"Torch.add.0.backward": {"input": [torch_tensor(2)], "output": [torch_tensor(3, at=6)]}}
    found = pair_of(tmp_path, forward | ours, other | theirs).compare("Mint.add.0.backward")
    assert [row.place for row in found.rows if row.outcome == "fail"] == ["output.1"]


# API mapping files

SWAPPED = """
ms_api: Mint.sub
pt_api: Torch.rsub
ms_args: [0, 1]
pt_args: [1, 0]
ms_outputs: [0]
pt_outputs: [0]
"""


@pytest.mark.parametrize("as_list", [False, True])
@pytest.mark.parametrize("spelling", ["outputs", "output"])
@pytest.mark.parametrize("frameworks", ["mindspore pytorch", "pytorch mindspore"])
def test_a_file_exchanges_arguments(tmp_path: Path, as_list: bool, spelling: str, frameworks: str) -> None:
    text = SWAPPED.replace("outputs", spelling)
    text = "- " + text.strip().replace("\n", "\n  ") if as_list else text
    ours = {"Mint.sub.0.forward": call(tensor(2, at=1), tensor(2, at=5), out=tensor(2))}
    theirs = {"Torch.rsub.0.forward": call(torch_tensor(2, at=5), torch_tensor(2, at=1), out=torch_tensor(2))}
    sides = (ours, theirs) if frameworks.startswith("mindspore") else (theirs, ours)
    pair = pair_of(tmp_path, *sides, frameworks, apis=text)
    found = pair.compare(next(iter(sides[0])))
    assert found.outcome == "pass"
    assert len(found.rows) == 3
    places = [(row.target and row.target.name[-7:], row.golden and row.golden.name[-7:]) for row in found.rows[:2]]
    assert places == [("input.0", "input.1"), ("input.1", "input.0")]


def test_the_gradients_of_exchanged_arguments_are_exchanged(tmp_path: Path) -> None:
    ours = {"Mint.sub.0.forward": call(tensor(2), tensor(2), out=tensor(2))}
    theirs = {"Torch.rsub.0.forward": call(torch_tensor(2), torch_tensor(2), out=torch_tensor(2))}
    ours |= {"Mint.sub.0.backward": {"input": [tensor(2)], "output": [tensor(2, at=7), tensor(2, at=9)]}}
    theirs |= {
        "Torch.rsub.0.backward": {"input": [torch_tensor(2)], "output": [torch_tensor(2, at=9), torch_tensor(2, at=7)]}
    }
    assert pair_of(tmp_path, ours, theirs, apis=SWAPPED).compare("Mint.sub.0.backward").outcome == "pass"


def test_an_index_is_equal_or_not_at_all(tmp_path: Path) -> None:
    ours = {"Mint.cat.0.forward": call(*(tensor(2, at=i + 1) for i in range(12)))}
    theirs = {"Torch.cat.0.forward": call(*(torch_tensor(2, at=i + 1) for i in range(12)))}
    text = "- {ms_api: Mint.cat, pt_api: Torch.cat, ms_args: [1, 0], pt_args: [1, 0]}"
    found = pair_of(tmp_path, ours, theirs, apis=text).compare("Mint.cat.0.forward")
    assert found.outcome == "pass"
    both = [row.place for row in found.rows if row.group == "input" and row.target and row.golden]
    assert both == ["input.0", "input.1"]


def test_a_keyword_is_mapped_by_its_name(tmp_path: Path) -> None:
    ours = {"Mint.sum.0.forward": call(tensor(2), axis=number(1))}
    theirs = {"Torch.sum.0.forward": call(torch_tensor(2), number(3), dim=number(2))}
    text = "- {ms_api: Mint.sum, pt_api: Torch.sum, ms_args: [0, axis], pt_args: [0, dim]}"
    found = pair_of(tmp_path, ours, theirs, apis=text).compare("Mint.sum.0.forward")
    assert [row.place for row in found.rows if row.outcome == "fail"] == ["input.axis"]
