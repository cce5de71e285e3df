"""What msprobe 26.2 packed of two trainings, next to what it says of the two itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import openpyxl
import pytest

Check = Callable[..., Any]

DATA = Path(__file__).parents[3] / "data/environment"
BENCH, CMP = DATA / "bench.zip", DATA / "cmp.zip"

# The result.xlsx of msprobe config_check -c bench.zip cmp.zip; in its sheet env it takes the one for the other.
_EQUAL = (True, 0, 0, 0, 0)
_SHEETS = {
    "summary": {
        ("env", "error"),
        ("pip", "error"),
        ("dataset", "error"),
        ("weights", "error"),
        ("hyperparameters", "error"),
        ("random", "error"),
    },
    "pip": {("numpy", "2.4.6", "9.2.4.6", "error")},
    "dataset": {
        (0, 0, "args.0", False, 0.03270547782273311, -0.01856227241635564, 9.518766524199131, 0.02938919564718506),
        (1, 0, "args.0", False, 0.03381129229297908, -0.01891334711786249, 0.9049318379177151, 0.02855013028255833),
    },
    "weights": {
        *((0, 0, name, *_EQUAL) for name in ("0.bias", "2.bias", "0.weight", "2.weight")),
        (
            1,
            0,
            "0.bias",
            False,
            0.0007636176634644408,
            -0.007809846958047057,
            -0.0001226183476062948,
            0.002955491041203733,
        ),
        (1, 0, "2.bias", False, 0.1730936716557337, -0.07131430280197636, -0.1799888853365833, 0.05241012869902947),
        (
            1,
            0,
            "0.weight",
            False,
            0.006904709713475479,
            -0.0002579401480959364,
            -0.009819966281853734,
            0.001539246027429307,
        ),
        (
            1,
            0,
            "2.weight",
            False,
            0.003709697112569897,
            -0.0001554482304163198,
            0.2236145116387913,
            0.009137196430659297,
        ),
    },
    "hyperparameters": {
        ("hyperparameters_static.json", "Only in comparison", "warmup", None, "3", None, "warning"),
        ("hyperparameters_static.json", "dropout", "drop_rate", "0.1", "0.2", "mapping", "error"),
        ("hyperparameters_static.json", "lr", "learning-rate", "1e-4", "2e-4", "mapping", "error"),
    },
}


def test_the_workbook_says_what_msprobe_says_of_its_packs(check: Check, tmp_path: Path) -> None:
    checked = check(f"--msprobe-environment={CMP}", f"--msprobe-golden={BENCH}", "--msprobe-xlsx=out")
    assert checked.exit_code == 1
    book = openpyxl.load_workbook("out/result.xlsx")
    assert {name: set(rows(book[name])) for name in _SHEETS} == _SHEETS
    assert {row[:2] + row[4:] for row in rows(book["random"])} == {
        ("torch.manual_seed", 0, 1, 1, True),
        ("torch.randn", 0, 1, 2, False),
    }
    assert ("NCCL_ALGO", "HCCL_ALGO", "Ring", "Tree", "error") in rows(book["env"])
    assert "MY_API_KEY" not in checked.output


def rows(sheet: Any) -> list[tuple[Any, ...]]:
    """Return a sheet's rows below the titles, empty text as nothing."""
    values = list(sheet.iter_rows(values_only=True))[1:]
    return [tuple(None if cell == "" else cell for cell in row) for row in values]


def test_a_pack_next_to_itself_is_equal(check: Check) -> None:
    checked = check(f"--msprobe-environment={CMP}", f"--msprobe-golden={CMP}")
    assert checked.exit_code == 0
    assert "the two environments are equal" in checked.output


def _rewritten(path: Path, **entries: str) -> Path:
    with ZipFile(CMP) as source, ZipFile(path, "w", ZIP_DEFLATED) as target:
        for name in source.namelist():
            target.writestr(name, entries.pop(name, None) or source.read(name))
        for name, text in entries.items():
            target.writestr(name, text)
    return path


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"../../escaped": "x"}, "entry '../../escaped' leads out of the archive; do not use it"),
        ({"/etc/escaped": "x"}, "entry '/etc/escaped' leads out of the archive; do not use it"),
        ({"..\\escaped": "x"}, "leads out of the archive"),
        ({"env": "{"}, "env: the JSON ends too early"),
        ({"env": "[1]"}, "env: not as msprobe writes it"),
        ({"random/rank0.json": '{"a": [{"count": "x"}]}'}, "random/rank0.json: not as msprobe writes it"),
    ],
)
def test_an_archive_that_is_none_of_msprobe_is_refused_by_name(
    check: Check, tmp_path: Path, entries: dict[str, str], message: str
) -> None:
    pack = _rewritten(tmp_path / "pack.zip", **entries)
    checked = check(f"--msprobe-environment={pack}", f"--msprobe-golden={BENCH}")
    assert checked.exit_code == 4
    assert message in checked.errors
    assert "Traceback" not in checked.errors


def test_a_pack_that_unpacks_to_more_than_any_is_refused_unread(check: Check, tmp_path: Path) -> None:
    pack = _rewritten(tmp_path / "pack.zip", **{f"unknown{n}": "x" for n in range(3)})
    # The sizes that the archive claims, in its directory.
    content = pack.read_bytes()
    for n in range(3):
        place = content.rindex(f"unknown{n}".encode()) - 46
        content = content[: place + 24] + (2**29).to_bytes(4, "little") + content[place + 28 :]
    pack.write_bytes(content)
    checked = check(f"--msprobe-environment={pack}", f"--msprobe-golden={BENCH}")
    assert "unpacks to more than 256 MiB" in checked.errors


def test_what_is_no_pack_is_refused_by_name(check: Check, tmp_path: Path) -> None:
    for name, content in (("cut.zip", CMP.read_bytes()[:900]), ("text.zip", b"hello"), ("empty.zip", b"")):
        (tmp_path / name).write_bytes(content)
        checked = check(f"--msprobe-environment={tmp_path / name}", f"--msprobe-golden={BENCH}")
        assert "not a complete zip archive" in checked.errors
    with ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("readme", "hello")
    checked = check(f"--msprobe-environment={tmp_path / 'other.zip'}", f"--msprobe-golden={BENCH}")
    assert "not a pack of msprobe config_check" in checked.errors
