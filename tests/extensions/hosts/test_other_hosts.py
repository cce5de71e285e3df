from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from pytest_msprobe.commands.main import main
from tests.support.hosts.sshd import Host, ssh_host

pytestmark = pytest.mark.slow

Json = dict[str, Any]
Make = Callable[..., Host]

LINEAR, RELU = "Functional.linear.0.forward", "Functional.relu.0.forward"

RECORD = """
import sys
import torch
from msprobe_hooks import record

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.LayerNorm(16))
with record(sys.argv[1], task="tensor"):
    model(torch.randn(8, 16)).square().mean().backward()
"""


@pytest.fixture
def make_host(tmp_path: Path, pytester: pytest.Pytester) -> Iterator[Make]:
    """Start hosts that do not see the folder of the test, each with a temporary directory of its own."""
    with contextlib.ExitStack() as stack:

        def make(name: str, *, disk: str = "50m", sees: bool = False, **environment: str) -> Host:
            temporary = tmp_path / f"{name}-tmp"
            temporary.mkdir()
            return stack.enter_context(
                ssh_host(
                    tmp_path,
                    name,
                    without=[] if sees else [pytester.path],
                    small_disks={temporary: disk},
                    environment={"TMPDIR": str(temporary), **environment},
                )
            )

        yield make


@pytest.fixture
def dump(pytester: pytest.Pytester) -> str:
    """Record a small step with its tensors, and return its dump's path as seen from the folder of the test."""
    done = pytester.runpython_c(RECORD.replace("sys.argv[1]", "'run'"))
    assert done.ret == 0, done.errlines
    (found,) = Path("run").rglob("dump.json")
    return str(found)


def on(*hosts: Host, workers: int = 1) -> list[str]:
    """Return the options that spread a run over hosts."""
    return ["-d", *(word for host in hosts for word in ("--tx", f"{workers}*{host.spec()}"))]


def test_hosts_that_see_nothing_give_what_one_process_gives(
    pytester: pytest.Pytester, dump: str, check: Any, make_device: Callable[[str], None], make_host: Make
) -> None:
    make_device(f"if record == {RELU!r}: result = result + 1")
    pytester.makeini("[pytest]\naddopts = --msprobe-seed=3 --msprobe-device=faulty\n")
    Path("ours.yaml").write_text("rules: [{standard: benchmark}]")
    options = ["--msprobe-dump", dump, "--msprobe-policy", "ours.yaml"]
    alone = check(*options, apart=True)
    hosts = make_host("first"), make_host("second")
    outputs = [f"--msprobe-save-failures={pytester.path}/cases", "--msprobe-journal", "run.jsonl", "--msprobe-csv=csv"]
    spread = check(*options, *outputs, *on(*hosts), apart=True)
    assert spread.exit_code == alone.exit_code == pytest.ExitCode.TESTS_FAILED
    assert spread.outcomes == alone.outcomes
    assert spread.wrong == {RELU}
    for name, case in alone.cases.items():
        assert spread.cases[name].properties["msprobe.margin"] == case.properties["msprobe.margin"]
        assert spread.cases[name].properties["msprobe.host"] in ("first", "second")
    # Each host has cards of its own.
    assert {case.properties["msprobe.device"] for case in spread.cases.values()} == {"faulty:0"}
    spread.result.stdout.fnmatch_lines(["on faulty:0 of host first: *", "on faulty:0 of host second: *"])
    rerun = next(line for line in alone.cases[RELU].text.splitlines() if line.startswith("Run this item alone"))
    assert rerun in spread.cases[RELU].text
    # What hosts wrote is here, and names no folder of theirs.
    (case,) = Path("cases").glob("*/case.json")
    assert json.loads(case.read_text())["dump"] == str(pytester.path / dump)
    # Replayed on a device without the fault, it is right.
    assert main(["replay", str(case.parent), "--device", "sim", "--policy", "ours.yaml"]) == 0
    assert len(Path("run.jsonl").read_text().splitlines()) == len(alone.cases) + 3
    assert len(list(Path("csv").iterdir())) == 2
    for path in pytester.path.rglob("*"):
        assert path.is_dir() or b"-tmp/pytest-msprobe-" not in path.read_bytes(), path


@pytest.mark.nightly
@pytest.mark.parametrize("spelling", ["--msprobe-dump={}", "{}"])
def test_absolute_paths_and_dumps_among_the_arguments_work(
    pytester: pytest.Pytester, dump: str, check: Any, make_host: Make, spelling: str
) -> None:
    path = spelling.format(pytester.path / dump)
    checked = check(path, "--msprobe-device", "sim", "-k", "relu", *on(make_host("first"), workers=2), apart=True)
    assert checked.exit_code == 0
    assert {case.properties["msprobe.device"] for case in checked.cases.values()} == {"sim:0", "sim:1"}


