"""Whole runs over MindSpore dumps: devices, processes, journal, failures, other frameworks next to."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_msprobe.commands.main import main
from pytest_msprobe.journal import read_journal
from tests.mindspore.calls import X, record, tensor
from tests.support.conftests import device_after_each_call

# msprobe's data_manager.get_detail_csv_header.
MINDSPORE_HEADER = "API Name,Bench Dtype,Tested Dtype,Shape,Cosine,MaxAbsErr,MaxRelativeErr,Status,Message".split(",")
DUMP = Path(__file__).parents[1] / "data" / "mindspore" / "statistics" / "dump.json"
Write = Callable[..., Path]

FAULTY = device_after_each_call("result = result + 1 if record == 'Mint.square.0.forward' else result")


@pytest.mark.slow
def test_two_workers_write_one_journal_and_a_resumed_run_has_nothing_left(pytester: pytest.Pytester) -> None:
    arguments = (f"--msprobe-dump={DUMP}", "--msprobe-device=sim:0,3", "-n2", "-v")
    first = pytester.runpytest_subprocess(*arguments, "--msprobe-journal=run.jsonl")
    first.assert_outcomes(passed=50)
    first.stdout.fnmatch_lines_random(["on sim:0: * passed (mindspore *", "on sim:3: * passed (mindspore *"])
    assert len(read_journal(pytester.path / "run.jsonl").entries) == 50
    second = pytester.runpytest_subprocess(*arguments, "--msprobe-resume=run.jsonl")
    assert second.ret == pytest.ExitCode.OK
    assert len(read_journal(pytester.path / "run.jsonl").entries) == 50


@pytest.mark.nightly
@pytest.mark.slow
def test_a_fault_elsewhere_is_found_and_a_healthy_card_elsewhere_passes(pytester: pytest.Pytester) -> None:
    (pytester.path / "planted.py").write_text(FAULTY)
    elsewhere = f"--msprobe-device=remote:popen//chdir={pytester.path}"
    pytester.runpytest(f"--msprobe-dump={DUMP}", f"{elsewhere}//device=cpu").assert_outcomes(passed=50)
    wrong = pytester.runpytest(f"--msprobe-dump={DUMP}", f"{elsewhere}//plugin=planted//device=faulty", "-rf")
    wrong.assert_outcomes(passed=49, failed=1)
    wrong.stdout.fnmatch_lines(["FAILED *::Mint.square.0.forward*"])


def test_a_test_records_its_calls_and_checks_them_at_once(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import mindspore
        import numpy as np
        import pytest
        from mindspore import mint

        @pytest.mark.msprobe_record(framework="mindspore")
        def test_step(msprobe_dump):
            x = mindspore.Tensor(np.ones((3, 4), np.float32))
            mindspore.grad(lambda x: mint.tanh(x).sum())(x)
            results = msprobe_dump.check()
            assert {result.record for result in results} >= {"Mint.tanh.0.forward", "Mint.tanh.0.backward"}
            assert {result.verdict.outcome for result in results} == {"pass"}
        """
    )
    pytester.runpytest_inprocess("--msprobe-device=cpu").assert_outcomes(passed=1)


def test_a_failure_shows_what_is_wrong_and_how_to_run_it_again(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(FAULTY)
    result = pytester.runpytest_inprocess(f"--msprobe-dump={DUMP}", "--msprobe-device=faulty", "--msprobe-csv=out")
    result.assert_outcomes(passed=49, failed=1)
    result.stdout.fnmatch_lines(
        [
            "Mint.square.0.forward is wrong*",
            "output.0 torch.float32 (2, 6, 16): fail by ulp",
            f"Run this item alone: pytest --msprobe-dump={DUMP}::Mint.square.0.forward --msprobe-device faulty",
        ]
    )
    [details] = (pytester.path / "out").glob("*details*.csv")
    assert "Mint.square.0.forward.output.0" in details.read_text(encoding="utf-8-sig")


@pytest.mark.nightly
@pytest.mark.slow
def test_a_saved_case_of_mindspore_is_judged_again_by_mindspore(pytester: pytest.Pytester, write_dump: Write) -> None:
    pytest.importorskip("safetensors")
    pytester.makeconftest(FAULTY)
    write_dump(record("Mint.square", X, output=[X]))
    pytester.runpytest_inprocess("--msprobe-dump=dump.json", "--msprobe-device=faulty", "--msprobe-save-failures=cases")
    command = (
        "import sys; from pytest_msprobe.commands.main import main; sys.exit(main(['replay', 'cases', *sys.argv[1:]]))"
    )
    faulty = pytester.run(sys.executable, "-c", command, "--device", "faulty", "-p", "conftest")
    assert faulty.ret == 1
    healthy = pytester.run(sys.executable, "-c", command, "--device", "cpu")
    assert healthy.ret == 0
    healthy.stdout.fnmatch_lines(["on mindspore *", "Mint.square.0.forward: pass by *"])


def test_a_saved_case_of_mindspore_starts_no_device_of_torch(pytester: pytest.Pytester, write_dump: Write) -> None:
    pytest.importorskip("safetensors")
    pytester.makeconftest(FAULTY)
    write_dump(record("Mint.square", X, output=[X]))
    pytester.runpytest_inprocess("--msprobe-dump=dump.json", "--msprobe-device=faulty", "--msprobe-save-failures=cases")
    pytester.makepyfile(
        torchless="""
        from pytest_msprobe.devices.npu import NpuDevice

        class Npu(NpuDevice):
            def count(self):
                print("torch was asked")
                return 1

            def activate(self, index):
                print("torch was started")

        def pytest_msprobe_register_devices(registry):
            registry.add(Npu())
        """
    )
    command = (
        "import sys; from pytest_msprobe.commands.main import main; sys.exit(main(['replay', 'cases', *sys.argv[1:]]))"
    )
    on_npu = pytester.run(sys.executable, "-c", command, "--device", "npu", "-p", "torchless")
    assert on_npu.ret in (0, 2)
    assert "torch was" not in on_npu.stdout.str()
    if on_npu.ret == 2:
        on_npu.stderr.fnmatch_lines(["pytest-msprobe: --device: device 'npu': MindSpore * cannot use Ascend: *"])


def test_inputs_are_explored_around_a_record_of_mindspore(pytester: pytest.Pytester, write_dump: Write) -> None:
    write_dump(record("Mint.matmul", X, tensor(6, 5), output=[tensor(4, 5)]))
    result = pytester.runpytest_inprocess("--msprobe-dump=dump.json", "--msprobe-device=cpu", "--msprobe-explore=5")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["5 inputs explored around 1 record"])


