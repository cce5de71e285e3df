"""Hooks of xdist: cards of workers, their number, and what they send back."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from msprobe_hooks.json_decoding import decode_json
from pytest_msprobe.containment import run_folder
from pytest_msprobe.containment.deadline import EndTime
from pytest_msprobe.containment.process import die_with, forks_compute
from pytest_msprobe.containment.process_state import state_key
from pytest_msprobe.containment.run_folder import run_folder_key
from pytest_msprobe.devices.accelerator import Accelerator
from pytest_msprobe.devices.cuda import CudaDevice
from pytest_msprobe.devices.npu import NpuDevice
from pytest_msprobe.devices.registry import ACCELERATOR, AUTO
from pytest_msprobe.engine.framework_names import checked_as
from pytest_msprobe.errors import DeviceError, UserError
from pytest_msprobe.run.collection import dumps_key, first_framework
from pytest_msprobe.run.hosts import HERE, remote_workers_key, to_controller_paths, worker_host_of
from pytest_msprobe.run.item import DumpItem, JudgedItem
from pytest_msprobe.run.journaling import release_in_child
from pytest_msprobe.run.options import devices_key, has_dump_arguments, options_key, read_options
from pytest_msprobe.run.reporting import StartLine
from pytest_msprobe.run.setups import setups_key

if TYPE_CHECKING:
    from pytest_msprobe.containment.captured_stderr import ExitCause


class Slots:
    """Hands the lowest free slot to each worker, so that a replacement takes over the dead one's card."""

    def __init__(self) -> None:
        self._owners: dict[int, str] = {}

    def take(self, worker: str) -> int:
        """Assign a worker the lowest free slot."""
        slot = next(number for number in range(len(self._owners) + 1) if number not in self._owners)
        self._owners[slot] = worker
        return slot

    def free(self, worker: str) -> None:
        """Take back the slot of a worker that has ended."""
        self._owners = {slot: owner for slot, owner in self._owners.items() if owner != worker}


# What the controller sends to workers: that one which ends between two items costs neither of them.
_BLAMES_RIGHTLY = "msprobe_blames_rightly"

# Those that `containment.scheduler` spreads. ``each`` is not one of them: it never gives an item that killed a worker
# out again.
_OUR_DISTRIBUTIONS = ("load", "worksteal", "loadscope", "loadfile", "loadgroup")

# Whether the worker's process was started for it.
_WAS_STARTED = "msprobe_was_started"

# The slots of each host.
_slots_key = pytest.StashKey[dict[str, Slots]]()


def start_device(session: pytest.Session) -> bool | None:
    """Activate this process's card and load the policy, if it is going to run items that need them.

    Raises a UserError where either cannot be used. An xdist worker reports it to its controller instead, and returns
    True: it runs nothing.
    """
    config = session.config
    items = [item for item in session.items if isinstance(item, JudgedItem)]
    setups = config.stash[setups_key]
    on_device = (item for item in items if isinstance(item, DumpItem) and item.runs_on_device)
    setups.frameworks = tuple(sorted({checked_as(item.dump) for item in on_device}))
    isolated = {item.nodeid: item for item in items if item.is_isolated} if config.stash[options_key].isolate else {}
    if items and not (isolated or config.option.collectonly):
        _guard_run(config)
    if config.option.collectonly or not (setups.frameworks or isolated):
        return None
    try:
        if isolated:
            from pytest_msprobe.containment.isolation import isolate

            isolate(config, isolated, on_fork=lambda: release_in_child(config))
        else:
            setups.begin()
    except UserError as error:
        return _refuse(config, error)
    line = config.pluginmanager.get_plugin("msprobe-start-line")
    if setups.frameworks and isinstance(line, StartLine):
        line.write(setups.start)
    return None


def _refuse(config: pytest.Config, error: UserError) -> bool:
    """Raise what the user gave wrong; an xdist worker reports it to its controller instead, and runs nothing."""
    if not report_unusable(config, error):
        raise error
    return True


