"""An item that crashes, hangs or takes all memory costs itself and nothing else, with and without workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_msprobe.journal import read_journal
from tests.support.nightly import nightly_but

pytestmark = pytest.mark.slow

Write = Callable[..., Path]
Json = dict[str, Any]
MakeDevice = Callable[[str], None]

WAYS = pytest.mark.parametrize("way", [["--msprobe-isolate"], ["-n1"]], ids=["isolated", "xdist"])
WORKERS_NIGHTLY = pytest.mark.parametrize(
    "way",
    [pytest.param(["--msprobe-isolate"], id="isolated"), pytest.param(["-n1"], id="xdist", marks=pytest.mark.nightly)],
)
ISOLATED = ["--msprobe-dump=dump.json", "--msprobe-device=faulty:6", "--msprobe-isolate"]

BAD = "Torch.index_select.0.forward"

HANG = f"""
if record == {BAD!r}:
    import ctypes
    libc = ctypes.PyDLL(None)
    libc.sigprocmask(0, ctypes.byref(ctypes.c_ulong(2**64 - 1)), None)
    libc.sleep(60)
"""


BREAKDOWNS = {
    "Torch.abs.0.forward": ("ctypes.string_at(0)", "crash", "the process that ran it was killed by SIGSEGV"),
    "Torch.abs.1.forward": ("os.kill(os.getpid(), 9)", "crash", "the process that ran it was killed by SIGKILL"),
    "Torch.abs.2.forward": ("os._exit(7)", "crash", "the process that ran it exited with status 7"),
    "Torch.abs.3.forward": (
        "raise torch.OutOfMemoryError('full')",
        "oom",
        "OutOfMemoryError: full; also when run alone",
    ),
    "Torch.abs.4.forward": ("torch.empty(2**56, dtype=torch.uint8)", "oom", "can't allocate memory"),
}


@WAYS
def test_a_breakdown_is_its_own_outcome_with_the_last_words(
    pytester: pytest.Pytester,
    write_dump: Write,
    records: Json,
    element: Any,
    forward: Any,
    check: Any,
    make_device: MakeDevice,
    way: list[str],
) -> None:
    write_dump({**dict.fromkeys(BREAKDOWNS, forward(element(4))), **records})
    lines = ["import ctypes", "if 'abs' in record: os.write(2, b'driver: all is lost')"]
    make_device("\n".join([*lines, *(f"if record == {name!r}: {deed}" for name, (deed, *_) in BREAKDOWNS.items())]))
    arguments = ["--msprobe-dump=dump.json", "--msprobe-device=faulty:6", "--msprobe-journal=run.jsonl", *way]
    checked = check(*arguments, apart=True)
    assert checked.exit_code == pytest.ExitCode.TESTS_FAILED
    assert checked.wrong == set(BREAKDOWNS)
    journal = read_journal(pytester.path / "run.jsonl").entries
    for name, (_, outcome, said) in BREAKDOWNS.items():
        finished = journal[f"dump.json::{name}"]
        assert finished.outcome == outcome
        for text in (checked.cases[name].text, finished.result.verdict.reason):
            assert said in text
            assert "driver: all is lost" in text
        assert f"{name} failed ({outcome})" in checked.output
    checked.result.stdout.fnmatch_lines(
        ["10 API records: 5 passed, 5 failed", "failed without a verdict: 3 crash, 2 oom"]
    )
    # The worker that took over has the same card.
    passed = [case for case in checked.cases.values() if case.outcome == "passed"]
    assert {case.properties["msprobe.device"] for case in passed} == {"faulty:6"}


def test_a_child_that_hangs_in_native_code_is_ended_and_replaced(
    write_dump: Write, records: Json, check: Any, make_device: MakeDevice
) -> None:
    write_dump(records)
    make_device(HANG)
    checked = check(*ISOLATED, "--msprobe-timeout=10", apart=True)
    assert checked.wrong == {BAD}
    assert "hung in native code; its process was killed after 15 s" in checked.cases[BAD].text


@WORKERS_NIGHTLY
def test_a_device_that_an_item_breaks_is_left_before_the_next_item(
    write_dump: Write, records: Json, check: Any, make_device: MakeDevice, way: list[str]
) -> None:
    write_dump(records)
    make_device(
        f"""
