"""A run's workers on other hosts: which files they need, and what the controller sends them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from msprobe_hooks.dump.recording_paths import TENSOR_FOLDER
from pytest_msprobe.containment.run_folder import run_folder_key
from pytest_msprobe.engine.framework_names import PYTORCH
from pytest_msprobe.extensions.hosts.options import read_host_cache
from pytest_msprobe.extensions.hosts.run_files import FileServer, Outputs, RunFiles, files_read_at_start
from pytest_msprobe.results.result import from_plain
from pytest_msprobe.run.collection import dump_of_id, dumps_key
from pytest_msprobe.run.hosts import remote_workers_key
from pytest_msprobe.run.mode import ReadsFiles
from pytest_msprobe.run.msprobe_config import run_ut
from pytest_msprobe.run.options import options_key

if TYPE_CHECKING:
    from pytest_msprobe.extensions.hosts.worker_launch import Hosts


def start_remote_workers(config: pytest.Config) -> None:
    """Start xdist's workers on the named hosts, where dumps are checked. Raises a UserError."""
    if not config.stash[dumps_key]:
        return
    from pytest_msprobe.extensions.hosts.worker_launch import Hosts

    mode = config.stash[options_key].mode
    folders = {dump: dump.parent / TENSOR_FOLDER for dump in config.stash[dumps_key]}
    outputs = dict[Path, int]()
    if isinstance(mode, ReadsFiles):
        folders |= {_plain(file): _plain(folder) for file, folder in mode.files_beside(config).items()}
        outputs = {_plain(folder): limit for folder, limit in mode.folders_written(config).items()}
    baggage = RunFiles(
        files=tuple(dict.fromkeys([*map(_plain, _files_of_options(config)), *folders])),
        folders=folders,
        only_in_place=_why_only_in_place(config),
        limit=read_host_cache(config),
    )
    desk = FileServer(baggage, Outputs(outputs))
    session: Any = config.pluginmanager.get_plugin("dsession")
    config.stash[remote_workers_key] = hosts = Hosts(config, session, desk, _packages(config))
    config.pluginmanager.register(Abandoned(config, hosts), "msprobe-abandoned-on-hosts")


class Abandoned:
    """Informs every host of a record that did not end, wherever it ran: its backward record is not to be tried."""

    def __init__(self, config: pytest.Config, hosts: Hosts) -> None:
        self._config = config
        self._hosts = hosts

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Report an item that did not end."""
        plain = getattr(report, "msprobe", None)
        if plain is None or not report.failed:
            return
        result = from_plain(plain)
        if result.breakdown is not None and result.breakdown.did_not_end:
            dump = dump_of_id(self._config, report.nodeid)
            self._config.stash[run_folder_key].post("abandoned", dump, result.record)
            self._hosts.report_abandoned(str(dump), result.record)


def _plain(path: Path) -> Path:
    """Return an absolute path without ``..``, by which files are named."""
    return Path(os.path.abspath(path))  # noqa: PTH100


def _files_of_options(config: pytest.Config) -> Iterator[Path]:
    options = config.stash[options_key]
    yield from files_read_at_start(config)
    if Path(options.policy).is_file():
        yield Path(options.policy)
    if options.valid_rows is not None:
        yield options.valid_rows
    if options.journal is not None:
        yield options.journal
    file = run_ut(config).file
    if file is not None:
        yield file


def _why_only_in_place(config: pytest.Config) -> str:
    """Return why a host must see the run's files itself, empty where they can be sent."""
    mode, dumps = config.stash[options_key].mode, config.stash[dumps_key]
    if not isinstance(mode, ReadsFiles):
        return f"files of {mode.flag} are not sent to other hosts; put them on shared storage, at the same path"
    folder = config.invocation_params.dir
    for argument in config.args:
        if _plain(folder / argument.partition("::")[0]) not in dumps:
            return f"tests such as {argument} are not sent to other hosts; put them on shared storage"
    return ""


def _packages(config: pytest.Config) -> Mapping[str, str]:
    if not config.stash[options_key].mode.needs_device(config):
        return {}
    frameworks = {dump.framework for dump in config.stash[dumps_key].values()}
    return {"torch": "torch"} | {name: name for name in frameworks if name != PYTORCH}