def report_unusable(config: pytest.Config, error: Exception) -> bool:
    """Report to the controller what the user gave wrong; return False in a process that is not an xdist worker."""
    if not hasattr(config, "workeroutput"):
        return False
    config.workeroutput["msprobe_unusable"] = to_controller_paths(config, str(error))
    return True


def leave_broken_device(item: pytest.Item) -> None:
    """End this process, or the run where the process is not replaced, once its device no longer works."""
    broken_device = item.config.stash[state_key].broken_device
    if broken_device is None:
        return
    if getattr(item.config, "workerinput", {}).get(_BLAMES_RIGHTLY):
        # The item has been reported; the context that it broke can only hinder an orderly end.
        os._exit(1)
    item.session.shouldstop = (
        f"{broken_device}; every later item would fail. With --msprobe-isolate or -n the run continues"
    )


def isolate_by_worker(config: pytest.Config) -> None:
    """Run items in a worker of xdist, a new process, where isolation is wanted and no forked one could compute."""
    option = config.option
    if not getattr(option, "msprobe_isolate", False) or forks_compute() or not hasattr(option, "numprocesses"):
        return
    option.msprobe_isolate = False
    if not (option.numprocesses or option.tx or hasattr(config, "workerinput")):
        option.numprocesses, option.dist, option.tx = 1, "load", ["popen"]


def allow_replacements(config: pytest.Config) -> None:
    """Lift xdist's limit of replaced workers where dumps are checked and the user set none.

    The limit is against workers that do nothing but die; those are counted here, see ``take_back``.
    """
    # xdist may not have put its default in place of "no" yet.
    ends = getattr(config.option, "dist", "") in ("no", *_OUR_DISTRIBUTIONS, "each")
    if ends and getattr(config.option, "maxworkerrestart", "") is None and has_dump_arguments(config):
        config.option.maxworkerrestart = str(sys.maxsize)


def make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return what spreads items where dumps are checked: as the user chose, by default work stealing.

    None leaves it to xdist.
    """
    if not config.stash[dumps_key]:
        return None
    from pytest_msprobe.containment.scheduler import SCHEDULINGS, Progress, progress_key

    config.stash[progress_key] = progress = Progress(config, partial(_cause_elsewhere, config))
    config.pluginmanager.register(progress, "msprobe-progress")
    scheduling = SCHEDULINGS.get(config.getoption("dist"))
    return None if scheduling is None else scheduling(config, log, progress)


def _cause_elsewhere(config: pytest.Config, node: Any) -> ExitCause | None:
    hosts = config.stash.get(remote_workers_key, None)
    return None if hosts is None else hosts.exit_cause(node)


def give_slot(node: Any) -> None:
    """Send a new worker the lowest free slot of its host, and the run's folder there. Raises HostError."""
    config = node.config
    hosts = config.stash.get(remote_workers_key, None)
    host = HERE if hosts is None else hosts.host_of(node.gateway.spec)
    slots = config.stash.setdefault(_slots_key, {}).setdefault(host, Slots())
    node.workerinput["msprobe_slot"] = slots.take(node.gateway.id)
    if hosts is not None:
        node.workerinput["msprobe_workers_here"] = hosts.workers_on(host)
        node.workerinput[run_folder.INPUT] = str(config.stash[run_folder_key].path)
        node.workerinput[_BLAMES_RIGHTLY] = config.getoption("dist") in _OUR_DISTRIBUTIONS
        # A server that listens on a socket was there before the run.
        node.workerinput[_WAS_STARTED] = not node.gateway.spec.socket
        hosts.welcome(node)


def start_worker(config: pytest.Config) -> None:
    """Prepare an xdist worker to die: it never outlives its controller or the link to it, nor takes it along."""
    workerinput = getattr(config, "workerinput", {})
    if run_folder.INPUT in workerinput:
        if workerinput[_WAS_STARTED]:
            die_with(os.getppid())
            _guard_worker(config)
        config.stash[state_key].prepare_to_exit()
        here = worker_host_of(config)
        if here is not None:
            folder = config.stash[run_folder_key]
            here.subscribe_abandoned(lambda dump, record: folder.post("abandoned", dump, record))