if record == {BAD!r}:
    self.is_broken = True
if getattr(self, "is_broken", False):
    raise RuntimeError("an illegal memory access was encountered")
"""
    )
    checked = check("--msprobe-dump=dump.json", "--msprobe-device=faulty:6", *way, apart=True)
    assert checked.outcomes == dict.fromkeys(records, "passed") | {BAD: "failed"}
    assert "Afterwards, device faulty:6 no longer works: RuntimeError: an illegal memory" in checked.cases[BAD].text


def test_a_broken_device_ends_a_run_that_cannot_replace_its_process(
    write_dump: Write, records: Json, check: Any, make_device: MakeDevice
) -> None:
    first = next(iter(records))
    write_dump(records)
    make_device(f"if record in ({first!r}, 'probe'): raise RuntimeError('the context is dead')")
    checked = check("--msprobe-dump=dump.json", "--msprobe-device=faulty", apart=True)
    assert checked.exit_code == pytest.ExitCode.INTERRUPTED
    assert checked.outcomes == {first: "failed"}
    assert "device faulty:0 no longer works: RuntimeError: the context is dead; every later item" in checked.output
    assert "With --msprobe-isolate or -n the run continues" in checked.output


def test_a_wrong_result_is_no_reason_to_give_a_device_up(
    write_dump: Write, records: Json, check: Any, make_device: MakeDevice
) -> None:
    write_dump(records)
    make_device("result = result + 1 if isinstance(result, torch.Tensor) else result")
    assert len(check("--msprobe-dump=dump.json", "--msprobe-device=faulty").cases) == len(records)


@WORKERS_NIGHTLY
def test_what_runs_out_of_memory_next_to_others_gets_another_try_alone(
    pytester: pytest.Pytester, write_dump: Write, records: Json, check: Any, make_device: MakeDevice, way: list[str]
) -> None:
    write_dump(records)
    make_device(
        f"""
if record == {BAD!r} and not os.path.exists("tried"):
    open("tried", "w").close()
    raise torch.OutOfMemoryError("of the card")
"""
    )
    checked = check("--msprobe-dump=dump.json", "--msprobe-device=faulty", *way, apart=True)
    assert checked.wrong == set()
    assert (pytester.path / "tried").exists()


OUT_OF_MEMORY_KILLER = """
import os
from pathlib import Path

from pytest_msprobe.containment import captured_stderr
from pytest_msprobe.devices.sim import SimDevice

captured_stderr._COUNTERS = [Path("counters")]


class Greedy(SimDevice):
    name = "greedy"

    def call(self, func, args, kwargs, *, record):
        if record == "Torch.index_select.0.forward":
            kills = int(Path("counters").read_text().split()[1]) if Path("counters").exists() else 0
            if kills < int(os.environ["KILLS"]):
                Path("counters").write_text(f"oom_kill {kills + 1}")
                os.kill(os.getpid(), 9)
        return super().call(func, args, kwargs, record=record)


def pytest_msprobe_register_devices(registry):
    registry.add(Greedy())
