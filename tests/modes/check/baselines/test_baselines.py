"""One simulated device judged by the recorded errors of another."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_msprobe.commands.main import main

pytestmark = pytest.mark.slow

Json = dict[str, Any]

# Errors of float32 products in unit roundoffs; how large, a file says.
NOISE = """
noise = float(open("noise").read()) if os.path.exists("noise") else 0.0
if noise and record.startswith("Functional.linear") and record.endswith("forward"):
    state = torch.Generator().manual_seed(7)
    result.data.mul_(1 + noise * 2**-24 * torch.randn(result.shape, generator=state))
"""


@pytest.fixture
def run(pytester: pytest.Pytester, check: Callable[..., Any], make_device: Callable[[str], None]) -> Callable[..., Any]:
    """Check the dump on a device with this much noise."""
    make_device(NOISE)

    def checked(noise: float, *arguments: str, **options: Any) -> Any:
        (pytester.path / "noise").write_text(str(noise))
        return check("--msprobe-dump=dump.json", "--msprobe-device=faulty", *arguments, **options)

    return checked


SAVE, JUDGE = "--msprobe-save-baseline=gpu.json", "--msprobe-baseline=gpu.json"


@pytest.mark.usefixtures("linear")
def test_an_equally_sloppy_device_passes_by_ratio_and_a_sloppier_one_fails(run: Callable[..., Any]) -> None:
    assert run(200.0).wrong == {"Functional.linear.0.forward"}, "without a baseline this is wrong"
    saved = run(200.0, SAVE)
    assert "msprobe baseline: " in saved.output
    assert run(200.0, JUDGE).wrong == set()
    assert run(0.0, JUDGE).wrong == set(), "an exact device"
    sloppier = run(2000.0, JUDGE)
    assert sloppier.wrong == {"Functional.linear.0.forward"}
    assert "Functional.linear.0.forward is wrong" in sloppier.output


@pytest.mark.usefixtures("linear")
def test_a_precise_baseline_is_no_excuse_for_a_sloppy_device(run: Callable[..., Any]) -> None:
    run(0.0, SAVE)
    assert run(200.0, JUDGE).wrong == {"Functional.linear.0.forward"}


@pytest.mark.nightly
@pytest.mark.usefixtures("linear")
def test_baselines_are_whole_and_judge_alike_under_xdist(run: Callable[..., Any], pytester: pytest.Pytester) -> None:
    run(200.0, SAVE, "-n", "2", apart=True)
    lines = [json.loads(line) for line in (pytester.path / "gpu.json").read_text().splitlines()]
    assert {line["record"] for line in lines[1:-1]} == {
        "Functional.linear.0.forward",
        "Functional.softmax.0.forward",
        "Functional.linear.0.backward",
    }
    assert run(200.0, JUDGE, "-n", "2", apart=True).wrong == set()
    assert run(2000.0, JUDGE, "-n", "2", apart=True).wrong == {"Functional.linear.0.forward"}


@pytest.mark.usefixtures("linear")
def test_two_finished_runs_are_compared_as_a_run_is_judged(
    run: Callable[..., Any], pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    for noise, name in ((200.0, "gpu"), (200.0, "equal"), (2000.0, "sloppier"), (0.0, "exact")):
        run(noise, f"--msprobe-save-baseline={name}.json")
    capsys.readouterr()
    statuses = {
        name: main(
            ["msprobe", "precision-compare", str(pytester.path / f"{name}.json"), str(pytester.path / "gpu.json")]
        )
        for name in ("equal", "exact", "sloppier")
    }
    assert statuses == {"equal": 0, "exact": 0, "sloppier": 1}
    out = capsys.readouterr().out
    assert "3 API records: 3 passed" in out
    assert "FAILED Functional.linear.0.forward" in out


@pytest.mark.usefixtures("linear")
def test_a_table_of_a_gpu_run_is_a_baseline(run: Callable[..., Any], pytester: pytest.Pytester) -> None:
    run(1e5, "--msprobe-csv=out")
    [table] = (pytester.path / "out").glob("*details*")
    by_table = [f"--msprobe-baseline={table}", "--msprobe-policy=msprobe-26"]
    equal = run(1e5, *by_table)
    assert "3 records of a table; its inputs are the same only where the dump holds tensors" in equal.output
    assert equal.wrong == set()
    assert run(1e6, *by_table).wrong == {"Functional.linear.0.forward"}


def test_a_table_about_another_dump_is_refused(run: Callable[..., Any], write_dump: Callable[..., Path]) -> None:
    write_dump({"Torch.unheard_of.0.forward": {"input_args": [], "input_kwargs": {}, "output": []}})
    table = Path(__file__).parents[3] / "data" / "precision_compare" / "1.2.2" / "gpu.csv"
    refused = run(0.0, f"--msprobe-baseline={table}")
    assert refused.exit_code == pytest.ExitCode.USAGE_ERROR
    assert "no row for any record of" in refused.errors


@pytest.mark.usefixtures("linear")
def test_the_header_shows_seed_device_torch_and_math_modes(run: Callable[..., Any], pytester: pytest.Pytester) -> None:
    run(0.0, SAVE, "--msprobe-seed=7")
    header = json.loads((pytester.path / "gpu.json").read_text().splitlines()[0])
    assert header["msprobe_baseline"] == 1
    assert header["seed"] == 7
    assert header["real_data"] == "auto"
    [start] = header["starts"]
    assert start["device"] == "faulty:0"
    assert start["description"].startswith("simulated card 0")
    assert f"torch {torch.__version__}" in start["description"]
    assert start["math_modes"]["float32 matmul precision"] == "highest"
    reported = run(0.0, JUDGE, "--msprobe-seed=7").output
    assert "3 records on simulated card 0" in reported


@pytest.mark.usefixtures("linear")
def test_a_baseline_fits_a_dump_that_was_moved(run: Callable[..., Any], pytester: pytest.Pytester) -> None:
    run(200.0, SAVE)
    moved = pytester.path / "elsewhere"
    moved.mkdir()
    shutil.move(pytester.path / "dump.json", moved / "dump.json")
    (pytester.path / "dump.json").symlink_to(moved / "dump.json")
    assert run(200.0, JUDGE).wrong == set()


def test_a_baseline_of_other_inputs_is_refused(run: Callable[..., Any], linear: Path) -> None:
    run(0.0, SAVE)
    other_seed = run(0.0, JUDGE, "--msprobe-seed=1")
    assert other_seed.exit_code == pytest.ExitCode.USAGE_ERROR
    assert "was recorded with --msprobe-seed 0, this run has 1" in other_seed.errors
    assert "recorded with --msprobe-real-data auto" in run(0.0, JUDGE, "--msprobe-real-data=never").errors
    linear.write_text(linear.read_text().replace('"Max": 1.0', '"Max": 1.5'))
    changed = run(0.0, JUDGE)
    assert changed.exit_code == pytest.ExitCode.USAGE_ERROR
    assert "was recorded from other dumps" in changed.errors


@pytest.mark.usefixtures("linear")
def test_what_is_finished_without_a_baseline_needs_no_row(run: Callable[..., Any]) -> None:
    run(0.0, SAVE, "-k", "softmax")
    assert set(run(0.0, JUDGE).outcomes.values()) == {"passed"}


@pytest.mark.usefixtures("linear")
def test_a_missing_baseline_row_is_its_own_outcome(run: Callable[..., Any], pytester: pytest.Pytester) -> None:
    # The floor is so low that every rounding asks for the baseline.
    (pytester.path / "strict.yaml").write_text("rules: [{standard: benchmark, limits: {floor: 0.0001}}]")
    strict = "--msprobe-policy=strict.yaml"
    run(0.0, SAVE, strict, "-k", "softmax")
    judged = run(0.0, JUDGE, strict, "-rs")
    assert judged.outcomes == {
        "Functional.linear.0.forward": "skipped",
        "Functional.softmax.0.forward": "passed",
        "Functional.linear.0.backward": "skipped",
    }
    assert "2 skipped: recorded numbers that this depends on are missing" in judged.output
    wrong = run(1e6, JUDGE, strict)
    assert "Functional.linear.0.forward" in wrong.wrong, "a failure is not hidden by the missing row"
    assert "judged by the same-dtype CPU result, as there is no row" in wrong.output


@pytest.mark.usefixtures("linear")
def test_a_row_of_another_golden_result_is_not_used(run: Callable[..., Any], pytester: pytest.Pytester) -> None:
    run(200.0, SAVE)
    path = pytester.path / "gpu.json"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines[1:-1]:
        for output in line["outputs"]:
            output["metrics"]["scale"] *= 1.5
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    judged = run(200.0, JUDGE)
    assert judged.wrong == {"Functional.linear.0.forward"}
    assert "its inputs differ: the mean magnitude of golden was" in judged.output


@pytest.mark.usefixtures("linear")
def test_a_damaged_row_is_the_failure_of_its_record_alone(run: Callable[..., Any], pytester: pytest.Pytester) -> None:
    run(0.0, SAVE)
    path = pytester.path / "gpu.json"
    path.write_text(path.read_text().replace('"path":"grad.args.0"', '"path":7'))
    judged = run(0.0, JUDGE)
    assert judged.wrong == {"Functional.linear.0.backward"}
    assert "gpu.json: the row of 'Functional.linear.0.backward' is damaged" in judged.output
    assert "Traceback" not in judged.output


@pytest.mark.usefixtures("linear")
def test_a_baseline_that_was_wrong_itself_is_announced(run: Callable[..., Any]) -> None:
    run(200.0, SAVE)
    reported = "1 of its records were wrong there; such errors count as normal here"
    assert reported in run(200.0, JUDGE).output
    run(0.0, SAVE)
    assert reported not in run(0.0, JUDGE).output


@pytest.mark.usefixtures("linear")
def test_an_explored_input_has_no_recorded_numbers_and_is_judged_by_the_cpu(
    run: Callable[..., Any], pytester: pytest.Pytester
) -> None:
    run(200.0, SAVE)
    explored = run(200.0, JUDGE, "--msprobe-explore=5", "--msprobe-save-failures=cases")
    assert explored.wrong == {"Functional.linear.0.forward"}
    assert "The recorded input passes" in explored.output
    [case] = (pytester.path / "cases").glob("*/case.json")
    assert json.loads(case.read_text())["inputs"] == "explored"


@pytest.mark.usefixtures("linear")
def test_a_failure_by_a_recorded_baseline_is_saved(run: Callable[..., Any], pytester: pytest.Pytester) -> None:
    run(200.0, SAVE)
    assert run(200.0, JUDGE, "--msprobe-save-failures=cases").wrong == set()
    assert not (pytester.path / "cases").exists()
    assert run(2000.0, JUDGE, "--msprobe-save-failures=cases").wrong == {"Functional.linear.0.forward"}
    assert len(list((pytester.path / "cases").glob("*/case.json"))) == 1


def test_what_is_no_check_has_no_baseline(check: Callable[..., Any], linear: Path) -> None:
    for mode in ([f"--msprobe-overflow={linear}"], [f"--msprobe-compare={linear}", f"--msprobe-golden={linear}"]):
        refused = check(*mode, SAVE)
        assert refused.exit_code == pytest.ExitCode.USAGE_ERROR
        flag = mode[0].partition("=")[0]
        assert f"--msprobe-save-baseline does not work with {flag}; remove --msprobe-save-baseline" in refused.errors


@pytest.mark.usefixtures("linear")
def test_isolated_items_write_and_use_a_baseline(run: Callable[..., Any], pytester: pytest.Pytester) -> None:
    run(200.0, SAVE, "--msprobe-isolate", apart=True)
    header, *rows, _ = (json.loads(line) for line in (pytester.path / "gpu.json").read_text().splitlines())
    assert [start["device"] for start in header["starts"]] == ["faulty:0"]
    assert all(row["input_dtypes"] == ["torch.float32"] for row in rows)
    assert run(200.0, JUDGE, "--msprobe-isolate", apart=True).wrong == set()
    assert run(2000.0, JUDGE, "--msprobe-isolate", apart=True).wrong == {"Functional.linear.0.forward"}


@pytest.mark.usefixtures("linear")
def test_a_rerun_names_the_baseline(run: Callable[..., Any], pytester: pytest.Pytester) -> None:
    run(0.0, SAVE)
    assert f"--msprobe-baseline {pytester.path / 'gpu.json'}" in run(2000.0, JUDGE).output


@pytest.mark.usefixtures("linear")
def test_a_journal_is_resumed_by_the_same_baseline_only(run: Callable[..., Any], pytester: pytest.Pytester) -> None:
    run(0.0, SAVE)
    run(0.0, JUDGE, "--msprobe-journal=run.jsonl")
    again = run(0.0, JUDGE, "--msprobe-resume=run.jsonl")
    assert again.exit_code == pytest.ExitCode.OK
    assert "3 finished before: 3 passed" in again.output
    assert "was made with baseline" in run(0.0, "--msprobe-resume=run.jsonl").errors


@pytest.mark.usefixtures("linear")
@pytest.mark.parametrize("arguments", [["-x"], ["-k", "nothing"], ["--collect-only"]])
def test_a_run_that_did_not_end_leaves_the_old_baseline(
    run: Callable[..., Any], pytester: pytest.Pytester, arguments: list[str]
) -> None:
    path = pytester.path / "gpu.json"
    path.write_text("old")
    run(2000.0, SAVE, *arguments)
    assert path.read_text() == "old"
    assert [file.name for file in pytester.path.iterdir() if file.suffix == ".part"] == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.usefixtures("linear")
def test_a_full_disk_is_reported_at_the_end_and_fails_the_run(
    run: Callable[..., Any], pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = pytester.path / "gpu.json"
    path.write_text("old")
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: open("/dev/full", "r+b", 0))  # noqa: PTH123, SIM115
    done = run(0.0, SAVE)
    assert done.exit_code == pytest.ExitCode.INTERNAL_ERROR
    assert "gpu.json: the baseline cannot be written: No space left on device" in done.output
    assert "Traceback" not in done.output + done.errors
    assert set(done.outcomes.values()) == {"passed"}
    assert path.read_text() == "old"


def test_options_that_cannot_be_used_are_refused(run: Callable[..., Any], linear: Path) -> None:
    for arguments, problem in (
        (["--msprobe-baseline=missing.json"], "missing.json: cannot be read: No such file or directory"),
        (["--msprobe-baseline=noise"], "neither a baseline nor msprobe's details table"),
        (["--msprobe-save-baseline=."], "a directory; pass the name of a file"),
        ([SAVE, "--msprobe-resume=run.jsonl"], "remove --msprobe-resume"),
        ([SAVE, "--msprobe-explore=5"], "--msprobe-explore tries others; remove one of them"),
    ):
        done = run(0.0, *arguments)
        assert done.exit_code == pytest.ExitCode.USAGE_ERROR
        assert problem in done.errors
