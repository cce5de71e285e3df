"""Kernels of a static graph as items: what was recorded is judged, and nothing runs on a device."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from msprobe_hooks.errors import DumpError
from pytest_msprobe.engine.framework_names import KERNELS
from pytest_msprobe.errors import OptionError
from pytest_msprobe.modes.check.options import CheckOptions
from pytest_msprobe.run.item import DumpItem
from pytest_msprobe.run.setups import setups_key

if TYPE_CHECKING:
    import pytest

    from msprobe_hooks.dump.reader import Dump
    from msprobe_hooks.extensions.mindspore.static_graph.reader import GraphDump
    from pytest_msprobe.engine.replay.trials.config import ReplayConfig
    from pytest_msprobe.results.result import DirectionResult


class KernelItem(DumpItem):
    """The check of one execution of a kernel."""

    dump: GraphDump
    # What starts is the definitions' side alone.
    runs_on_device = True

    def judge(self) -> DirectionResult:
        """Return the policy's verdict on what the kernel gave."""
        setup = self.config.stash[setups_key].setup_for(KERNELS)
        # Whatever lists items never loads torch.
        from pytest_msprobe.extensions.mindspore.kernels.check import check_kernel

        return check_kernel(self.dump, self.name, setup)

    def signature(self) -> Hashable:
        """Return the kernel's type and the kinds of its tensors."""
        kernel = self.dump.kernels[self.name]
        return (kernel.type, *((slot, x.dtype, x.shape) for slot, x in kernel.inputs.items()))


class KernelChecks:
    """The check of the kernels that a static graph executed."""

    def require_checkable(self, dumps: Iterable[Dump], options: CheckOptions) -> None:
        """Raise DumpError for kernels without tensors, OptionError where an option asks to run kernels again."""
        graphs = list(dumps)
        for dump in graphs:
            if dump.task != "tensor":
                raise DumpError(
                    f"{dump.path}: holds statistics of kernels, which cannot be judged without tensors; dump them with "
                    '"saved_data": "tensor"'
                )
        if options.needs_golden or replace(options, features=()) != CheckOptions():
            raise OptionError(
                f"{graphs[0].path}: kernels of a static graph are judged as recorded and not run; leave out "
                "the options on baselines, saved cases, repeating, perturbing and exploring"
            )

    def names(self, dump: GraphDump) -> Iterator[str]:
        """Yield the names of the executions of kernels that are checked, in their order."""
        return (name for name, kernel in dump.kernels.items() if not kernel.is_parameter)

    def items(self, file: pytest.File, dump: GraphDump) -> Iterator[KernelItem]:
        """Yield an item for each execution of a kernel, in their order."""
        for name in self.names(dump):
            yield KernelItem.from_parent(file, name=name, dump=dump)

    def judge(self, dump: GraphDump, name: str, setup: ReplayConfig) -> DirectionResult:
        """Return the policy's verdict on what a kernel gave."""
        from pytest_msprobe.extensions.mindspore.kernels.check import check_kernel

        return check_kernel(dump, name, setup)
