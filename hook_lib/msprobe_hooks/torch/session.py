"""Installing and removing what observes, around a recorder."""

from __future__ import annotations

from torch._C import (
    _get_function_stack_at,
    _len_torch_function_stack,
    _pop_torch_function_stack,
    _push_on_torch_function_stack,
)

from msprobe_hooks.config import Settings
from msprobe_hooks.summary import Summary
from msprobe_hooks.torch.apis import api_table
from msprobe_hooks.torch.calls import CallMode
from msprobe_hooks.torch.recorder import Recorder, process_rank
from msprobe_hooks.torch.threads import NewThreads


class Session:
    """A recording of this process: start, stop, step, close."""

    def __init__(self, settings: Settings) -> None:
        self.recorder = Recorder(settings)
        self._mode = CallMode(self.recorder, api_table(settings.risk_level)) if settings.records_apis else None
        self._threads = NewThreads(self._mode) if self._mode is not None else None

    def start(self) -> None:
        """Record from here on, where step and rank are wanted. Raises RecordingError where it cannot write."""
        if self.recorder.is_recording or not self.recorder.start(process_rank()):
            return
        if self._mode is not None:
            _push_on_torch_function_stack(self._mode)
        if self._threads is not None:
            self._threads.begin()

    def stop(self) -> None:
        """Pause; the files are complete."""
        if not self.recorder.is_recording:
            return
        self.recorder.stop()
        if self._threads is not None:
            self._threads.end()
        if self._mode is not None:
            _remove(self._mode)

    def step(self) -> None:
        """End a step: the next start writes into the next folder."""
        self.stop()
        self.recorder.next_step()

    def close(self) -> Summary:
        """Finish and return what was recorded."""
        self.stop()
        return self.recorder.close()


def _remove(mode: CallMode) -> None:
    # The user may have entered other modes since, so ours need not be the last.
    if all(_get_function_stack_at(place) is not mode for place in range(_len_torch_function_stack())):
        return
    above = []
    while (top := _pop_torch_function_stack()) is not mode:
        above.append(top)
    for other in reversed(above):
        _push_on_torch_function_stack(other)