@pytest.mark.nightly
def test_a_baseline_with_tensors_is_written_and_read_elsewhere(
    pytester: pytest.Pytester, dump: str, check: Any, make_host: Make
) -> None:
    first, second = make_host("first"), make_host("second")
    options = ["--msprobe-dump", dump, "--msprobe-device", "sim"]
    write = ["--msprobe-save-baseline=base.jsonl", "-omsprobe_save_baseline_tensors=true"]
    written = check(*options, *write, *on(first), apart=True)
    assert written.exit_code == 0
    count = len(list(Path("base.jsonl.tensors").glob("*.safetensors")))
    assert count == len(written.cases)
    alone = check(*options, "--msprobe-baseline=base.jsonl", apart=True)
    read = check(*options, "--msprobe-baseline=base.jsonl", *on(second), apart=True)
    assert read.outcomes == alone.outcomes
    assert "tensors" in read.output
    assert "numbers only" not in read.output
    for name, case in alone.cases.items():
        assert read.cases[name].properties["msprobe.margin"] == case.properties["msprobe.margin"]


def test_what_a_host_sees_is_read_where_it_lies(
    pytester: pytest.Pytester, dump: str, check: Any, tmp_path: Path, make_host: Make
) -> None:
    # A disk that has no room for the dump is not asked for any.
    host = make_host("first", disk="16k", sees=True)
    checked = check("--msprobe-dump", dump, "--msprobe-device=sim", "-k", "relu", *on(host), apart=True)
    assert checked.exit_code == 0
    assert len(checked.cases) == 2


def lose_when_asked(hosts: Sequence[Host], folder: Path) -> None:
    """Lose the first of these hosts whose name becomes a file in the folder."""
    while True:
        for host in hosts:
            if (folder / f"lose-{host.name}").exists():
                host.lose()
                return
        time.sleep(0.1)


@pytest.mark.nightly
def test_a_lost_host_costs_what_it_ran_and_the_others_go_on(
    dump: str, check: Any, make_device: Callable[[str], None], make_host: Make, tmp_path: Path
) -> None:
    wish = f"Path({str(tmp_path)!r}, 'lose-' + os.environ['HOST_NAME']).touch(); time.sleep(600)"
    make_device(f"if record == {LINEAR!r}: {wish}")
    hosts = [make_host(name, HOST_NAME=name) for name in ("first", "second")]
    Thread(target=lose_when_asked, args=(hosts, tmp_path), daemon=True).start()
    # pytest-metadata expects something of each worker's end.
    others = ("-p", "pytest_metadata.plugin")
    checked = check("--msprobe-dump", dump, "--msprobe-device=faulty", *others, *on(*hosts), apart=True)
    assert checked.exit_code == pytest.ExitCode.TESTS_FAILED
    assert checked.wrong == {LINEAR}
    assert "is lost" in checked.cases[LINEAR].text
    checked.result.stdout.fnmatch_lines(["msprobe: host *: cannot be reached; the run goes on without it"])
    assert checked.cases["Functional.linear.0.backward"].outcome == "skipped"
    assert len(checked.cases) == len(json.loads(Path(dump).read_text())["data"])


@pytest.mark.nightly
def test_a_crash_costs_one_item_and_shows_what_was_written_there(
    dump: str, check: Any, make_device: Callable[[str], None], make_host: Make
) -> None:
    make_device(f"if record == {LINEAR!r}: os.write(2, b'from there'); os.abort()")
    checked = check("--msprobe-dump", dump, "--msprobe-device=faulty", *on(make_host("first")), apart=True)
    assert checked.wrong == {LINEAR}
    assert "on host first: the process that ran it died" in checked.cases[LINEAR].text
    assert "failed (crash) on faulty:0 of host first" in checked.cases[LINEAR].text
    assert "-tmp/" not in checked.cases[LINEAR].text
    assert "from there" in checked.cases[LINEAR].text
    assert checked.cases["Functional.linear.0.backward"].outcome == "skipped"


def test_a_host_that_cannot_be_reached_is_one_line(dump: str, check: Any, make_host: Make) -> None:
    host = make_host("first")
    host.lose()
    checked = check("--msprobe-dump", dump, "--msprobe-device=sim", *on(host), apart=True)
    assert checked.exit_code == pytest.ExitCode.USAGE_ERROR
    assert "ERROR: host first: cannot be reached" in checked.errors
    assert "Traceback" not in checked.errors + checked.output


def test_a_specification_that_execnet_does_not_know_is_one_line(dump: str, check: Any) -> None:
    checked = check("--msprobe-dump", dump, "--msprobe-device=sim", "-d", "--tx", "nonsense", apart=True)
    assert checked.exit_code == pytest.ExitCode.USAGE_ERROR
    assert "ERROR: --tx nonsense: no gateway type found for" in checked.errors
    assert "Traceback" not in checked.errors + checked.output


