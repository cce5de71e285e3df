"""``TrainerMon`` of PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msprobe_hooks.instruments.watch.trainer_mon import Monitor

if TYPE_CHECKING:
    from msprobe_hooks.instruments.watch.torch_watcher import TorchWatcher


class TrainerMon(Monitor):
    """Watches the training of one model of PyTorch with one optimizer, as a configuration file says."""

    def watcher(self, model: Any, optimizer: Any, **options: Any) -> TorchWatcher:
        """Return what watches modules."""
        from msprobe_hooks.instruments.watch.torch_watcher import TorchWatcher

        return TorchWatcher(model, optimizer, **options)

    def rank_in(self, group: Any) -> int:
        """Return this process's rank in a group of ``torch.distributed``."""
        import torch.distributed as dist

        return dist.get_rank(group)

    def ranks_of(self, group: Any) -> list[int]:
        """Return the ranks in the whole program of a group's processes."""
        import torch.distributed as dist

        return dist.get_process_group_ranks(group)