def _guard_worker(config: pytest.Config) -> None:
    """End the worker in time, and with it what its items leave, where the system can fork."""
    if not hasattr(os, "fork"):
        return
    from pytest_msprobe.containment.isolation import guard_worker

    state = config.stash[state_key]
    state.end_time = EndTime()
    stderr = config.stash[run_folder_key].stderr_file(state.name)
    guard_worker(state.end_time, stderr, _pipes_to_controller(config))


def _pipes_to_controller(config: pytest.Config) -> list[int]:
    for plugin in config.pluginmanager.get_plugins():
        link: Any = getattr(getattr(getattr(plugin, "channel", None), "gateway", None), "_io", None)
        if hasattr(link, "infile") and hasattr(link, "outfile"):
            return [link.infile.fileno(), link.outfile.fileno()]
    return []


def _guard_run(config: pytest.Config) -> None:
    """Report where an item outlives its limit in this process, which cannot be ended without ending the run."""
    is_worker = hasattr(config, "workerinput")
    if config.stash[options_key].timeout is None or is_worker or not hasattr(os, "fork"):
        return
    from pytest_msprobe.containment.isolation import guard_run

    state = config.stash[state_key]
    state.end_time = end_time = EndTime()
    state.on_judging = end_time.set_item
    config.add_cleanup(guard_run(end_time))


def take_back(node: Any, error: object) -> None:
    """Free the slot of a worker that ended, so that a replacement takes over its card.

    Raises DeviceError where the worker could not start its device, WorkerError where workers do nothing but die; either
    ends the run.
    """
    config = node.config
    for slots in config.stash.setdefault(_slots_key, {}).values():
        slots.free(node.gateway.id)
    if remote_workers_key in config.stash:
        config.stash[remote_workers_key].leave(node, error)
    workeroutput = getattr(node, "workeroutput", {})
    if "msprobe_unusable" in workeroutput:
        raise DeviceError(workeroutput["msprobe_unusable"])
    progress = config.pluginmanager.get_plugin("msprobe-progress")
    if error and progress is not None:
        progress.count_exit(node.workerinput["workercount"])


def worker_count(config: pytest.Config) -> int | None:
    """Return the number of chosen cards for ``-n auto``; None leaves it to xdist, as on the CPU.

    Real cards are counted in a process of its own: the controller never loads torch, unless conftest.py has, for a
    backend that such a process would lack.
    """
    options = read_options(config)
    choice = options.device
    if not has_dump_arguments(config) or choice.name == "cpu" or not options.mode.needs_device(config):
        return None
    if choice.indices:
        return len(choice.indices)
    devices, name = config.stash[devices_key], choice.name
    is_torchs = name in (AUTO, ACCELERATOR) or type(devices.get(name)) in (Accelerator, CudaDevice, NpuDevice)
    torch: Any = sys.modules.get("torch")
    if is_torchs and (torch is None or torch._C._get_privateuse1_backend_name() == "privateuseone"):
        return _count_elsewhere(name, first_framework(config, options))
    device = devices.get(name)
    return None if name == AUTO and device.name == "cpu" else device.count()


def _count_elsewhere(name: str, framework: str) -> int | None:
    code = (
        "import json, sys; from pytest_msprobe.devices.registry import DeviceRegistry\n"
        "from pytest_msprobe.engine.frameworks import framework_named\n"
        "device = framework_named(sys.argv[2]).device(DeviceRegistry(), sys.argv[1])\n"
        "print(json.dumps([device.name, device.count()]))"
    )
    done = subprocess.run([sys.executable, "-c", code, name, framework], capture_output=True, text=True, check=False)
    if done.returncode:
        problem = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise DeviceError(f"-n auto: the cards of device {name!r} cannot be counted: {problem}")
    device, count = decode_json(done.stdout.splitlines()[-1].encode())
    return None if name == AUTO and device == "cpu" else int(count)
