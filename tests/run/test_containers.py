"""Whatever reads a recorded run reads its tensors out of containers as out of a file for each."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from msprobe_hooks import record
from msprobe_hooks.dump.reader import read_dump
from msprobe_hooks.dump.values import read_values
from pytest_msprobe.commands.main import main
from pytest_msprobe.extensions.graphs.data_flow import find_flow
from tests.support.forked import Forked
from tests.support.runs import check, run_pytest

#: How tensors are stored, with the options of a recording.
OPTIONS: dict[str, dict[str, Any]] = {
    "pt": {"tensor_files": "pt"},
    "safetensors": {"tensor_files": "safetensors"},
    "compressed": {"tensor_files": "safetensors", "compression": "zstd"},
}
KINDS = tuple(OPTIONS)
CONTAINERS = KINDS[1:]


def recorded(folder: Path, kind: str, scale: float = 1.0) -> None:
    """Record a step with shared tensors, bools, complex numbers, a sparse, an empty and a scalar one."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(8, 200), torch.nn.GELU(), torch.nn.Linear(200, 4))
    model[0].weight.data.mul_(scale)
    x = torch.randn(50, 8)
    with record(folder, "mix", model=model, task="tensor", **OPTIONS[kind]):
        mask = torch.logical_not(x[:, :1].gt(0))
        chosen = torch.where(mask, model(x), torch.zeros(()))
        torch.complex(chosen, chosen).abs().sum().backward()
        torch.relu(x), torch.sigmoid(x)
        torch.eye(3).to_sparse().coalesce()
        torch.empty(0, 3).exp()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return the folder of a recorded run of some kind; one with another ``scale`` has other numbers."""
    folder = tmp_path_factory.mktemp("runs")
    for kind in KINDS:
        recorded(folder / "golden" / kind, kind)
        recorded(folder / "target" / kind, kind, scale=1.01)
    return lambda kind, name="golden": folder / name / kind


def dump_of(run: Path) -> Path:
    return run / "step0" / "rank" / "dump.json"


def tensor_folder(run: Path) -> Path:
    return dump_of(run).parent / "dump_tensor_data"


@pytest.mark.parametrize("kind", CONTAINERS)
def test_a_container_takes_the_place_of_the_files(runs: Callable[..., Path], kind: str) -> None:
    files = list(tensor_folder(runs(kind)).iterdir())
    assert sorted(file.name for file in files if file.suffix != ".pt") == ["0.safetensors"]
    assert len(list(tensor_folder(runs("pt")).iterdir())) > 60
    assert all("sparse" in file.name or "coalesce" in file.name for file in files if file.suffix == ".pt")


def test_a_compressed_container_is_smaller(runs: Callable[..., Path]) -> None:
    plain, compressed = ((tensor_folder(runs(kind)) / "0.safetensors").stat().st_size for kind in CONTAINERS)
    assert compressed < 0.9 * plain


def test_values_have_the_same_names(runs: Callable[..., Path]) -> None:
    dumps = {kind: read_dump(dump_of(runs(kind))) for kind in KINDS}
    names = {
        kind: [placed.name for record in dump.records for placed in read_values(dump, record)]
        for kind, dump in dumps.items()
    }
    assert names["pt"] == names["safetensors"] == names["compressed"]


@pytest.mark.slow
def test_a_check_gives_the_same_verdicts(pytester: pytest.Pytester, runs: Callable[..., Path]) -> None:
    found = {kind: check(pytester, "--msprobe-dump", dump_of(runs(kind)), "--msprobe-device=sim") for kind in KINDS}
    assert len(found["pt"].cases) > 15
    assert found["pt"].cases == found["safetensors"].cases == found["compressed"].cases


@pytest.mark.slow
def test_a_comparison_gives_the_same_table(pytester: pytest.Pytester, runs: Callable[..., Path]) -> None:
    tables = {}
    for kind in KINDS:
        out = pytester.path / kind
        sides = ("--msprobe-compare", runs(kind, "target"), "--msprobe-golden", runs(kind))
        run_pytest(pytester, *sides, f"--msprobe-csv={out}")
        (table,) = out.glob("*.csv")
        tables[kind] = re.sub(r'"\[.*?\]"|\[.*?\]', "", table.read_text())
    assert len(tables["pt"].splitlines()) > 60
    assert tables["pt"] == tables["safetensors"] == tables["compressed"]


@pytest.mark.parametrize("kind", CONTAINERS)
def test_runs_of_two_kinds_are_compared(pytester: pytest.Pytester, runs: Callable[..., Path], kind: str) -> None:
    result = run_pytest(pytester, "--msprobe-compare", runs(kind), "--msprobe-golden", runs("pt"))
    outcomes = result.parseoutcomes()
    assert outcomes["passed"] > 20
    assert not outcomes.keys() & {"failed", "skipped"}


def test_a_graph_has_the_same_flow(runs: Callable[..., Path]) -> None:
    flows = [[*find_flow(read_dump(dump_of(runs(kind))), lambda name: None)] for kind in KINDS]
    assert len(flows[0]) > 5
    assert flows[0] == flows[1] == flows[2]


def test_what_a_record_held_is_shown_alike(runs: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for kind in KINDS:
        assert main(["show", f"{dump_of(runs(kind))}::Functional.linear.0.forward"]) == 0
        texts.append(capsys.readouterr().out.replace(str(runs(kind)), ""))
    assert "float32" in texts[0]
    assert texts[0] == texts[1] == texts[2]


def test_the_tensors_of_a_container_are_shown_as_they_were(
    runs: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    texts = []
    for kind in CONTAINERS:
        assert main(["show", str(tensor_folder(runs(kind)) / "0.safetensors")]) == 0
        shown = capsys.readouterr().out.replace(str(runs(kind)), "")
        # A container has its tensors in the order in which they are stored.
        texts.append(sorted(re.split(r"^(?=\S)", shown, flags=re.MULTILINE)))
    assert re.search(r"Torch\.complex\.0\.forward\.output\.0 +complex64 +\[50, 4\]", str(texts[0]))
    assert texts[0] == texts[1]


def test_generated_tests_have_a_file_of_each_tensor_and_pass(
    pytester: pytest.Pytester, runs: Callable[..., Path]
) -> None:
    out = {kind: pytester.path / kind for kind in KINDS}
    for kind in KINDS:
        words = ["-k", "linear or where or complex", "--real-data", "--no-run"]
        assert main(["generate", str(dump_of(runs(kind))), "-o", str(out[kind]), *words]) == 0
    stored: dict[str, list[Any]] = {
        kind: [torch.load(file, weights_only=True).tolist() for file in (out[kind] / "tensors").glob("*.pt")]
        for kind in KINDS
    }
    # What calls share is one file here.
    for kind in CONTAINERS:
        assert 10 < len(stored[kind]) <= len(stored["pt"])
        assert all(stored[kind].count(numbers) >= 1 for numbers in stored["pt"])
        checked = check(pytester, out[kind], "--msprobe-device=cpu")
        assert checked.exit_code == 0
        assert len(checked.cases) > 5


def test_a_record_whose_container_is_gone_is_skipped_and_named(
    pytester: pytest.Pytester, runs: Callable[..., Path]
) -> None:
    recorded(pytester.path / "run", "safetensors")
    (dump_of(pytester.path / "run").parent / "dump_tensor_data" / "0.safetensors").unlink()
    found = check(pytester, "--msprobe-dump", dump_of(pytester.path / "run"), "-k", "linear", "--msprobe-device=sim")
    assert set(found.outcomes.values()) == {"skipped"}
    assert "0.safetensors" in str(found.cases)


def test_a_container_that_was_cut_off_fails_its_records_with_its_name(
    pytester: pytest.Pytester, runs: Callable[..., Path]
) -> None:
    recorded(pytester.path / "run", "safetensors")
    container = dump_of(pytester.path / "run").parent / "dump_tensor_data" / "0.safetensors"
    container.write_bytes(container.read_bytes()[:-100])
    found = check(pytester, "--msprobe-dump", dump_of(pytester.path / "run"), "-k", "linear", "--msprobe-device=sim")
    assert set(found.outcomes.values()) == {"failed"}
    assert all("0.safetensors: not a usable container" in case.text for case in found.cases.values())
    assert "Traceback" not in found.output


@pytest.mark.slow
def test_without_the_codecs_library_each_record_says_what_to_install(
    pytester: pytest.Pytester, runs: Callable[..., Path]
) -> None:
    pytester.makeconftest("import sys\nsys.modules['zstandard'] = None")
    words = ("--msprobe-dump", dump_of(runs("compressed")), "-k", "linear", "--msprobe-device=sim")
    found = check(pytester, *words, apart=True)
    assert set(found.outcomes.values()) == {"failed"}
    remedy = "is compressed, and zstandard is not installed; pip install 'pytest-msprobe[compression]'"
    assert all("0.safetensors: tensor '" in case.text and remedy in case.text for case in found.cases.values())
    assert "Traceback" not in found.output


@pytest.mark.parametrize("words", [["show", "{}::Functional.linear.0.forward"], ["graph", "{}", "--html", "out.html"]])
def test_without_the_codecs_library_a_command_says_what_to_install(
    forked: Forked, tmp_path: Path, runs: Callable[..., Path], words: list[str]
) -> None:
    program = (
        "import sys\nsys.modules['zstandard'] = None\nfrom pytest_msprobe.commands.main import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    reported = forked.run(program, tmp_path, *(word.format(dump_of(runs("compressed"))) for word in words))
    assert "zstandard is not installed; pip install 'pytest-msprobe[compression]'" in reported.stdout + reported.stderr
    assert "Traceback" not in reported.stderr
