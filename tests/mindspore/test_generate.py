"""Generated tests of MindSpore's calls: they say what the dump's items say, and stand alone."""

from __future__ import annotations

import ast
import operator
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from msprobe_hooks.dump.reader import read_dump
from msprobe_standards import Policy
from pytest_msprobe.commands.main import main
from pytest_msprobe.devices.registry import DeviceRegistry
from pytest_msprobe.engine.frameworks import framework_named
from pytest_msprobe.engine.replay.call import read_call
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.extensions.generate.module_plan import Plan, Provenance, make_plan, module_text
from pytest_msprobe.journal import read_journal
from pytest_msprobe.results.result import LITTLE_JUDGED, DirectionResult
from tests.mindspore.calls import X, dtype_value, every_call, record, tensor
from tests.support.conftests import device_after_each_call

DATA = Path(__file__).parents[1] / "data"
STATISTICS = DATA / "mindspore" / "statistics" / "dump.json"
TENSORS = DATA / "mindspore" / "tensor" / "dump.json"
EXAMPLE = DATA / "dumps" / "mindspore-example" / "dump.json"
Write = Callable[..., Path]
Generate = Callable[..., tuple[int, str]]

FAULTY = device_after_each_call("result = result + 1 if record == 'Mint.square.0.forward' else result")


