"""A run ends, and settles each record once, whatever items do to their process; all of it in one run."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.dumps.dump_files import forward, tensor, write_dump

pytestmark = pytest.mark.slow

# What the device does at a record, and the outcome of that record.
FAULTS = {
    "exit": ("os._exit(3)", "crash"),
    "exit_in_good_order": ("os._exit(0)", "crash"),
    "segfault": ("ctypes.string_at(0)", "crash"),
    "kill": ("os.kill(os.getpid(), signal.SIGKILL)", "crash"),
    "terminate": ("os.kill(os.getpid(), signal.SIGTERM)", "crash"),
    "abort": ("os.abort()", "crash"),
    "sleep": ("time.sleep(3600)", "timeout"),
    "native": ("ctypes.PyDLL(None).sleep(3600)", "timeout"),
    "native_without_lock": ("ctypes.CDLL(None).sleep(3600)", "timeout"),
    "no_memory": ("torch.empty(2**50, dtype=torch.uint8)", "oom"),
    "memory_error": ("raise MemoryError", "oom"),
    "own_error": ("raise Odd('odd')", "error"),
    "system_exit": ("raise SystemExit(0)", "error"),
    "generator_exit": ("raise GeneratorExit", "error"),
    "mute": ("raise Mute", "error"),
    "group": ("raise BaseExceptionGroup('g', [KeyboardInterrupt(), ValueError('x')])", "error"),
    "recursion": ("recurse()", "fail"),
    "not_utf8": ("raise RuntimeError('\\ud800 bad \\x00 \\x1b[31m')", "fail"),
    "huge": ("raise RuntimeError('x' * 50_000_000)", "fail"),
    "pytest_exit": ("pytest.exit('bye')", "fail"),
    "pytest_skip": ("pytest.skip('bye')", "skip"),
    "pytest_fail": ("pytest.fail('bye')", "error"),
    "files_closed": ("os.closerange(3, 256)", "crash"),
    "streams_closed": ("os.close(1); os.close(2)", "pass"),
    "alarm_off": (
        "signal.setitimer(signal.ITIMER_REAL, 0); signal.signal(signal.SIGALRM, signal.SIG_IGN); time.sleep(3600)",
        "timeout",
    ),
    "alarm_blocked": ("signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])", "pass"),
    "stopped": ("os.kill(os.getpid(), signal.SIGSTOP)", "timeout"),
    "group_stopped": ("os.kill(0, signal.SIGSTOP)", "timeout"),
    "folder_left": ("os.chdir('/')", "pass"),
    "stderr_flooded": ("os.write(2, b'\\x1b[31mz' * 1_000_000); os._exit(4)", "crash"),
    "threads": ("start_threads()", "pass"),
    "forked": ("os.fork()", "pass"),
    "forked_and_left": ("os.fork() or time.sleep(3600)", "pass"),
    "forked_into_a_session": ("os.fork() or (os.setsid(), time.sleep(60))", "pass"),
    "interruption_swallowed_once": ("swallow(1)", "timeout"),
    "interruption_swallowed": ("swallow(3600)", "timeout"),
}

# Only where the child ignores Ctrl-C is this not the user's.
ISOLATED = {"interrupt": ("raise KeyboardInterrupt", "error")}

DEVICE = """
import ctypes, os, signal, threading, time

import pytest
import torch
from pytest_msprobe.devices.sim import SimDevice


class Odd(BaseException):
    pass


class Mute(BaseException):
    def __str__(self):
        raise RuntimeError("str fails")

    __repr__ = __str__


def recurse():
    return recurse()


def start_threads():
    for _ in range(300):
        threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
    threading.Thread(target=time.sleep, args=(3600,)).start()


def swallow(times):
    for _ in range(times):
        try:
            time.sleep(30 if times == 1 else 1)
        except BaseException:
            pass


class Planted(SimDevice):
    name = "planted"

    def call(self, func, args, kwargs, *, record):
        exec({deeds!r}.get(record, ""), globals())
        return super().call(func, args, kwargs, record=record)


def pytest_msprobe_register_devices(registry):
    registry.add(Planted())
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("way", "faults"), [(["--msprobe-isolate"], FAULTS | ISOLATED), (["-n2"], FAULTS)], ids=["isolated", "workers"]
)
def test_a_run_ends_and_settles_each_record_once_whatever_items_do(
    pytester: pytest.Pytester, way: list[str], faults: dict[str, tuple[str, str]]
) -> None:
    # Before, between and after the faults are records that must pass.
    names = [f"Torch.abs.{number}.forward" for number in range(2 * len(faults) + 1)]
    write_dump(pytester.path, {name: forward(tensor(4)) for name in names})
    planted = dict(zip(names[1::2], faults.values(), strict=True))
    pytester.makeconftest(DEVICE.format(deeds={name: deed for name, (deed, _) in planted.items()}))
    result = pytester.runpytest_subprocess(
        "--msprobe-dump=dump.json",
        "--msprobe-device=planted",
        "--msprobe-timeout=5",
        "--msprobe-journal=run.jsonl",
        "--junitxml=run.xml",
        "--tb=no",
        *way,
        timeout=900,
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED

    settled = journal_outcomes(pytester.path / "run.jsonl")
    assert Counter(name for name, _ in settled) == Counter(names)
    expected = dict.fromkeys(names, "pass") | {name: outcome for name, (_, outcome) in planted.items()}
    kinds = dict(zip(planted, faults, strict=True))
    assert {kinds.get(name, name): outcome for name, outcome in settled if outcome != expected[name]} == {}
    cases = list(ElementTree.parse(pytester.path / "run.xml").iter("testcase"))
    assert sorted(case.get("name", "") for case in cases) == sorted(names)


def journal_outcomes(path: Path) -> list[tuple[str, str]]:
    """Return record and outcome of each line of a journal that settles a record."""
    lines = map(json.loads, path.read_text().splitlines())
    return [(line["id"].partition("::")[2], line["outcome"]) for line in lines if line.get("line") == "item"]
