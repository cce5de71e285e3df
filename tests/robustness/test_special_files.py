"""FIFOs and devices in place of files: each reader says what is wrong, and does not wait."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from msprobe_hooks.dump.containers import find_tensor
from msprobe_hooks.dump.npy import header_of, read_array
from msprobe_hooks.dump.reader import read_dump
from msprobe_hooks.extensions.environment.environment import read_texts
from msprobe_hooks.extensions.environment.start_file import read_started
from msprobe_hooks.extensions.mindspore.static_graph.anf_ir import read_ir
from msprobe_hooks.extensions.mindspore.static_graph.reader import table_rows
from msprobe_hooks.extensions.monitor.grad_probe import sign_maps
from msprobe_hooks.extensions.monitor.grad_probe.sign_maps import summary_rows
from msprobe_hooks.extensions.monitor.series.csv_files import CsvPart
from msprobe_hooks.recording.config import read_config
from msprobe_hooks.regular_files import read_regular
from msprobe_standards import Policy
from pytest_msprobe.commands.main import main
from pytest_msprobe.errors import USER_ERRORS
from pytest_msprobe.extensions.checkpoint.weights_folder import read_checkpoint
from pytest_msprobe.extensions.communication.truncated_dump import read_truncated_dump
from pytest_msprobe.extensions.environment.msprobe_pack import read_pack
from pytest_msprobe.extensions.generate.output_folder import write_files
from pytest_msprobe.extensions.monitor.series_names import read_anomalies
from pytest_msprobe.extensions.msprobe_commands.merge_results_command import read_configuration, read_table
from pytest_msprobe.extensions.overflow.ignore_rules import load_rules
from pytest_msprobe.journal import AppendedLines, read_journal
from pytest_msprobe.modes.check.baselines.baseline_file import read_baseline
from pytest_msprobe.modes.check.baselines.details_table import read_details
from pytest_msprobe.modes.check.saved_case import read_case
from pytest_msprobe.modes.compare.judging.policy import load_policy
from pytest_msprobe.modes.compare.matching.name_translation import read_mapping
from pytest_msprobe.run.msprobe_config import read_run_ut
from pytest_msprobe.storage.files import fingerprint
from pytest_msprobe.storage.limits import StoredTensor, TensorFileError
from pytest_msprobe.storage.tensors import read_tensor


def anomalies(path: Path) -> object:
    (path.parent / "rank0").mkdir()
    path.rename(path.parent / "rank0" / path.name)
    return read_anomalies(path.parent)


READERS: dict[str, Callable[[Path], Any]] = {
    "dump.json": read_dump,
    "cut.json": read_truncated_dump,
    "read.npy": read_array,
    "header.npy": header_of,
    "0.safetensors": lambda path: find_tensor(path, "x"),
    "tensors.safetensors": lambda path: read_tensor(path, "x", StoredTensor("torch.float32", (1,), (1,))),
    "model.safetensors": read_checkpoint,
    "model.pt": read_checkpoint,
    "model.safetensors.index.json": read_checkpoint,
    ".metadata": read_checkpoint,
    "graph.ir": read_ir,
    "statistic.csv": table_rows,
    "rank0.json": read_started,
    "run.sh": lambda path: read_texts([path]),
    "pack.zip": read_pack,
    "sign.npy": sign_maps.read,
    "grad_summary_0.csv": summary_rows,
    "grad_reduced_0-9.csv": lambda path: CsvPart(path, "grad_reduced"),
    "config.json": read_config,
    "run_ut.json": read_run_ut,
    "policy.yaml": Policy.load,
    "compare.yaml": lambda path: load_policy(str(path)),
    "ignore.yaml": load_rules,
    "mapping.yaml": read_mapping,
    "merge.yaml": read_configuration,
    "table.csv": lambda path: list(read_table(path)),
    "table.xlsx": lambda path: list(read_table(path)),
    "journal.jsonl": read_journal,
    "resumed.jsonl": AppendedLines,
    "baseline.jsonl": read_baseline,
    "accuracy_checking_details_1.csv": read_details,
    "case.json": lambda path: read_case(path.parent),
    "generated.json": lambda path: write_files(path.parent, {"test_a.py": "import torch\n"}),
    "anomaly.json": anomalies,
    "digest": fingerprint,
}


@pytest.fixture(autouse=True)
def _does_not_wait() -> Iterator[None]:
    """End what would wait for ever; how long anything takes decides nothing."""

    def stop(*_: object) -> None:
        pytest.fail("it waits for a writer")

    former = signal.signal(signal.SIGALRM, stop)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, former)


@pytest.mark.parametrize("name", READERS)
def test_a_fifo_is_refused(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises((*USER_ERRORS, OSError, ValueError, TensorFileError)) as refused:
        READERS[name](tmp_path / name)
    message = str(refused.value)
    assert "regular file" in message or "no such file" in message
    assert name in message or isinstance(refused.value, ValueError)


@pytest.mark.parametrize("name", ["journal.jsonl", "baseline.jsonl", "dump.json", "table.csv", "statistic.csv"])
def test_a_device_without_end_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to("/dev/zero")
    former = resource.getrlimit(resource.RLIMIT_AS)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    # What would read it ends before the machine's memory does.
    resource.setrlimit(resource.RLIMIT_AS, (taken + 2**31, former[1]))
    try:
        with pytest.raises(USER_ERRORS, match="it is a device, and only regular files are read"):
            READERS[name](tmp_path / name)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, former)


def test_commands_and_runs_name_the_file(pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("dump.json", "z.jsonl"):
        os.mkfifo(pytester.path / name)
    assert main(["report", "z.jsonl"]) == 2
    assert "z.jsonl: cannot be read: it is a FIFO, and only regular files are read" in capsys.readouterr().err
    result = pytester.runpytest_inprocess("--msprobe-overflow=dump.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*dump.json: cannot be read: it is a FIFO, and only regular files are read*"])


def test_a_pipe_of_the_shell_is_read() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"api: [Torch.a]\n")
    os.close(writing)
    try:
        assert read_regular(f"/dev/fd/{reading}") == b"api: [Torch.a]\n"
    finally:
        os.close(reading)
