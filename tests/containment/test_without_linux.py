"""Runs on a system that has not what Linux has: no fork, no /proc, no affinity of processors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import runs
from tests.support.dumps.dump_files import forward, tensor

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples/check_a_dump/dump.json"

# Python imports this when it starts.
_SITE = """
import os, sys

for name in ("fork", "forkpty", "sched_getaffinity", "sched_setaffinity", "memfd_create"):
    delattr(os, name)


def refuse(event, arguments):
    if event == "open" and str(arguments[0]).startswith(("/proc/", "/sys/")):
        raise FileNotFoundError(arguments[0])


sys.addaudithook(refuse)
"""

_DYING = """
import os, signal
from pytest_msprobe.devices.sim import SimDevice

class Dying(SimDevice):
    name = "dying"

    def call(self, func, args, kwargs, *, record):
        if "cos" in record:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().call(func, args, kwargs, record=record)

def pytest_msprobe_register_devices(registry):
    registry.add(Dying())
"""


@pytest.fixture
def bare(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take from processes that this test starts what other systems lack."""
    folder = pytester.mkdir("site")
    (folder / "sitecustomize.py").write_text(_SITE)
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=":")


@pytest.mark.parametrize("how", [[], ["-n2"], ["--msprobe-timeout=60"]], ids=" ".join)
@pytest.mark.usefixtures("bare")
def test_a_dump_is_checked_without_what_linux_has(pytester: pytest.Pytester, how: list[str]) -> None:
    checked = runs.check(
        pytester, f"--msprobe-dump={EXAMPLE}", "--msprobe-device=cpu", "-k", "softmax", *how, apart=True
    )
    assert checked.exit_code == 0, checked.errors
    assert set(checked.outcomes.values()) == {"passed"}


@pytest.mark.usefixtures("bare")
def test_isolation_is_by_a_worker_where_nothing_can_be_forked(
    pytester: pytest.Pytester, write_dump: Callable[..., Path]
) -> None:
    pytester.makeconftest(_DYING)
    dump = write_dump({f"Torch.{name}.0.forward": forward(tensor(4, 8)) for name in ("exp", "cos", "sin")})
    checked = runs.check(pytester, f"--msprobe-dump={dump}", "--msprobe-device=dying", "--msprobe-isolate", apart=True)
    assert checked.outcomes["Torch.exp.0.forward"] == checked.outcomes["Torch.sin.0.forward"] == "passed"
    assert checked.wrong == {"Torch.cos.0.forward"}
    assert "SIGKILL" in checked.cases["Torch.cos.0.forward"].text


@pytest.mark.usefixtures("bare")
def test_a_recording_needs_nothing_of_linux(pytester: pytest.Pytester) -> None:
    script = pytester.makepyfile(
        "import torch\nfrom msprobe_hooks import record\nwith record('dump', task='tensor'):\n    torch.ones(3).exp()"
    )
    assert pytester.runpython(script).ret == 0
    assert (pytester.path / "dump/step0/rank/dump.json").exists()
