"""``TrainerMon`` of MindSpore."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe_hooks.extensions.monitor.watch.config import NO_COLLECTIVES, Plan
from msprobe_hooks.extensions.monitor.watch.trainer_mon import Monitor

if TYPE_CHECKING:
    from msprobe_hooks.extensions.monitor.watch.mindspore_watcher import MindSporeWatcher


class TrainerMon(Monitor):
    """Watches the training of one model of MindSpore with one optimizer, as a configuration file says."""

    def watcher(self, model: Any, optimizer: Any, **options: Any) -> MindSporeWatcher:
        """Return what watches cells."""
        from msprobe_hooks.extensions.monitor.watch.mindspore_watcher import MindSporeWatcher

        return MindSporeWatcher(model, optimizer, **options)

    def rank_in(self, group: str) -> int:
        """Return this process's rank in a group of MindSpore's communication, which is a name."""
        from mindspore.communication import get_rank

        return int(get_rank(group))

    def ranks_of(self, group: str) -> list[int]:
        """Return the ranks in the whole program of a group's processes."""
        from mindspore.communication import get_process_group_ranks

        return list(map(int, get_process_group_ranks(group)))

    def read(self, path: str | Path) -> tuple[Plan, list[str]]:
        """Return the plan of a configuration, without collectives, and warnings. Raises ConfigError."""
        plan, warnings = super().read(path)
        if plan.wants("collectives"):
            plan = replace(plan, what=plan.what - {"collectives"})
            warnings.append(f"cc_distribution is ignored: {NO_COLLECTIVES}")
        return plan, warnings
