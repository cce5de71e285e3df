"""The free benchmark of MindSpore's dynamic graph mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msprobe_hooks.dump.names import split_called
from msprobe_hooks.extensions.fix.call_filter import UnraisedError
from msprobe_hooks.extensions.fix.mindspore_upcast import MindSporeRaising
from msprobe_hooks.extensions.free_benchmark.config import BenchmarkSettings
from msprobe_hooks.extensions.free_benchmark.mindspore_ratio import MindSporeJudging
from msprobe_hooks.extensions.free_benchmark.mindspore_rerun import MindSporeAgain
from msprobe_hooks.extensions.free_benchmark.recorder import BenchmarkedCall, BenchmarkRecorder
from msprobe_hooks.extensions.free_benchmark.table import FILE_NAME, MINDSPORE_FORM
from msprobe_hooks.extensions.mindspore.recorder import MindSporeRecorder
from msprobe_hooks.recording.config import Settings


class FixedCall(BenchmarkedCall):
    """A call that is made in float32 in the first place: the values of a tensor here cannot be replaced unseen."""

    __slots__ = ()

    _recorder: MindSporeBenchmarkRecorder

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Make the call in float32 where it is wanted and can be."""
        recorder = self._recorder
        if self.is_wanted:
            try:
                result = recorder.raising.make(split_called(self.name)[0], func.function, args, kwargs)
            except UnraisedError as reason:
                recorder.leave_out(str(reason))
            except Exception as error:
                self._note_error_before(error)
            else:
                recorder.note_fixed()
                return result
        return func(*args, **kwargs)


class MindSporeBenchmarkRecorder(BenchmarkRecorder, MindSporeRecorder):
    """Makes calls of MindSpore again."""

    judging = MindSporeJudging()
    form = MINDSPORE_FORM
    fixed_call = FixedCall

    def __init__(self, settings: Settings, benchmark: BenchmarkSettings) -> None:
        super().__init__(settings, benchmark)
        self.raising = MindSporeRaising("float32")

    def again(self, name: str, func: Any, args: Any, kwargs: Any) -> MindSporeAgain:
        """Return a call that is about to be made."""
        return MindSporeAgain(self, name, func, args, kwargs)

    def table(self, folder: Path) -> Path:
        """Return the one table of all steps and ranks."""
        return self.settings.dump_path / FILE_NAME