"""


@WORKERS_NIGHTLY
@pytest.mark.parametrize(("kills", "outcome"), [(1, "passed"), (2, "failed")])
def test_what_the_system_ends_for_its_memory_gets_one_more_try_alone(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    write_dump: Write,
    records: Json,
    check: Any,
    way: list[str],
    kills: int,
    outcome: str,
) -> None:
    write_dump(records)
    pytester.makeconftest(OUT_OF_MEMORY_KILLER)
    monkeypatch.setenv("KILLS", str(kills))
    checked = check("--msprobe-dump=dump.json", "--msprobe-device=greedy", *way, apart=True)
    assert checked.outcomes == dict.fromkeys(records, "passed") | {BAD: outcome}
    if outcome == "failed":
        assert f"{BAD} failed (oom)" in checked.output
        assert "ran out of memory; the system killed its process" in checked.cases[BAD].text


@WORKERS_NIGHTLY
def test_the_backward_of_a_forward_that_crashes_is_not_tried(
    write_dump: Write, records: Json, check: Any, make_device: MakeDevice, way: list[str]
) -> None:
    write_dump(records)
    make_device("if record == 'Functional.softmax.0.forward': os._exit(1)")
    checked = check("--msprobe-dump=dump.json", "--msprobe-device=faulty", *way, apart=True)
    assert checked.wrong == {"Functional.softmax.0.forward"}
    assert checked.outcomes["Functional.softmax.0.backward"] == "skipped"


@pytest.mark.nightly
@pytest.mark.parametrize("capture", ["fd", "sys", "no"])
@pytest.mark.parametrize("way", [[], ["--msprobe-isolate"]], ids=["here", "isolated"])
def test_what_an_item_writes_is_shown_whichever_way_pytest_captures(
    pytester: pytest.Pytester,
    write_dump: Write,
    records: Json,
    make_device: MakeDevice,
    way: list[str],
    capture: str,
) -> None:
    write_dump({BAD: records[BAD]})
    make_device("import sys; os.write(2, b'from below\\n'); print('from above', file=sys.stderr); result = result + 1")
    done = pytester.runpytest_subprocess(
        "--msprobe-dump=dump.json", "--msprobe-device=faulty", f"--capture={capture}", *way
    )
    shown = done.stderr.str() if capture == "no" else done.stdout.str()
    assert shown.count("from below") == 1
    assert shown.count("from above") == 1


@pytest.mark.nightly
def test_isolated_items_give_the_verdicts_and_numbers_of_others(
    write_dump: Write, records: Json, check: Any, make_device: MakeDevice
) -> None:
    write_dump(records)
    make_device(f"if record == {BAD!r}: result = result + 1")
    arguments = ("--msprobe-dump=dump.json", "--msprobe-device=faulty:3")
    assert check(*arguments, apart=True).cases == check(*arguments, "--msprobe-isolate", apart=True).cases


def test_one_child_runs_all_items_of_a_healthy_run(
    pytester: pytest.Pytester, write_dump: Write, records: Json, check: Any, make_device: MakeDevice
) -> None:
    write_dump(records)
    make_device("print(os.getpid(), os.getppid(), file=open('pids', 'a'))")
    assert check(*ISOLATED, apart=True).exit_code == 0
    assert len(set((pytester.path / "pids").read_text().splitlines())) == 1


def test_isolation_combines_with_workers_which_then_stay(
    pytester: pytest.Pytester, write_dump: Write, records: Json, check: Any, make_device: MakeDevice
) -> None:
    write_dump(records)
    make_device(f"if record == {BAD!r}: os._exit(1)")
    checked = check("--msprobe-dump=dump.json", "--msprobe-device=faulty", "--msprobe-isolate", "-n2", apart=True)
    checked.result.assert_outcomes(passed=4, failed=1)
    assert "the process that ran it exited with status 1" in checked.cases[BAD].text
    assert "replacing crashed worker" not in checked.output


@pytest.mark.parametrize("way", [["--msprobe-isolate"], ["--msprobe-isolate", "-n1"]], ids=["isolated", "xdist"])
def test_a_device_that_cannot_be_started_is_one_usage_error(
    pytester: pytest.Pytester, write_dump: Write, records: Json, way: list[str]
) -> None:
    write_dump(records)
    done = pytester.runpytest_subprocess("--msprobe-dump=dump.json", "--msprobe-device=cpu:7", *way)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    said = "device cpu:7: index 7 does not exist; 1 visible, counted from 0"
    assert (done.stdout.str() + done.stderr.str()).count(said) == 1


DIES_ON_START = """
import os
from pytest_msprobe.devices.sim import SimDevice