def test_isolated_items_run_mindspore_in_a_child(pytester: pytest.Pytester, write_dump: Write) -> None:
    write_dump(record("Mint.abs+", X))
    result = pytester.runpytest_subprocess("--msprobe-dump=dump.json", "--msprobe-device=cpu", "--msprobe-isolate")
    result.assert_outcomes(passed=2)


def test_items_are_selected_by_the_marks_of_their_records(pytester: pytest.Pytester, write_dump: Write) -> None:
    write_dump(record("Mint.abs+", X) | record("MintFunctional.relu", tensor(2, dtype="Float16")))
    for expression, count in (("mindspore", 3), ("Mint and backward", 1), ("float16", 1), ("float32", 3)):
        result = pytester.runpytest_inprocess(
            "--msprobe-dump=dump.json", "--strict-markers", "-m", expression, "--collect-only", "-q"
        )
        assert len([line for line in result.outlines if "dump.json::" in line]) == count, expression


def test_dumps_of_both_frameworks_are_checked_in_one_run(pytester: pytest.Pytester, write_dump: Write) -> None:
    write_dump(record("Mint.abs", X))
    torch_folder = pytester.path / "torch"
    torch_folder.mkdir()
    body = json.loads((pytester.path / "dump.json").read_text())
    element = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [3], "Max": 1.0, "Min": -1.0}
    calls = {"Torch.abs.0.forward": {"input_args": [element], "input_kwargs": {}, "output": [element]}}
    (torch_folder / "dump.json").write_text(json.dumps(body | {"framework": "pytorch", "data": calls}))
    result = pytester.runpytest_inprocess("--msprobe-dump=.", "--msprobe-device=cpu")
    result.assert_outcomes(passed=2)
    assert "on mindspore" in result.stdout.str()
    assert "; x86_64 CPU" in result.stdout.str() or "CPU, torch" in result.stdout.str()


def test_a_run_over_pytorch_dumps_never_imports_mindspore(pytester: pytest.Pytester, write_dump: Write) -> None:
    element = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [3], "Max": 1.0, "Min": -1.0}
    body = {"input_args": [element], "input_kwargs": {}, "output": [element]}
    write_dump({"Torch.abs.0.forward": body}, framework="pytorch")
    pytester.makeconftest(
        "import sys\n\ndef pytest_sessionfinish():\n    print('imported:', 'mindspore' in sys.modules)\n"
    )
    result = pytester.runpytest_subprocess("--msprobe-dump=dump.json", "--msprobe-device=cpu", "-s")
    result.assert_outcomes(passed=1)
    assert "imported: False" in result.stdout.str()


def test_collecting_a_mindspore_dump_imports_neither_framework(pytester: pytest.Pytester, write_dump: Write) -> None:
    path = write_dump(record("Mint.abs", X))
    code = (
        f"import sys, pytest; pytest.main(['--collect-only', '-q', {str(path)!r}]); "
        "print({'torch', 'mindspore'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=pytester.path)
    assert done.stdout.splitlines()[-1] == "set()"


def test_tables_have_the_columns_of_msprobes_mindspore_check(pytester: pytest.Pytester, write_dump: Write) -> None:
    half = tensor(2, 3, low=0.5, high=2.0, dtype="Float16")
    write_dump(record("Mint.square", half) | record("Mint.isfinite", half))
    pytester.runpytest_inprocess(
        "--msprobe-dump=dump.json", "--msprobe-device=cpu", "--msprobe-csv=out", "--msprobe-journal=run.jsonl"
    )
    assert main(["report", "run.jsonl", "--csv", "again"]) == 0
    for folder in ("out", "again"):
        (path,) = (pytester.path / folder).glob("accuracy_checking_details_*.csv")
        header, *rows = list(csv.reader(path.read_text(encoding="utf-8-sig").splitlines()))
        assert header == MINDSPORE_HEADER
        assert [row[:4] for row in rows] == [
            ["Mint.square.0.forward.output.0", "Float32", "Float16", "(2, 3)"],
            ["Mint.isfinite.0.forward.output.0", "Bool", "Bool", "(2, 3)"],
        ]
        assert [row[-2] for row in rows] == ["pass", "pass"]
        assert float(rows[0][4]) == pytest.approx(1, abs=1e-4)
