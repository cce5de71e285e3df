from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from msprobe_standards.verdict import Verdict
from pytest_msprobe.commands.main import main
from pytest_msprobe.engine.frameworks import missing_piece
from pytest_msprobe.journal import Entry, Header, JournalWriter
from pytest_msprobe.results.result import DirectionResult
from pytest_msprobe.storage.files import fingerprint

REPOSITORY = Path(__file__).parents[3]
EXAMPLE = REPOSITORY / "examples" / "check_a_dump" / "dump.json"
VALUES = REPOSITORY / "tests" / "data" / "verdict_quality" / "values" / "dump.json"
MINDSPORE = REPOSITORY / "tests" / "data" / "dumps" / "mindspore-example" / "dump.json"

_SETTINGS = {
    "mode": "check",
    "policy": "default",
    "level": "by API",
    "device": "auto",
    "seed": "0",
    "real_data": "auto",
}

_DEVICE = """
import os
import time
from pytest_msprobe.devices.sim import SimDevice


class FaultyDevice(SimDevice):
    name = "faulty"

    def call(self, func, args, kwargs, *, record):
        if record == "Functional.silu.0.forward":
            {}
        return func(*args, **kwargs)


def pytest_msprobe_register_devices(registry):
    registry.add(FaultyDevice())
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder of its own, as a user in a project."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    return tmp_path


@pytest.fixture
def journal(tmp_path: Path) -> Callable[..., Path]:
    """Write a journal in which these records of a dump failed."""

    def write(*records: str, dump: Path = EXAMPLE, outcome: str = "fail", **settings: str) -> Path:
        path = tmp_path / "run.jsonl"
        writer = JournalWriter(path, Header(dumps={str(dump): fingerprint(dump)}, settings=_SETTINGS | settings))
        for record in records:
            writer.write(Entry(f"dump.json::{record}", outcome, DirectionResult(record, Verdict("fail", "ulp"))))
        writer.close()
        return path

    return write


@pytest.fixture
def generate(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Run the command and return its status and what it printed."""

    def run(*words: str | Path) -> tuple[int, str]:
        status = main(["generate", *map(str, words)])
        printed = capsys.readouterr()
        return status, printed.out + printed.err

    return run


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-k", "nothing"], "-k 'nothing': matches none of the 362 API records of"),
        (["-k", "softmax and"], "-k 'softmax and': at column 12: expected a word"),
        (["--iterations", "0"], "--iterations 0: expected a number of at least 1"),
        (["--patience", "0"], "--patience 0: expected a positive number of seconds"),
        (
            ["--iterations", "2", "--real-data"],
            "--iterations draws new inputs each time, and --real-data draws none; remove one of them",
        ),
        (["--real-data"], "no selected record has recorded tensors; remove --real-data"),
        (["--run-options", "'"], "--run-options"),
        (["--failed", "no.jsonl"], "no.jsonl: cannot be read"),
        (["-k", "Tensor.all", "--direction", "backward"], "-k 'Tensor.all' and --direction backward: matches none"),
    ],
)
def test_what_cannot_be_done_is_one_error_and_nothing_is_written(
    generate: Callable[..., tuple[int, str]], folder: Path, words: list[str], message: str
) -> None:
    status, printed = generate(EXAMPLE, *words)
    assert status == 2
    assert printed.startswith("pytest-msprobe: ")
    assert message in printed
    assert list(folder.iterdir()) == []


def test_a_truncated_dump_is_one_error(generate: Callable[..., tuple[int, str]], folder: Path) -> None:
    (folder / "dump.json").write_bytes(EXAMPLE.read_bytes()[:5000])
    status, printed = generate("dump.json")
    assert (status, printed.splitlines()[1:]) == (2, [])
    assert "dump.json: the JSON ends too early" in printed


def test_the_folder_of_a_recording_names_its_one_dump(generate: Callable[..., tuple[int, str]], folder: Path) -> None:
    rank = folder / "recorded" / "step0" / "rank"
    rank.mkdir(parents=True)
    (rank / "dump.json").write_bytes(EXAMPLE.read_bytes())
    status, printed = generate("recorded", "-k", "matmul.1.", "--no-run", "-o", "out")
    assert (status, list((folder / "out").glob("test_*.py")) != []) == (0, True), printed


