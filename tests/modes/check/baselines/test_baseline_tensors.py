"""One simulated device judged by the recorded results of another, not only by numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("linear")]

Json = dict[str, Any]

# Errors of float32 products in unit roundoffs, and a NaN in the first element: a file says which.
FAULTS = """
noise, nan = open("faults").read().split() if os.path.exists("faults") else ("0", "")
if record.startswith("Functional.linear") and record.endswith("forward"):
    state = torch.Generator().manual_seed(7)
    result.data.mul_(1 + float(noise) * 2**-24 * torch.randn(result.shape, generator=state))
    if nan != "none":
        result.data.view(-1)[int(nan)] = float("nan")
"""

LINEAR, BACKWARD = "Functional.linear.0.forward", "Functional.linear.0.backward"
SOFTMAX = "Functional.softmax.0.forward"
SAVE = ("--msprobe-save-baseline=gpu.json", "-omsprobe_save_baseline_tensors=true")
JUDGE = "--msprobe-baseline=gpu.json"


@pytest.fixture
def run(pytester: pytest.Pytester, check: Callable[..., Any], make_device: Callable[[str], None]) -> Callable[..., Any]:
    """Check the dump on a device with this much noise, and a NaN at this place of the product."""
    make_device(FAULTS)

    def checked(noise: float, *arguments: str, nan: int | None = None, **options: Any) -> Any:
        (pytester.path / "faults").write_text(f"{noise} {'none' if nan is None else nan}")
        return check("--msprobe-dump=dump.json", "--msprobe-device=faulty", *arguments, **options)

    return checked


@pytest.fixture
def folder(pytester: pytest.Pytester) -> Path:
    return pytester.path / "gpu.json.tensors"


def file_of(folder: Path, record: str) -> Path:
    [path] = folder.glob(f"{record}-*.safetensors")
    return path


def test_an_equally_sloppy_device_passes_by_the_tensors_and_a_sloppier_one_fails(run: Callable[..., Any]) -> None:
    saved = run(200.0, *SAVE)
    assert saved.wrong == {LINEAR}, "without a baseline this is wrong"
    assert "gpu.json.tensors (3 records, " in saved.output
    equal = run(200.0, JUDGE)
    assert "msprobe: tensors of 3 records in" in equal.output
    assert equal.wrong == set()
    assert run(2000.0, JUDGE).wrong == {LINEAR}
    assert "not by its tensors" not in equal.output


@pytest.mark.parametrize(("noise", "nan"), [(0.0, None), (30.0, None), (2000.0, None), (0.0, 5)])
def test_tensors_of_a_cpu_judge_as_the_cpu_itself_does(run: Callable[..., Any], noise: float, nan: int | None) -> None:
    run(0.0, *SAVE, "--msprobe-device=cpu")

    def verdicts(*arguments: str) -> dict[str, dict[str, str]]:
        cases = run(noise, *arguments, nan=nan).cases
        return {name: case.properties for name, case in cases.items()}

    assert verdicts(JUDGE) == verdicts()


@pytest.mark.nightly
def test_isolated_items_write_and_use_tensors(run: Callable[..., Any], folder: Path) -> None:
    run(200.0, *SAVE, "--msprobe-isolate", apart=True)
    assert len(list(folder.iterdir())) == 3
    judged = run(200.0, JUDGE, "--msprobe-isolate", apart=True)
    assert judged.wrong == set()
    assert "not by its tensors" not in judged.output


def test_each_file_holds_what_the_device_gave(run: Callable[..., Any], folder: Path) -> None:
    run(0.0, *SAVE)
    found = {record: safetensors.torch.load_file(file_of(folder, record)) for record in (LINEAR, SOFTMAX, BACKWARD)}
    assert {record: set(tensors) for record, tensors in found.items()} == {
        LINEAR: {"output.0"},
        SOFTMAX: {"output.0"},
        BACKWARD: {"grad.args.0", "grad.args.1"},
    }
    assert found[LINEAR]["output.0"].shape == (64, 16)
    assert torch.allclose(found[SOFTMAX]["output.0"].sum(-1), torch.ones(64))


def test_nan_that_the_baseline_has_too_is_right_and_another_is_wrong(run: Callable[..., Any]) -> None:
    run(0.0, *SAVE, nan=5)
    assert run(0.0, JUDGE, nan=5).wrong == set()
    assert run(0.0, JUDGE, nan=6).wrong == {LINEAR}


def test_numbers_alone_do_not_show_which_nan_is_right(run: Callable[..., Any]) -> None:
    run(0.0, SAVE[0], nan=5)
    assert run(0.0, JUDGE, nan=5).wrong == {LINEAR}


def test_another_policy_than_that_of_the_saving_run_judges_by_tensors(
    run: Callable[..., Any], pytester: pytest.Pytester
) -> None:
    # It counts the elements above three units in the last place, a line that the saving run did not draw.
    rules = "{excused_by_baseline: true, rules: [{standard: ulp, limits: {max_ulp: 3.0}}]}"
    (pytester.path / "ulps.yaml").write_text(rules)
    ulps = (JUDGE, "--msprobe-policy=ulps.yaml")
    run(200.0, SAVE[0])
    by_numbers = run(200.0, *ulps)
    assert LINEAR in by_numbers.wrong
    assert "its row lacks numbers of standard" in by_numbers.output
    run(200.0, *SAVE)
    assert set(run(200.0, *ulps).outcomes.values()) == {"passed"}
    assert LINEAR in run(2000.0, *ulps).wrong


def test_a_missing_file_falls_back_to_the_numbers_and_says_so(run: Callable[..., Any], folder: Path) -> None:
    run(200.0, *SAVE)
    path = file_of(folder, LINEAR)
    path.unlink()
    judged = run(200.0, JUDGE)
    assert judged.wrong == set(), "by the numbers"
    assert f"1 judged by the baseline's numbers, not its tensors: {path}: is missing" in judged.output
    wrong = run(2000.0, JUDGE)
    assert wrong.wrong == {LINEAR}
    assert f"The baseline's tensors were not used, but its numbers: {path}: is missing" in wrong.output


def test_a_missing_folder_is_reported_in_the_header(run: Callable[..., Any], folder: Path) -> None:
    run(0.0, *SAVE)
    folder.rename(folder.with_name("away"))
    assert f"tensors of 3 records in {folder}: the folder is missing, numbers are used" in run(0.0, JUDGE).output


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def replace_by_another(path: Path) -> None:
    safetensors.torch.save_file({"output.0": torch.zeros(64, 16)}, path)


def lead_out(path: Path) -> None:
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


@pytest.mark.parametrize(
    ("damage", "reported"),
    [
        (truncate, "is not what the baseline's run wrote"),
        (replace_by_another, "is not what the baseline's run wrote"),
        (lambda path: path.write_bytes(b""), "is not what the baseline's run wrote"),
        (lambda path: (path.unlink(), path.mkdir()), "cannot be read: Is a directory"),
        (lead_out, "leads out of its folder"),
    ],
    ids=["truncated", "foreign", "empty", "folder", "link"],
)
def test_a_bad_file_falls_back_to_the_numbers_and_says_so(
    run: Callable[..., Any], folder: Path, damage: Callable[[Path], None], reported: str
) -> None:
    run(200.0, *SAVE)
    damage(file_of(folder, LINEAR))
    judged = run(200.0, JUDGE)
    assert judged.wrong == set()
    assert reported in judged.output
    assert "Traceback" not in judged.output + judged.errors


@pytest.mark.nightly
def test_without_safetensors_numbers_judge_and_the_remedy_is_reported(
    run: Callable[..., Any], pytester: pytest.Pytester
) -> None:
    run(200.0, *SAVE)
    conftest = pytester.path / "conftest.py"
    conftest.write_text(f"import sys\nsys.modules['safetensors'] = None\n{conftest.read_text()}")
    judged = run(200.0, JUDGE, apart=True)
    assert judged.wrong == set()
    assert "reading it needs safetensors; pip install 'pytest-msprobe[cases]'" in judged.output
    run(200.0, SAVE[0], apart=True)
    assert "not by its tensors" not in run(200.0, JUDGE, apart=True).output


def edit(baseline: Path, change: Callable[[Json], None]) -> None:
    lines = [json.loads(line) for line in baseline.read_text().splitlines()]
    for line in lines[1:-1]:
        if line["record"] == LINEAR:
            change(line)
    baseline.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_a_digest_that_is_a_path_is_a_damaged_row(run: Callable[..., Any], pytester: pytest.Pytester) -> None:
    run(200.0, *SAVE)
    edit(pytester.path / "gpu.json", lambda row: row.update(tensors="/../../secret"))
    judged = run(200.0, JUDGE)
    assert judged.wrong == {LINEAR}
    assert f"the row of '{LINEAR}' is damaged" in judged.output


def test_tensors_of_other_inputs_are_not_used(run: Callable[..., Any], pytester: pytest.Pytester) -> None:
    run(200.0, *SAVE)
    edit(pytester.path / "gpu.json", lambda row: row["outputs"][0]["metrics"].update(scale=1e3))
    judged = run(200.0, JUDGE)
    assert judged.wrong == {LINEAR}
    assert "its inputs differ: the mean magnitude of golden was" in judged.output


def hash_of(path: Path) -> str:
    import hashlib

    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()


@pytest.mark.parametrize(
    ("metadata", "reported"),
    [
        (None, "holds no tensors of a baseline"),
        ("{}", "record"),
        (json.dumps({"record": "x", "dump": "", "tensors": {}}), "is about 'x'"),
        (
            json.dumps(
                {
                    "record": LINEAR,
                    "dump": "",
                    "tensors": {"output.0": {"dtype": "torch.float32", "shape": [2], "stride": [1]}},
                }
            ),
            "output.0 is torch.float32 (2,), here torch.float32 (64, 16)",
        ),
        (
            json.dumps(
                {
                    "record": LINEAR,
                    "dump": "",
                    "tensors": {"output.0": {"dtype": "torch.float32", "shape": [64, 16], "stride": [16, 1]}},
                }
            ),
            "tensor 'output.0' is torch.float32 (3,), but was saved as",
        ),
    ],
    ids=["none", "empty", "another record", "other shape", "shape that is not its own"],
)
def test_a_file_whose_row_agrees_but_that_is_malformed_is_reported(
    run: Callable[..., Any], pytester: pytest.Pytester, folder: Path, metadata: str | None, reported: str
) -> None:
    run(200.0, *SAVE)
    path = file_of(folder, LINEAR)
    safetensors.torch.save_file(
        {"output.0": torch.zeros(3)}, path, None if metadata is None else {"msprobe_baseline": metadata}
    )
    digest = hash_of(path)
    path.rename(folder / f"{LINEAR}-{digest}.safetensors")
    edit(pytester.path / "gpu.json", lambda row: row.update(tensors=digest))
    judged = run(200.0, JUDGE)
    assert judged.wrong == set(), "by the numbers"
    assert reported in judged.output
    assert "Traceback" not in judged.output + judged.errors


@pytest.mark.nightly
def test_two_processes_write_all_of_it(run: Callable[..., Any], folder: Path) -> None:
    assert "(3 records, " in run(200.0, *SAVE, "-n", "2", apart=True).output
    names = sorted(path.name for path in folder.iterdir())
    assert [name.rpartition("-")[0] for name in names] == [BACKWARD, LINEAR, SOFTMAX]
    assert run(200.0, JUDGE, "-n", "2", apart=True).wrong == set()


def test_a_second_run_replaces_the_first_ones_files(run: Callable[..., Any], folder: Path) -> None:
    (folder / "notes").mkdir(parents=True)
    run(200.0, *SAVE)
    before = file_of(folder, LINEAR)
    run(100.0, *SAVE)
    assert file_of(folder, LINEAR) != before
    assert (folder / "notes").is_dir(), "what is not ours stays"


def test_a_run_that_did_not_end_leaves_the_old_tensors(run: Callable[..., Any], folder: Path) -> None:
    run(200.0, *SAVE)
    run(300.0, *SAVE, "-x")
    judged = run(200.0, JUDGE)
    assert judged.wrong == set()
    assert "not by its tensors" not in judged.output


def test_what_finds_no_room_is_left_out_and_said(run: Callable[..., Any], folder: Path) -> None:
    small = run(200.0, *SAVE, "-omsprobe_save_limit=6KiB")
    assert small.exit_code == pytest.ExitCode.TESTS_FAILED
    assert (
        "2 left out (numbers only): no space left: the limit for one record is 6.0 KiB; raise msprobe_save_limit"
        in small.output
    )
    all_of_them = run(200.0, *SAVE, "-omsprobe_save_limit=1GiB,6KiB")
    assert "2 left out (numbers only): no space left: the limit for all is 6.0 KiB" in all_of_them.output
    judged = run(200.0, JUDGE)
    assert "tensors of 1 records in" in judged.output
    assert judged.wrong == set()


def test_a_full_disk_leaves_no_half_file_and_the_run_goes_on(
    run: Callable[..., Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pytest_msprobe.modes.check.baselines.save_tensors as keeping

    real = keeping.write_tensors

    def full(path: Path, *arguments: Any) -> None:
        real(path, *arguments)
        path.write_bytes(path.read_bytes()[:50])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(keeping, "write_tensors", full)
    done = run(0.0, *SAVE)
    assert set(done.outcomes.values()) == {"passed"}
    assert "3 left out (numbers only): No space left on device" in done.output
    assert list(folder.iterdir()) == []
    monkeypatch.undo()
    assert run(0.0, JUDGE).wrong == set()


def test_options_that_cannot_be_used_are_refused(run: Callable[..., Any], folder: Path) -> None:
    folder.write_text("")
    for arguments, problem in (
        (
            SAVE[1:],
            (
                "msprobe_save_baseline_tensors has no effect without --msprobe-save-baseline; "
                "pass --msprobe-save-baseline FILE"
            ),
        ),
        (SAVE, "gpu.json.tensors is not a directory"),
        (("-omsprobe_save_limit=1GiB",), "pass --msprobe-save-failures DIR"),
    ):
        done = run(0.0, *arguments)
        assert done.exit_code == pytest.ExitCode.USAGE_ERROR
        assert problem in done.errors
