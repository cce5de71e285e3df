"""A recording of what compiled graphs call, and of what their operators compute uncompiled."""

from __future__ import annotations

from dataclasses import replace

from msprobe_hooks.recording.config import Settings
from msprobe_hooks.recording.session import Model
from msprobe_hooks.recording.summary import Summary
from msprobe_hooks.torch.inductor.graph_hook import GraphHook, require_torch
from msprobe_hooks.torch.inductor.kernel_recorder import Recorders
from msprobe_hooks.torch.recorder import TorchRecorder
from msprobe_hooks.torch.session import TorchSession


class CompiledSession(TorchSession):
    """Level compiled. With ``golden_path``, a second recording has the golden values.

    Raises ConfigError where torch is too old.
    """

    def __init__(self, settings: Settings, model: Model | None = None) -> None:
        require_torch()
        super().__init__(settings, model)
        self.recorder.summary.awaited = "compiled graph"
        path = settings.golden_path
        self._golden = None if path is None else TorchRecorder(replace(settings, dump_path=path))
        self._recorders = Recorders(self.recorder, self._golden)
        self._hook = GraphHook(self._recorders)
        self._observers.append(self._hook)

    def _start(self, model: Model | None, rank: int | None) -> None:
        # The golden one first: while this one records, it does too.
        if self._golden is not None and not self._is_on:
            given = self._given_rank if rank is None else rank
            self._golden.start(self.rank() if given is None else given)
        super()._start(model, rank)

    def stop(self) -> None:
        """Pause; the files of both recordings are complete, tensors included."""
        super().stop()
        if self._golden is not None:
            self._golden.stop()

    def step(self) -> None:
        """End a step of both recordings."""
        was_wanted = self._is_wanted
        self.stop()
        for recorder in filter(None, (self.recorder, self._golden)):
            recorder.next_step()
        if was_wanted:
            self.start()

    def close(self) -> Summary:
        """Finish both recordings, drop the graphs that were compiled for them and return what was recorded."""
        summary = super().close()
        with self.recorder.net("the end of a recording"):
            self._hook.close()
        if self._golden is not None:
            golden = self._golden.close()
            summary.errors.update(golden.errors)
            summary.unmatched.append(
                f"{golden.calls} of them with golden values, into {self._golden.settings.dump_path}"
            )
        summary.unmatched += [f"{text} ({count})" for text, count in self._recorders.notes.items()]
        return summary