@pytest.fixture
def generate(pytester: pytest.Pytester, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Generate:
    """Run the command in the test's folder and return its status and what it printed."""
    # Children of the command are whole runs of pytest, with their own options.
    monkeypatch.delenv("PYTEST_ADDOPTS")

    def run(*words: str | Path) -> tuple[int, str]:
        capfd.readouterr()
        status = main(["generate", *map(str, words)])
        printed = capfd.readouterr()
        return status, printed.out + printed.err

    return run


_COMPARED = ("verdict", "standard", "margin", "seed", "device", "math_modes")


def verdicts(pytester: pytest.Pytester, *words: str) -> dict[str, tuple[str, ...]]:
    """Return what came of each record, by its name, in a run of the dump as in one of generated tests."""
    found: dict[str, tuple[str, ...]] = {}

    class Listener:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.when == "call":
                name = report.nodeid.partition("[")[2].removesuffix("]") or report.nodeid.rpartition("::")[2]
                properties = dict(report.user_properties)
                found[name] = (report.outcome, *(str(properties[f"msprobe.{field}"]) for field in _COMPARED))

    pytester.runpytest_inprocess(*words, "--msprobe-device=cpu", "-p", "no:cacheprovider", plugins=[Listener()])
    return found


@pytest.mark.parametrize("path", [EXAMPLE, STATISTICS], ids=["example", "statistics"])
def test_the_tests_of_a_dump_say_what_its_items_say(pytester: pytest.Pytester, generate: Generate, path: Path) -> None:
    assert generate(path, "--no-run", "-o", "made")[0] == 0
    items = verdicts(pytester, f"--msprobe-dump={path}")
    assert len(items) == len(read_dump(path).api_names)
    assert verdicts(pytester, "made") == items


def planned(path: Path, *, real_data: bool = False) -> tuple[Plan, dict[str, dict[str, Any]]]:
    """Return what is written for a dump, and each module as what Python makes of its tables and functions."""
    dump = read_dump(path)
    plan = make_plan(dump, dump.api_names, real_data=real_data)
    modules = {}
    for module in plan.modules:
        source = module_text(module, Provenance("dump.json", "made", (0,)))
        assert source.isascii()
        names: dict[str, Any] = {"operator": operator}
        exec(compile(source, module.file, "exec"), names)
        names["function"] = eval(module.function.spelling, names)
        modules[module.file] = names
    return plan, modules


def judged(path: Path, folder: Path, *, real_data: bool = False) -> Iterator[tuple[DirectionResult, DirectionResult]]:
    """Yield what the item and what the generated test say of each record."""
    dump, (plan, modules) = read_dump(path), planned(path, real_data=real_data)
    framework = framework_named("mindspore")
    setup = ReplayConfig(framework.device(DeviceRegistry(), "cpu"), Policy.load("default"), framework=framework)
    for module in plan.modules:
        names = modules[module.file]
        for key in module.calls:
            item = Replay(read_call(dump, f"{key}.forward"), replace(setup, real_data=real_data))
            call = names["CALLS"][key].replayed_as(f"{key}.forward", folder)
            test = Replay(call, setup, function=names["function"])
            for direction in ("forward", "backward"):
                if f"{key}.{direction}" in module.records:
                    yield item.judge(direction), test.judge(direction)


def test_a_test_of_any_api_says_what_its_item_says(write_dump: Write, tmp_path: Path) -> None:
    pairs = list(judged(write_dump(every_call()), tmp_path))
    assert len(pairs) == len(every_call())
    for item, test in pairs:
        # What was recorded of the results, a generated test does not have.
        extras = {name: extra for name, extra in item.extras.items() if name != LITTLE_JUDGED}
        assert replace(test, seconds=item.seconds) == replace(item, extras=extras)


def test_only_the_gradients_that_the_item_judges_are_judged(write_dump: Write, tmp_path: Path) -> None:
    records = record("Mint.mul+", X, X, output=[X])
    records["Mint.mul.0.backward"] = {"input": [X], "output": [None, X]}
    (_, _), (item, test) = judged(write_dump(records), tmp_path)
    assert [output.path for output in item.outputs] == ["grad.args.1"]
    assert replace(test, seconds=item.seconds) == item


def test_recorded_tensors_are_those_of_the_item(pytester: pytest.Pytester, generate: Generate) -> None:
    status, printed = generate(TENSORS, "--real-data", "--no-run", "-o", "made")
    assert status == 0
    assert " tensor files, " in printed
    pairs = list(judged(TENSORS, pytester.path / "made", real_data=True))
    assert len(pairs) > 20
    for item, test in pairs:
        assert replace(test, seconds=item.seconds) == item


@pytest.mark.nightly
@pytest.mark.slow
def test_what_fails_on_a_device_still_fails_in_its_own_process(
    pytester: pytest.Pytester, generate: Generate, write_dump: Write
) -> None:
    pytester.makeconftest(FAULTY)
    write_dump(record("Mint.square+", X, output=[X]) | record("Mint.abs", X))
    run = pytester.runpytest_inprocess(
        "--msprobe-dump=dump.json", "--msprobe-device=faulty", "--msprobe-journal=run.jsonl"
    )
    run.assert_outcomes(passed=2, failed=1)
    failed = next(
        entry for entry in read_journal(pytester.path / "run.jsonl").entries.values() if entry.outcome == "fail"
    )
    status, printed = generate("dump.json", "--failed", "run.jsonl", "-o", "failures")
    assert status == 1
    assert "failures: 1 record in 1 module" in printed
    assert f"Mint.square.0.forward  still fails: output.0: {failed.result.verdict.reason}" in printed
    source = (pytester.path / "failures" / "test_mint_square.py").read_text()
    assert "precision.check_recorded(mindspore.mint.square, CALLS, record, seed=SEED)" in source
    status, printed = generate("dump.json", "--failed", "run.jsonl", "-o", "failures", "--msprobe-device=cpu")
    assert (status, "Mint.square.0.forward  passes now" in printed) == (0, True)


def test_mindspores_own_defect_is_a_test_that_fails(
    pytester: pytest.Pytester, generate: Generate, write_dump: Write
) -> None:
    # MindSpore 2.10 on a CPU returns the sum and leaves the tensor as it was.
    write_dump(record("Tensor.add_", X, X, output=[X]))
    assert generate("dump.json", "--no-run")[0] == 0
    result = pytester.runpytest_inprocess("generated_tests", "--msprobe-device=cpu")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*Tensor.add_.0.forward is wrong*"])


def test_what_the_item_cannot_judge_is_left_out_with_the_same_reason(
    pytester: pytest.Pytester, generate: Generate, write_dump: Write
) -> None:
    kinds = ["Jit.forward", "Primitive.conv.Conv2D", "Mint.no_such", "Distributed.all_reduce", "Torch.abs"]
    dump = write_dump(
        {key: body for kind in kinds for key, body in record(kind, X).items()}
        | record("Mint.neg", tensor(2, dtype="HiFloat8"))
        | record("Mint.tanh", X | {"type": "torch.Tensor", "dtype": "torch.float32"})
        | record("Mint.abs", X)
    )
    status, printed = generate(dump, "--no-run")
    assert status == 0
    assert "generated_tests: 1 record in 1 module" in printed
    skipped: dict[str, str] = {}

    class Listener:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.skipped and isinstance(report.longrepr, tuple):
                skipped[report.nodeid.rpartition("::")[2]] = report.longrepr[2].removeprefix("Skipped: ")

    pytester.runpytest_inprocess(f"--msprobe-dump={dump}", "--msprobe-device=cpu", plugins=[Listener()])
    assert len(skipped) == 7
    for name, reason in skipped.items():
        assert f"left out: {name}: {reason}" in printed


HOSTILE = "x'); import os; os.system('touch stolen') #\n\u202e\"\"\""


def test_what_a_dump_calls_things_stays_text(pytester: pytest.Pytester, generate: Generate, write_dump: Write) -> None:
    names = [
        "Mint.abs(x); import os",
        f"Functional.{HOSTILE}",
        "Tensor.__class__",
        "Mint.__builtins__.eval",
        "Mint.os.system",
    ]
    hostile = [name for kind in names for name in record(kind, X)]
    path = write_dump(
        {key: body for kind in names for key, body in record(kind, X).items()}
        | record("Mint.abs", X, **{HOSTILE: HOSTILE})
        | record("Tensor.to", X, dtype_value(HOSTILE))
        | record("Mint.square", {"type": HOSTILE, "value": HOSTILE})
        | record("Mint.add", X, {"type": "mindspore.dtype", "value": "float16; import os"})
    )
    status, printed = generate(path, "--no-run")
    assert status == 0
    for name in hostile:
        assert f"left out: {name.encode('unicode_escape').decode()}: " in printed
    allowed = {"mindspore", "pytest", "pytest_msprobe", "recorded"}
    for file in (pytester.path / "generated_tests").glob("*.py"):
        tree = ast.parse(file.read_text())
        imported = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
        assert {alias.name for node in imported for alias in node.names} <= allowed
        called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        assert called <= {"recorded.Call", "recorded.Tensor", "recorded.Value", "precision.check_recorded"} | {
            "pytest.mark.parametrize"
        }
    pytester.runpytest_inprocess("generated_tests", "--msprobe-device=cpu")
    assert not (pytester.path / "stolen").exists()


def test_without_mindspore_a_module_is_one_error_that_names_the_extra(
    pytester: pytest.Pytester, generate: Generate
) -> None:
    assert generate(EXAMPLE, "--no-run")[0] == 0
    pytester.makeconftest("import sys\nsys.modules['mindspore'] = None\n")
    result = pytester.runpytest_subprocess("generated_tests", "--msprobe-device=cpu")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*import mindspore  # pip install 'pytest-msprobe?mindspore?'"])


def test_modules_are_formatted_and_imports_are_in_order(
    pytester: pytest.Pytester, write_dump: Write, generate: Generate
) -> None:
    pytest.importorskip("ruff")
    assert generate(write_dump(every_call()), "--no-run")[0] == 0
    made = str(pytester.path / "generated_tests")
    ruff = [sys.executable, "-m", "ruff"]
    for words in (["format", "--check"], ["check", "--select=E,F,I,W,B"]):
        # From where this package is a project's own, as in the test of generated_tests.
        subprocess.run([*ruff, *words, "--isolated", "--line-length=120", made], check=True, cwd=DATA.parents[1])


def test_a_framework_or_device_that_cannot_be_used_is_said_in_one_line(
    pytester: pytest.Pytester, generate: Generate
) -> None:
    assert generate(EXAMPLE, "--no-run")[0] == 0
    made = pytester.path / "generated_tests" / "test_mint_where.py"
    result = pytester.runpytest_inprocess("generated_tests", "--msprobe-device=cuda", "-W", "error")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["_*", "device 'cuda': MindSpore's calls run on npu, cpu, sim or a registered simulated device"],
        consecutive=True,
    )
    made.write_text(made.read_text().replace('framework="mindspore"', 'framework="mind"'))
    result = pytester.runpytest_inprocess("generated_tests", "--msprobe-device=cpu")
    known = "known are pytorch, mindspore, mindtorch; did you mean 'mindtorch'?"
    result.stdout.fnmatch_lines([f"unknown framework 'mind'; {known}"])


@pytest.mark.nightly
@pytest.mark.slow
def test_a_module_runs_where_workers_share_its_tests(pytester: pytest.Pytester, generate: Generate) -> None:
    assert generate(STATISTICS, "--no-run", "-k", "Mint and not where")[0] == 0
    result = pytester.runpytest_subprocess("generated_tests", "--msprobe-device=sim:0,1", "-n2")
    assert result.ret == 0
    assert "passed" in result.stdout.str()