def test_of_a_folder_with_several_dumps_one_must_be_named(
    generate: Callable[..., tuple[int, str]], folder: Path
) -> None:
    for rank in ("rank0", "rank1"):
        (folder / "step0" / rank).mkdir(parents=True)
        (folder / "step0" / rank / "dump.json").write_bytes(EXAMPLE.read_bytes())
    status, printed = generate("step0")
    assert (status, printed) == (
        2,
        "pytest-msprobe: step0: 2 dumps found; pass one of them, such as step0/rank0/dump.json\n",
    )


def test_a_missing_dump_is_an_error(generate: Callable[..., tuple[int, str]]) -> None:
    status, printed = generate("none.json")
    assert (status, printed.splitlines()[1:]) == (2, [])


@pytest.mark.skipif(missing_piece("mindspore") is None, reason="MindSpore is installed")
def test_without_mindspore_its_dumps_are_one_error_that_names_the_extra(
    generate: Callable[..., tuple[int, str]],
) -> None:
    status, printed = generate(MINDSPORE)
    assert (status, printed.splitlines()[1:]) == (2, [])
    assert "recorded with mindspore, but MindSpore is not installed; pip install 'pytest-msprobe[mindspore]'" in printed


def test_a_dump_of_mindtorch_is_refused(generate: Callable[..., tuple[int, str]], folder: Path) -> None:
    (folder / "dump.json").write_text(MINDSPORE.read_text().replace('"mindspore"', '"mindtorch"'))
    status, printed = generate("dump.json")
    assert (status, printed.splitlines()[1:]) == (2, [])
    assert "recorded with mindtorch, but generating tests for MindTorch is not supported" in printed


def test_a_journal_of_another_dump_is_one_error(
    generate: Callable[..., tuple[int, str]], journal: Callable[..., Path]
) -> None:
    status, printed = generate(EXAMPLE, "--failed", journal(dump=VALUES))
    assert status == 2
    assert "not a journal of" in printed


def test_a_journal_without_failures_needs_no_tests(
    generate: Callable[..., tuple[int, str]], journal: Callable[..., Path], folder: Path
) -> None:
    assert generate(EXAMPLE, "--failed", journal()) == (
        0,
        f"nothing failed in {folder}/run.jsonl: no test was written\n",
    )


def test_a_journal_judged_by_a_policy_file_asks_for_it(
    generate: Callable[..., tuple[int, str]], journal: Callable[..., Path]
) -> None:
    path = journal("Functional.silu.0.forward", policy="0123456789abcdef")
    status, printed = generate(EXAMPLE, "--failed", path)
    assert status == 2
    assert "the run used a policy file; pass --msprobe-policy FILE" in printed
    assert generate(EXAMPLE, "--failed", path, "--msprobe-policy", "mine.yaml", "--no-run")[0] == 0


def test_a_journals_settings_become_those_of_the_tests(
    generate: Callable[..., tuple[int, str]], journal: Callable[..., Path], folder: Path
) -> None:
    path = journal("Functional.silu.0.forward", seed="7", device="cuda", policy="msprobe-26", level="L1")
    assert generate(EXAMPLE, "--failed", path, "--no-run")[0] == 0
    source = (folder / "generated_tests" / "test_functional_silu.py").read_text()
    assert "SEED = 7\n" in source
    assert "--msprobe-device=cuda --msprobe-policy=msprobe-26 --msprobe-level=L1\n" in source


def test_a_journal_of_recorded_tensors_copies_them(
    generate: Callable[..., tuple[int, str]], journal: Callable[..., Path], folder: Path
) -> None:
    path = journal("Functional.softmax.0.forward", dump=VALUES)
    assert "1 tensor file, " in generate(VALUES, "--failed", path, "--no-run")[1]
    assert (folder / "generated_tests" / "tensors" / "Functional.softmax.0.forward.input.0.pt").exists()


