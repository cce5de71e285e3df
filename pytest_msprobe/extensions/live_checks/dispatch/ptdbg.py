"""``PtdbgDispatch``: msprobe's context manager for comparing operators with the CPU while they run."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from msprobe_hooks.recording.session import observing
from msprobe_hooks.torch.session import Operators, process_rank
from msprobe_standards import Policy
from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.engine.frameworks.torch import TorchFramework
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.extensions.live_checks.budget import Budget
from pytest_msprobe.extensions.live_checks.dispatch.options import checked
from pytest_msprobe.extensions.live_checks.dispatch.single_benchmark import judge_singly
from pytest_msprobe.extensions.live_checks.dispatch.tables import DispatchTables
from pytest_msprobe.extensions.live_checks.judge import Judge
from pytest_msprobe.extensions.live_checks.options import LiveOptions
from pytest_msprobe.extensions.live_checks.scheduling import Selection
from pytest_msprobe.extensions.live_checks.session import TorchLiveRecorder
from pytest_msprobe.extensions.live_checks.sink import one_at_a_time

_log = logging.getLogger("pytest_msprobe")


class PtdbgDispatch:
    """Compares every operator inside its ``with``, forward or backward, with the same operator on the CPU.

    Args:
        dump_mode: Whose tensors are written: of ``"all"`` operators, of those in ``api_list`` (``"list"``), of those
            that fail (``"auto"``), of none (``"OFF"``).
        api_list: Names of ATen operators, for the mode ``"list"``.
        debug: Whether each operator is logged.
        dump_path: An existing folder, below which one is made for each ``with``.
        tag: A part of that folder's name.
        process_num: Accepted as by msprobe; operators are judged in this process.

    Raises:
        ConfigError: An argument cannot be used.
    """

    def __init__(
        self,
        dump_mode: str = "OFF",
        api_list: Sequence[str] | None = None,
        debug: bool = False,
        dump_path: str | Path | None = None,
        tag: str | None = None,
        process_num: int = 0,
    ) -> None:
        self._options = checked(dump_mode, api_list, debug, dump_path, tag, process_num)

    @property
    def folder(self) -> Path:
        """The folder that was written last."""
        return self._tables.folder

    def __enter__(self) -> None:
        """Compare from here on. Raises FolderError where nothing can be written, ConfigError inside a live check."""
        with ExitStack() as opening:
            opening.enter_context(one_at_a_time())
            self._tables = tables = DispatchTables(self._options, process_rank() or 0)
            opening.callback(tables.close)
            self._recorder = recorder = _recorder(tables)
            recorder.start(process_rank())
            opening.callback(recorder.close)
            opening.enter_context(observing([Operators(recorder)]))
            self._open = opening.pop_all()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Complete the tables. Raises FolderError where they were cut short and the code inside raised nothing."""
        self._open.close()
        tables = self._tables
        _log.info("%s: %s", tables.folder, ", ".join(f"{count} {outcome}" for outcome, count in tables.counts.items()))
        for where, count in self._recorder.summary.errors.items():
            _log.warning("not compared: %s (%d times)", where, count)
        if error is None and tables.failure is not None:
            raise tables.failure


def _recorder(tables: DispatchTables) -> TorchLiveRecorder:
    judge, budget = (
        Judge(ReplayConfig(CpuDevice(), Policy.load("default"), TorchFramework(), memory="given"), by=judge_singly),
        Budget(None),
    )
    everything = Selection(1.0, None, budget, 0)
    # Operators have no gradients to wait for.
    return TorchLiveRecorder(LiveOptions(level="aten").recording(), judge, tables, everything, budget, lambda: None, 0)