def test_a_wrong_python_is_one_line(dump: str, check: Any, make_host: Make) -> None:
    spec = make_host("first").spec(python="/no/python")
    checked = check("--msprobe-dump", dump, "--msprobe-device=sim", "-d", "--tx", spec, apart=True)
    assert checked.exit_code == pytest.ExitCode.USAGE_ERROR
    assert "ERROR: host first: no Python answered; check python=/no/python" in checked.errors
    assert "Traceback" not in checked.errors + checked.output


def distribution(folder: Path, name: str, version: str) -> str:
    """Make a distribution seem installed in this version, for what finds modules in the folder first."""
    reported = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    reported.mkdir(parents=True)
    (reported / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])


def test_another_version_of_the_plugin_is_one_line(dump: str, check: Any, make_host: Make, tmp_path: Path) -> None:
    host = make_host("first", PYTHONPATH=distribution(tmp_path / "other", "pytest-msprobe", "0.0.9"))
    checked = check("--msprobe-dump", dump, "--msprobe-device=sim", *on(host), apart=True)
    assert checked.exit_code == pytest.ExitCode.USAGE_ERROR
    assert "ERROR: host first: has pytest-msprobe 0.0.9, here" in checked.errors


@pytest.mark.nightly
def test_another_torch_is_reported_once(dump: str, check: Any, make_host: Make, tmp_path: Path) -> None:
    host = make_host("first", PYTHONPATH=distribution(tmp_path / "other", "torch", "1.0.0"))
    words = ["--msprobe-dump", dump, "--msprobe-device=sim", "-k", "relu", *on(host, workers=2)]
    checked = check(*words, apart=True)
    assert checked.exit_code == 0
    (line,) = [line for line in checked.output.splitlines() if "torch 1.0.0" in line]
    assert line.startswith("msprobe: host first has torch 1.0.0 (here ")


def test_a_host_without_torch_is_one_line(dump: str, check: Any, make_host: Make, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "sitecustomize.py").write_text(
        "import importlib.machinery as machinery\n"
        "found = machinery.PathFinder.find_spec\n"
        "machinery.PathFinder.find_spec = lambda name, *more: None if name == 'torch' else found(name, *more)\n"
    )
    host = make_host("first", PYTHONPATH=os.pathsep.join([str(bare), os.environ.get("PYTHONPATH", "")]))
    checked = check("--msprobe-dump", dump, "--msprobe-device=sim", *on(host), apart=True)
    assert checked.exit_code == pytest.ExitCode.USAGE_ERROR
    assert "lacks torch; install it there" in checked.errors


def test_a_full_disk_is_one_line(dump: str, check: Any, make_host: Make) -> None:
    host = make_host("first", disk="4k")
    checked = check("--msprobe-dump", dump, "--msprobe-device=sim", *on(host), apart=True)
    assert checked.exit_code == pytest.ExitCode.USAGE_ERROR
    assert "No space left on device" in checked.errors
    assert "ERROR: host first: " in checked.errors


def test_a_disk_that_is_full_of_tensors_costs_the_items_that_need_them(
    pytester: pytest.Pytester, check: Any, write_dump: Callable[..., Path], make_host: Make
) -> None:
    import torch

    big = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [1000, 1000], "data_name": "big.pt"}
    small = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [4], "Max": 1.0, "Min": 0.0}
    write_dump(
        {
            "Torch.exp.0.forward": {"input_args": [big], "input_kwargs": {}, "output": [big]},
            "Torch.exp.1.forward": {"input_args": [small], "input_kwargs": {}, "output": [small]},
        },
        task="tensor",
    )
    folder = pytester.path / "dump_tensor_data"
    folder.mkdir()
    torch.save(torch.rand(1000, 1000), folder / "big.pt")
    host = make_host("first", disk="2m")
    checked = check("--msprobe-dump=dump.json", "--msprobe-device=sim", *on(host), apart=True)
    assert checked.outcomes == {"Torch.exp.0.forward": "failed", "Torch.exp.1.forward": "passed"}
    assert "host first: " in checked.cases["Torch.exp.0.forward"].text
    assert "No space left on device" in checked.cases["Torch.exp.0.forward"].text


def test_a_kind_of_run_whose_files_are_not_sent_says_so(dump: str, check: Any, make_host: Make) -> None:
    checked = check(f"--msprobe-compare={dump}", f"--msprobe-golden={dump}", *on(make_host("first")), apart=True)
    assert checked.exit_code == pytest.ExitCode.USAGE_ERROR
    assert "files of --msprobe-compare are not sent to other hosts; put them on shared storage" in checked.errors
