"""Spreading a run: which worker has which card, how many workers there are, and what they send back."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from pytest_msprobe.collection import dumps_key
from pytest_msprobe.devices.device import DeviceError
from pytest_msprobe.devices.registry import AUTO
from pytest_msprobe.devices.slots import Slots
from pytest_msprobe.item import RecordItem
from pytest_msprobe.options import devices_key, read_options
from pytest_msprobe.reporting import StartLine, abandoned_key
from pytest_msprobe.worker import worker_key

_slots_key = pytest.StashKey[Slots]()


def start_device(session: pytest.Session) -> bool | None:
    """Activate this process's card and load the policy, if it is going to run items.

    Raises pytest.UsageError where either cannot be used. An xdist worker tells its controller instead, and returns
    True: it runs nothing.
    """
    config = session.config
    here = any(isinstance(item, RecordItem) for item in session.items)
    if not here or config.option.collectonly:
        return None
    worker = config.stash[worker_key]
    try:
        worker.setup  # noqa: B018 - starts the device
    except (DeviceError, pytest.UsageError) as error:
        if not worker.is_replaceable:
            raise pytest.UsageError(str(error)) from None
        config.workeroutput["msprobe_unusable"] = str(error)  # type: ignore[attr-defined]
        return True
    line = config.pluginmanager.get_plugin("msprobe-start-line")
    if isinstance(line, StartLine):
        line.write(worker.start)
    return None


def make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return xdist's work stealing in place of its default where dumps are checked; None leaves the user's choice."""
    if config.getoption("dist") != "load" or not config.stash[dumps_key]:
        return None
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


def give_slot(node: Any) -> None:
    """Tell a new worker the lowest free slot, and which calls killed the workers before it."""
    slots = node.config.stash.setdefault(_slots_key, Slots())
    node.workerinput["msprobe_slot"] = slots.take(node.gateway.id)
    node.workerinput["msprobe_abandoned"] = node.config.stash.get(abandoned_key, [])


def take_back(node: Any) -> None:
    """Free the slot of a worker that ended, so that a replacement takes over its card.

    Raises pytest.UsageError, which ends the run, where the worker could not start its device.
    """
    node.config.stash.setdefault(_slots_key, Slots()).free(node.gateway.id)
    workeroutput = getattr(node, "workeroutput", {})
    if "msprobe_unusable" in workeroutput:
        raise pytest.UsageError(workeroutput["msprobe_unusable"])


def worker_count(config: pytest.Config) -> int | None:
    """Return the number of chosen cards for ``-n auto``; None leaves it to xdist, as on the CPU.

    Real cards are counted in a process of its own: the controller never loads torch.
    """
    options = read_options(config)
    choice = options.device
    has_dump = options.dumps or any(".json" in argument for argument in config.args)
    needs_no_device = options.mode == "overflow" and not config.getoption("msprobe_overflow_replay")
    if not has_dump or choice.name == "cpu" or needs_no_device:
        return None
    if choice.indices:
        return len(choice.indices)
    if choice.name in (AUTO, "npu", "cuda"):
        return _count_elsewhere(choice.name)
    try:
        return config.stash[devices_key].get(choice.name).count()
    except DeviceError as error:
        raise pytest.UsageError(str(error)) from None


def _count_elsewhere(name: str) -> int | None:
    code = (
        "import json, sys; from pytest_msprobe.devices.registry import DeviceRegistry\n"
        "device = DeviceRegistry().get(sys.argv[1]); print(json.dumps([device.name, device.count()]))"
    )
    done = subprocess.run([sys.executable, "-c", code, name], capture_output=True, text=True, check=False)
    if done.returncode:
        problem = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise pytest.UsageError(f"-n auto: the cards of device {name!r} cannot be counted: {problem}")
    found, count = json.loads(done.stdout.splitlines()[-1])
    return None if name == AUTO and found == "cpu" else int(count)
