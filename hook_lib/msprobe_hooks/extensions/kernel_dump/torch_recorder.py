"""One call of PyTorch, recorded while CANN's library dumps the kernels that its two directions run."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any, Protocol, cast

from msprobe_hooks.dump.names import backward_of, forward_of
from msprobe_hooks.dump.writer import FILE_MODE, write_error
from msprobe_hooks.errors import ConfigError
from msprobe_hooks.extensions.free_benchmark.argument_changes import NotPerturbedError
from msprobe_hooks.extensions.free_benchmark.torch_recorder import TorchAgain
from msprobe_hooks.recording.call_records import ApiCall
from msprobe_hooks.recording.config import API_NAME, OVERFLOW_TASKS, Settings
from msprobe_hooks.recording.summary import Summary
from msprobe_hooks.torch.recorder import TorchRecorder

_ALLOWED = 'the full name of one record at level L2, as in ["Functional.linear.0.backward"]'


@dataclass(slots=True)
class KernelSummary(Summary):
    """Counts of one recording, the records whose kernels were dumped, and by record why they were not."""

    dumped: list[str] = field(default_factory=list)
    not_dumped: dict[str, str] = field(default_factory=dict)

    def notes(self) -> list[str]:
        """Return of which record the kernels were dumped, and what is to be known of what is missing."""
        # Super without arguments finds another class where a dataclass has slots.
        return [
            *(f"the kernels of {name} were dumped by the device's library" for name in dict.fromkeys(self.dumped)),
            *(f"the kernels of {name} were not dumped: {reason}" for name, reason in self.not_dumped.items()),
            *Summary.notes(self),
        ]


class KernelRecorder(TorchRecorder):
    """Records one call of each step as level L1 does; the library writes its kernels into the step's folder."""

    summary: KernelSummary

    def __init__(self, settings: Settings) -> None:
        """Take the settings. Raises ConfigError where they name no single call, or no library can dump."""
        self.wanted = _wanted_record(settings)
        self._library = _kernel_library()
        self._config = Path()
        super().__init__(_of_one_call(settings, forward_of(self.wanted)))
        self.summary = KernelSummary(awaited=f"call {forward_of(self.wanted)}")

    def api_call(self, name: str, frame: FrameType | None) -> ApiCall:
        """Return what records a call; of the one that is wanted, its kernels are dumped."""
        if name == self.wanted:
            return DumpedForward(self, name, frame)
        if backward_of(name) == self.wanted:
            return DumpedBackward(self, name, frame)
        return super().api_call(name, frame)

    def dumped(self) -> AbstractContextManager[None]:
        """Dump the kernels that run inside."""
        return dumping(self._library, self._config)

    def _open(self, rank: int | None) -> None:
        super()._open(rank)
        if self._files is not None:
            self._config = write_kernel_config(self._files.folder.parent, rank)