class Dying(SimDevice):
    name = "dying"

    def activate(self, index):
        os.write(2, b"driver: no firmware\\n")
        os._exit(3)


def pytest_msprobe_register_devices(registry):
    registry.add(Dying())
"""


@pytest.mark.nightly
def test_a_device_that_kills_who_starts_it_ends_the_run(
    pytester: pytest.Pytester, write_dump: Write, records: Json
) -> None:
    write_dump(records)
    pytester.makeconftest(DIES_ON_START)
    arguments = ["--msprobe-dump=dump.json", "--msprobe-device=dying"]
    isolated = pytester.runpytest_subprocess(*arguments, "--msprobe-isolate")
    assert isolated.ret == pytest.ExitCode.USAGE_ERROR
    isolated.stderr.fnmatch_lines(
        ["ERROR: the device cannot be started: the process * exited with status 3", "driver: *"]
    )
    spread = pytester.runpytest_subprocess(*arguments, "-n1")
    assert spread.ret == pytest.ExitCode.USAGE_ERROR
    assert "5 workers in a row died before they finished an item" in spread.stdout.str() + spread.stderr.str()


@pytest.mark.nightly
def test_exitfirst_ends_a_run_at_a_crash(write_dump: Write, records: Json, check: Any, make_device: MakeDevice) -> None:
    many = {name.replace(".0.", f".{i}."): body for i in range(20) for name, body in records.items()}
    write_dump(many)
    make_device("if record == 'Functional.softmax.0.forward': os._exit(1)\nimport time; time.sleep(0.25)")
    arguments = ("--msprobe-dump=dump.json", "--msprobe-device=faulty", "-x")
    assert list(check(*arguments, "--msprobe-isolate", apart=True).cases) == ["Functional.softmax.0.forward"]
    spread = check(*arguments, "-n1", apart=True)
    assert spread.wrong == {"Functional.softmax.0.forward"}
    assert len(spread.cases) < len(many)


def marked(mark: str) -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes():
                yield int(path.parent.name)
        except OSError:
            continue


def wait_until(done: Callable[[], bool], seconds: float = 300) -> bool:
    give_up = time.monotonic() + seconds
    while not done():
        if time.monotonic() > give_up:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize(
    "sent", nightly_but([signal.SIGINT, signal.SIGKILL, signal.SIGTERM], signal.SIGINT), ids=lambda sent: sent.name
)
@WAYS
def test_no_process_outlives_a_run_that_is_ended_while_an_item_hangs(
    pytester: pytest.Pytester,
    write_dump: Write,
    records: Json,
    make_device: MakeDevice,
    way: list[str],
    sent: signal.Signals,
) -> None:
    write_dump({BAD: records[BAD]})
    make_device(f"open('hanging', 'w').close()\n{HANG}")
    mark = f"TMPDIR={pytester.path}"
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "--msprobe-dump=dump.json", "--msprobe-device=faulty", *way],
        env=os.environ | {"TMPDIR": str(pytester.path)},
        cwd=pytester.path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert wait_until(lambda: (pytester.path / "hanging").exists())
    process.send_signal(sent)
    process.wait(60)
    assert wait_until(lambda: not list(marked(mark)))
    assert process.returncode == (pytest.ExitCode.INTERRUPTED if sent == signal.SIGINT else -sent)


def test_planted_chaos_is_finished_as_planned_over_a_killed_controller() -> None:
    script = Path(__file__).parents[2] / "benchmarks" / "chaos.py"
    done = subprocess.run(
        [sys.executable, script, *"--items 60 --faults 6 --kills 1 -- -n 2 --msprobe-isolate".split()],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