def test_a_module_says_where_it_comes_from_and_no_path(generate: Callable[..., tuple[int, str]], folder: Path) -> None:
    assert generate(EXAMPLE, "-k", 'silu and not "x"', "--seed=3", "--no-run")[0] == 0
    source = (folder / "generated_tests" / "test_functional_silu.py").read_text()
    assert source.startswith('"""torch.nn.functional.silu as dump.json recorded it: 4 records.\n')
    made_by = next(line for line in source.splitlines() if line.startswith("Made by: "))
    assert shlex.split(made_by)[2:] == [
        "pytest-msprobe", "generate", "dump.json", "-k", 'silu and not "x"', "--seed", "3",
    ]  # fmt: skip
    assert str(REPOSITORY) not in source


@pytest.mark.nightly
@pytest.mark.slow
def test_failures_are_run_again_and_still_fail_or_pass_now(
    generate: Callable[..., tuple[int, str]], journal: Callable[..., Path], folder: Path
) -> None:
    (folder / "conftest.py").write_text(_DEVICE.format("return func(*args, **kwargs) * 2"))
    records = ["Functional.silu.0.forward", "Functional.silu.1.forward", "Functional.silu.1.backward"]
    path = journal(*records, device="faulty")
    status, printed = generate(EXAMPLE, "--failed", path)
    assert status == 1
    lines = [line.split() for line in printed.splitlines() if line.startswith("  ")]
    assert [(name, " ".join(words[:2])) for name, *words in lines] == [
        ("Functional.silu.0.forward", "still fails:"),
        ("Functional.silu.1.forward", "passes now"),
        ("Functional.silu.1.backward", "passes now"),
    ]
    assert "\n1 failed, 2 passed\nRun them again: pytest generated_tests --msprobe-device=faulty\n" in printed
    assert generate(EXAMPLE, "--failed", path, "--msprobe-device=cpu")[0] == 0
    assert sorted(path.name for path in (folder / "generated_tests").iterdir()) == [
        "generated.json",
        "test_functional_silu.py",
    ]


@pytest.mark.nightly
@pytest.mark.slow
def test_a_record_that_kills_its_process_costs_no_other(
    generate: Callable[..., tuple[int, str]], journal: Callable[..., Path], folder: Path
) -> None:
    (folder / "conftest.py").write_text(_DEVICE.format("os.abort()"))
    path = journal("Functional.silu.0.forward", "Functional.silu.1.forward", device="faulty", outcome="crash")
    status, printed = generate(EXAMPLE, "--failed", path)
    assert status == 1
    assert "Functional.silu.0.forward  still fails: its process died of SIGABRT" in printed
    assert "Functional.silu.1.forward  passes now" in printed


@pytest.mark.nightly
@pytest.mark.slow
def test_a_record_that_does_not_end_is_ended(
    generate: Callable[..., tuple[int, str]], journal: Callable[..., Path], folder: Path
) -> None:
    (folder / "conftest.py").write_text(_DEVICE.format("time.sleep(600)"))
    path = journal("Functional.silu.0.forward", device="faulty", outcome="timeout")
    status, printed = generate(EXAMPLE, "--failed", path, "--patience=1")
    assert status == 1
    assert "Functional.silu.0.forward  still fails: did not end within 1 s" in printed


def test_tests_that_cannot_be_run_are_one_error_with_pytests_words(
    generate: Callable[..., tuple[int, str]], folder: Path
) -> None:
    status, printed = generate(EXAMPLE, "-k", "silu", "--msprobe-device=none")
    assert status == 2
    assert "test_functional_silu.py: pytest ended with status 4" in printed
    assert "none" in printed.splitlines()[-1]


@pytest.mark.slow
def test_a_projects_own_settings_do_not_disturb_the_run(generate: Callable[..., tuple[int, str]], folder: Path) -> None:
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -n 1 -v --strict-markers\nfilterwarnings = error\n")
    status, printed = generate(EXAMPLE, "-k", "silu", "--msprobe-device=cpu")
    assert (status, "4 passed" in printed) == (0, True), printed


def test_printed_names_cannot_drive_a_terminal(generate: Callable[..., tuple[int, str]], folder: Path) -> None:
    body = {"input_args": [], "input_kwargs": {}, "output": []}
    records = {"Torch.\x1b[2J\n.0.forward": body, "\u202e": body}
    (folder / "dump.json").write_text(
        json.dumps({"task": "statistics", "level": "L1", "framework": "pytorch", "data": records})
    )
    status, printed = generate("dump.json")
    assert status == 2
    assert printed.replace("\n", "").isprintable()