class DumpedForward(ApiCall):
    """A call whose kernels are dumped as it is made."""

    __slots__ = ()

    _recorder: KernelRecorder

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Make the call, which is recorded too."""
        recorder = self._recorder
        is_dumped = False

        def dumped(*args: Any, **kwargs: Any) -> Any:
            nonlocal is_dumped
            # The library may fail before the call and after it, and neither is the program's.
            with ExitStack() as stack:
                with recorder.net(f"the kernels of {self.name}"):
                    stack.enter_context(recorder.dumped())
                    is_dumped = True
                result = func(*args, **kwargs)
                with recorder.net(f"the kernels of {self.name}"):
                    stack.close()
            return result

        result = super().run(dumped, args, kwargs)
        if is_dumped:
            recorder.summary.dumped.append(self.name)
        return result


class DumpedBackward(ApiCall):
    """A call that is made again when its gradients arrive, to have the kernels of its backward pass alone."""

    __slots__ = ()

    _recorder: KernelRecorder

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Make the call, which is recorded too, and wait for its gradients."""
        recorder = self._recorder
        again = inputs = None
        try:
            again = TorchAgain(self.name, func, args, kwargs)
            inputs = recorder.inputs((args, kwargs))
        except NotPerturbedError as reason:
            recorder.summary.not_dumped[backward_of(self.name)] = str(reason)
        except Exception as error:
            self._note_error_before(error)
        result = super().run(func, args, kwargs)
        if again is not None and inputs is not None:
            with recorder.net(self.name):
                self._await_gradients(again, inputs, result)
        return result

    def _await_gradients(self, again: TorchAgain, inputs: Any, result: Any) -> None:
        recorder, name, period = self._recorder, backward_of(self.name), self._recorder.period
        again.after_call()
        outputs = recorder.differentiated(result)
        if again.writes or again.draws:
            recorder.summary.not_dumped[name] = "it overwrites its inputs or draws random numbers"
        elif not outputs:
            recorder.summary.not_dumped[name] = "none of its results requires a gradient"
        else:
            recorder.watch(outputs, inputs, lambda arriving, _: self._dump(again, name, period, arriving), name)

    def _dump(self, again: TorchAgain, name: str, period: int, arriving: list[Any]) -> None:
        recorder = self._recorder
        if not recorder.accepts_gradients(period):
            return
        try:
            again.gradients("no_change", arriving, around=recorder.dumped())
            recorder.summary.dumped.append(name)
        except Exception as error:
            recorder.note_error(name, error)


class KernelLibrary(Protocol):
    """Part of ``torch_npu.npu`` that is used."""

    def synchronize(self) -> None:
        """Wait for what was started."""

    def init_dump(self) -> None:
        """Begin to dump."""

    def set_dump(self, config: str) -> None:
        """Set what to dump, and where."""

    def finalize_dump(self) -> None:
        """Dump no more."""


def _kernel_library() -> KernelLibrary:
    """Return the library of this machine.

    Raises ConfigError where torch_npu is not there, cannot be loaded, of which it names the missing library, or is too
    old to dump.
    """
    try:
        found: Any = importlib.import_module("torch_npu").npu
    except ImportError as error:
        raise ConfigError("level", "L2", f"other levels on this machine, as L2 needs torch_npu: {error}") from None
    for name in ("init_dump", "set_dump", "finalize_dump"):
        if not hasattr(found, name):
            raise ConfigError("level", "L2", f"other levels with this torch_npu, as it has no torch_npu.npu.{name}")
    return cast("KernelLibrary", found)


@contextmanager
def dumping(library: KernelLibrary, config: Path) -> Iterator[None]:
    """Dump the kernels that run inside, and none that was started before."""
    library.synchronize()
    library.init_dump()
    try:
        library.set_dump(str(config))
        library.synchronize()
        yield
        library.synchronize()
    finally:
        library.finalize_dump()


def _wanted_record(settings: Settings) -> str:
    """Return the name of the record whose kernels are to be dumped. Raises ConfigError where it is not one."""
    if settings.task in OVERFLOW_TASKS or settings.task == "structure":
        raise ConfigError("task", settings.task, "statistics or tensor at level L2")
    if settings.scope:
        raise ConfigError("scope", list(settings.scope), "not supported at level L2; name the call in list")
    if len(settings.list) != 1 or not API_NAME.fullmatch(settings.list[0]):
        raise ConfigError("list", list(settings.list), _ALLOWED)
    return settings.list[0]


def _of_one_call(settings: Settings, forward: str) -> Settings:
    """Return the settings of the recording at level L1 that accompanies it."""
    return replace(settings, level="L1", list=(forward, backward_of(forward)))


def write_kernel_config(folder: Path, rank: int | None) -> Path:
    """Write the configuration that ``torch_npu.npu.set_dump`` takes, byte for byte as msprobe; return where it is.

    Raises RecordingError where it cannot be written.
    """
    path = folder / ("kernel_config.json" if rank is None else f"kernel_config_{rank}.json")
    settings = {"dump_list": [], "dump_path": str(folder), "dump_mode": "all", "dump_op_switch": "on"}
    try:
        path.touch(FILE_MODE)
        path.write_text(json.dumps({"dump": settings}, indent=4))
    except OSError as error:
        raise write_error(path, "written", error) from None
    return path
