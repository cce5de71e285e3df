"""Journals that a run cannot write or must not go on with: one error, and what is there stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_msprobe.errors import JournalError
from pytest_msprobe.journal import AppendedLines, JournalWriter, read_journal
from tests.support.hosts.disks import files_of_at_most

pytestmark = pytest.mark.slow

DUMP = Path(__file__).parents[1] / "data" / "dumps" / "lstm-mix" / "dump.json"

FULL_DISK = """
import resource

def pytest_configure(config):
    if config.getoption("msprobe_journal"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, resource.RLIM_INFINITY))
"""


def test_starting_on_an_existing_journal_is_refused(pytester: pytest.Pytester) -> None:
    pytester.path.joinpath("run.jsonl").write_text("mine\n")
    result = pytester.runpytest_subprocess("--msprobe-dump", str(DUMP), "--msprobe-journal", "run.jsonl")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *run.jsonl: already exists; continue it with --msprobe-resume, *"])
    assert pytester.path.joinpath("run.jsonl").read_text() == "mine\n"


@pytest.mark.parametrize(
    "workers", [pytest.param([], id="alone", marks=pytest.mark.nightly), pytest.param(["-n1"], id="workers")]
)
def test_a_full_disk_ends_the_run_with_what_it_has(pytester: pytest.Pytester, workers: list[str]) -> None:
    pytester.makeconftest(FULL_DISK)
    base = ["--msprobe-device=cpu", f"--msprobe-dump={DUMP}", "-k", "linear or embedding", "-p", "no:cacheprovider"]
    result = pytester.runpytest_subprocess(*base, *workers, "--msprobe-journal=run.jsonl")
    path = pytester.path / "run.jsonl"
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert f"{path}: the disk is full; free some space, then continue with --msprobe-resume" in result.stdout.str()
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    assert path.stat().st_size == 4000
    kept = read_journal(path).entries
    assert 0 < len(kept) < 8

    assert pytester.runpytest_subprocess(*base, *workers, "--msprobe-resume=run.jsonl").ret == 0
    assert len(read_journal(path).entries) == 8


def test_a_disk_without_room_for_a_line_is_an_error_of_the_journal(tmp_path: Path) -> None:
    lines = AppendedLines(tmp_path / "run.jsonl")
    with files_of_at_most(10), pytest.raises(JournalError, match="the disk is full"):
        lines.append(b"more than ten bytes" + b"\n")
    lines.close()


def test_a_disk_that_is_full_at_the_end_of_a_line_is_an_error_of_the_journal(tmp_path: Path) -> None:
    lines = AppendedLines(tmp_path / "run.jsonl")
    with files_of_at_most(10):
        lines.append(b"ten bytes\n")
        with pytest.raises(JournalError, match="the disk is full"):
            lines.append(b"one more\n")
    lines.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_device_in_place_of_a_journal_is_one_usage_error(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess(f"--msprobe-dump={DUMP}", "--msprobe-journal=/dev/full")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: /dev/full: cannot be written: it is a device, and only regular files are read"]
    )


def test_a_folder_that_cannot_be_written_is_one_usage_error(pytester: pytest.Pytester) -> None:
    pytester.path.joinpath("file").touch()
    result = pytester.runpytest_inprocess(f"--msprobe-dump={DUMP}", "--msprobe-journal=file/run.jsonl")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *file/run.jsonl: cannot be written: *"])


def test_resuming_without_a_journal_is_one_usage_error(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess(f"--msprobe-dump={DUMP}", "--msprobe-resume=run.jsonl")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *run.jsonl: cannot be read: No such file or directory"])
    assert not pytester.path.joinpath("run.jsonl").exists()


def test_a_run_on_a_journal_in_use_is_one_usage_error(pytester: pytest.Pytester) -> None:
    base = ["--msprobe-device=cpu", f"--msprobe-dump={DUMP}", "-k", "embedding"]
    pytester.runpytest_inprocess(*base, "--msprobe-journal=run.jsonl")
    path = pytester.path / "run.jsonl"
    before = path.read_bytes()
    writer = JournalWriter(path, read_journal(path).header)
    result = pytester.runpytest_inprocess(*base, "--msprobe-resume=run.jsonl")
    writer.close()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: *run.jsonl: another run is writing this journal; use one journal per run and rank"]
    )
    assert path.read_bytes() == before


def test_a_journal_made_in_another_rootdir_is_one_usage_error(pytester: pytest.Pytester) -> None:
    base = ["--msprobe-device=cpu", f"--msprobe-dump={DUMP}", "-k", "embedding"]
    pytester.runpytest_inprocess(*base, f"--rootdir={DUMP.parent}", "--msprobe-journal=run.jsonl")
    other = pytester.runpytest_inprocess(*base, f"--rootdir={DUMP.parents[1]}", "--msprobe-resume=run.jsonl")
    assert other.ret == pytest.ExitCode.USAGE_ERROR
    other.stderr.fnmatch_lines([f"ERROR: *run.jsonl: has items such as 'dump.json::*--rootdir={DUMP.parent}"])
    same = pytester.runpytest_inprocess(*base, f"--rootdir={DUMP.parent}", "--msprobe-resume=run.jsonl")
    assert same.ret == 0
