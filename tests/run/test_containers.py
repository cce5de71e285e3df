"""Whatever reads a recorded run reads its tensors out of containers as out of a file for each."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from msprobe_hooks.dump.reader import read_dump
from msprobe_hooks.dump.values import read_values
from tests.support.dumps.containers import CONTAINERS, KINDS, dump_of, recorded, tensor_folder
from tests.support.runs import check, run_pytest


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return the folder of a recorded run of some kind; one with another ``scale`` has other numbers."""
    folder = tmp_path_factory.mktemp("runs")
    for kind in KINDS:
        recorded(folder / "golden" / kind, kind)
        recorded(folder / "target" / kind, kind, scale=1.01)
    return lambda kind, name="golden": folder / name / kind


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
