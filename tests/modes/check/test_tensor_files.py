from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

Write = Callable[..., Path]
Json = dict[str, Any]

NAME = "Torch.mul.0.forward"
OTHER = "Torch.abs.0.forward"
FILE = f"{NAME}.input.0.pt"


@pytest.fixture
def folder(pytester: pytest.Pytester, write_dump: Write, element: Any, forward: Any) -> Path:
    """Write a tensor dump whose record NAME has one tensor file, not yet there, and OTHER none."""
    body = forward(element(2, 3, data_name=FILE), {"type": "float", "value": 2.0}, output=[element(2, 3)])
    write_dump({NAME: body, OTHER: forward(element(4))}, task="tensor", dump_data_dir="/where/it/was/recorded")
    return pytester.mkdir("dump_tensor_data")


def rename(pytester: pytest.Pytester, name: str) -> None:
    path = pytester.path / "dump.json"
    path.write_text(path.read_text().replace(FILE, name))


@pytest.fixture
def seen_inputs(make_device: Callable[[str], None], pytester: pytest.Pytester) -> Callable[[], torch.Tensor]:
    """Let the device ``faulty`` keep the first argument of NAME, and load it."""
    make_device(f"if record == {NAME!r}: torch.save(args[0].clone(), 'seen.pt')")
    return lambda: torch.load(pytester.path / "seen.pt")


def test_recorded_values_are_what_the_device_gets(folder: Path, check: Any, seen_inputs: Any) -> None:
    values = torch.randn(2, 3)
    torch.save(values, folder / FILE)
    assert check("--msprobe-dump=dump.json", "--msprobe-device=faulty").exit_code == 0
    assert torch.equal(seen_inputs(), values)


def test_npy_files_are_read(pytester: pytest.Pytester, folder: Path, check: Any, seen_inputs: Any) -> None:
    name = FILE.replace(".pt", ".npy")
    rename(pytester, name)
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(folder / name, values)
    assert check("--msprobe-dump=dump.json", "--msprobe-device=faulty").exit_code == 0
    assert np.array_equal(seen_inputs().numpy(), values)


def test_a_distributed_tensor_is_drawn_as_its_file_holds_what_one_rank_had(
    pytester: pytest.Pytester, write_dump: Write, element: Any, forward: Any, check: Any, seen_inputs: Any
) -> None:
    distributed = element(4, 3, data_name=FILE, type="torch.distributed.tensor.DTensor")
    write_dump({NAME: forward(distributed, {"type": "float", "value": 2.0}, output=[element(4, 3)])}, task="tensor")
    torch.save(torch.full((2, 3), 1000.0), pytester.mkdir("dump_tensor_data") / FILE)
    checked = check("--msprobe-dump=dump.json", "--msprobe-device=faulty")
    assert checked.outcomes == {NAME: "passed"}
    assert seen_inputs().shape == (4, 3)
    assert seen_inputs().abs().max() <= 1.0


@pytest.mark.parametrize("twin", [False, True], ids=["option", "ini"])
def test_real_data_never_draws_random_values(
    pytester: pytest.Pytester, folder: Path, check: Any, seen_inputs: Any, twin: bool
) -> None:
    torch.save(torch.full((2, 3), 1000.0), folder / FILE)
    arguments = [] if twin else ["--msprobe-real-data=never"]
    if twin:
        pytester.makeini("[pytest]\naddopts = --msprobe-real-data=never")
    assert check("--msprobe-dump=dump.json", "--msprobe-device=faulty", *arguments).exit_code == 0
    assert seen_inputs().abs().max() <= 1.0


def test_a_missing_file_skips_its_record_with_its_path(folder: Path, check: Any) -> None:
    checked = check("--msprobe-dump=dump.json", "--msprobe-device=sim")
    assert checked.outcomes == {NAME: "skipped", OTHER: "passed"}
    assert f"the recorded tensor file is missing: {folder / FILE}" in checked.cases[NAME].text


@pytest.mark.parametrize("content", [b"", b"not a tensor", b"PK\x03\x04 torn"], ids=["empty", "text", "torn zip"])
@pytest.mark.parametrize("suffix", [".pt", ".npy"])
def test_a_corrupt_file_fails_its_record_alone(
    pytester: pytest.Pytester, folder: Path, check: Any, content: bytes, suffix: str
) -> None:
    name = FILE.replace(".pt", suffix)
    rename(pytester, name)
    (folder / name).write_bytes(content)
    checked = check("--msprobe-dump=dump.json", "--msprobe-device=sim")
    assert checked.outcomes == {NAME: "failed", OTHER: "passed"}
    assert f"{folder / name}: not a readable tensor file, copy or record it again" in checked.cases[NAME].text


class Bomb:
    def __reduce__(self) -> Any:
        return Path.touch, (Path("exploded"),)


def test_a_pickle_is_not_executed(pytester: pytest.Pytester, folder: Path, check: Any) -> None:
    (folder / FILE).write_bytes(pickle.dumps(Bomb()))
    checked = check("--msprobe-dump=dump.json", "--msprobe-device=sim")
    torch.save(Bomb(), folder / FILE)
    again = check("--msprobe-dump=dump.json", "--msprobe-device=sim")
    name = FILE.replace(".pt", ".npy")
    rename(pytester, name)
    np.save(folder / name, np.array([Bomb()], dtype=object), allow_pickle=True)
    as_array = check("--msprobe-dump=dump.json", "--msprobe-device=sim")
    assert checked.outcomes == again.outcomes == as_array.outcomes == {NAME: "failed", OTHER: "passed"}
    assert not (pytester.path / "exploded").exists()


@pytest.mark.parametrize("kind", ["up", "absolute", "link"])
def test_a_file_outside_of_the_dumps_folder_is_not_read(
    pytester: pytest.Pytester, folder: Path, check: Any, kind: str
) -> None:
    secret = pytester.path / "secret.pt"
    torch.save(torch.zeros(2, 3), secret)
    name = {"up": "../secret.pt", "absolute": str(secret), "link": "link.pt"}[kind]
    if kind == "link":
        (folder / name).symlink_to(secret)
    rename(pytester, name)
    checked = check("--msprobe-dump=dump.json", "--msprobe-device=sim")
    assert checked.outcomes == {NAME: "failed", OTHER: "passed"}
    assert f"a tensor file must lie in {folder}; this name leads out of it" in checked.cases[NAME].text


@pytest.mark.parametrize(
    "values", [torch.zeros(3, 2), torch.zeros(2, 3, dtype=torch.float64), {"weight": torch.zeros(2, 3)}, 5]
)
def test_a_file_with_something_else_fails_and_says_what_it_holds(folder: Path, check: Any, values: Any) -> None:
    torch.save(values, folder / FILE)
    checked = check("--msprobe-dump=dump.json", "--msprobe-device=sim")
    assert checked.outcomes == {NAME: "failed", OTHER: "passed"}
    assert f"{folder / FILE}: holds " in checked.cases[NAME].text
