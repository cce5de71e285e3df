"""Context that gives a program's modules recorded inputs, and msprobe's key ``load`` that requests it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.extensions.feed.feeder import Fed, Feeder
from msprobe_hooks.extensions.feed.recorded_inputs import ModuleNames
from msprobe_hooks.record import Framework, require_framework
from msprobe_hooks.recording import validators

if TYPE_CHECKING:
    from msprobe_hooks.recording.session import Model, Session

_KEYS = ("path", "modules", "step", "rank", "dump_after_load")


@dataclass(frozen=True, slots=True)
class Load:
    """Request of ``load``: inputs for ``modules`` from ``path``, in some steps and ranks, None for all.

    Where ``is_recorded`` is false, the calls are fed and nothing is recorded.
    """

    path: Path
    modules: tuple[str, ...]
    steps: frozenset[int] | None
    ranks: frozenset[int] | None
    is_recorded: bool


def read_load(value: Any) -> Load | None:
    """Check the value of ``load``; None where it is absent or empty. Raises ConfigError."""
    if not value:
        return None
    given = validators.object_with(_KEYS)("load", value)
    for key in ("path", "modules"):
        if not given.get(key):
            raise ConfigError(f"load.{key}", given.get(key), "the folder of a recording" if key == "path" else "names")
    return Load(
        validators.path("load.path", given["path"]),
        validators.names("load.modules", given["modules"]),
        validators.numbers("load.step", given.get("step") or []),
        validators.numbers("load.rank", given.get("rank") or []),
        validators.flag("load.dump_after_load", given.get("dump_after_load", False)),
    )


_log = logging.getLogger("msprobe_hooks")


@contextmanager
def feed(
    path: str | Path,
    modules: Sequence[str],
    *,
    model: Model | None = None,
    framework: Framework = "pytorch",
    step: int | None = None,
    rank: int | None = None,
) -> Iterator[Fed]:
    """Feed modules of the program inside the inputs that a dump recorded for them.

    What such a module returns is then its own work: no error that arose before it reaches it. The n-th call of a module
    in a step gets the inputs of its n-th recorded call, a call that activation checkpointing makes again those of the
    first time. Tensors are fed, with the dtype and on the device of the program's; anything else stays the program's
    own. A tensor that requires a gradient passes it on to the one that it replaces. The context's value counts the fed
    calls and has ``step()`` to begin the next step where no recording runs; a warning at the end names what was not
    fed.

    Args:
        path: A recording of level L0 or mix with task tensor: its folder, that of a step or rank, or a ``dump.json``.
        modules: Names of modules: a path (``layers.3``), ``*`` for anything (``layers.3.*``), or as a record is called
            (``Module.layers.3.Block``, ``Module.layers.3.Block.forward.0`` for one call).
        model: The model, or a list of its parts. Without it, it is that of the recording that runs, or the outermost
            module that runs; MindSpore needs it.
        framework: ``pytorch`` or ``mindspore``.
        step: The step of the recording whose inputs are fed, by default that of the recording that runs.
        rank: The rank of the recording whose inputs are fed, by default that of the process.

    Raises:
        ConfigError: An argument is wrong, or no call of the named modules was recorded.
        DumpError: The recording cannot be used: it has no values, or a file is damaged.
        FeedError: While the program runs: a recorded tensor has another shape, or another kind of dtype.
    """
    for key, value in (("step", step), ("rank", rank)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise ConfigError(key, value, "an integer >= 0")
    from msprobe_hooks.recording.session import observing

    feeder = open_feeder(framework, validators.path("path", path), modules, model=model, step=step, rank=rank)
    try:
        with observing([feeder]):
            yield feeder.fed
    finally:
        _log.log(logging.WARNING if feeder.fed.is_partial else logging.INFO, "%s", feeder.fed)


def open_feeder(
    framework: Framework, path: Path, modules: Sequence[str], *, model: Model | None, **options: Any
) -> Feeder:
    """Return what feeds modules, which has not begun; the framework is imported here. Raises as ``feed`` does."""
    require_framework(framework)
    names = ModuleNames(modules)
    if framework == "mindspore":
        from msprobe_hooks.extensions.feed.mindspore_feeder import MindSporeFeeder

        return MindSporeFeeder(path, names, model, **options)
    from msprobe_hooks.extensions.feed.torch_feeder import TorchFeeder

    return TorchFeeder(path, names, model, **options)


class FedSteps:
    """Feeds modules between ``start`` and ``stop`` of a PrecisionDebugger, as the key ``load`` of its file says.

    The step is the debugger's; the inputs are those that the same step and rank recorded. Raises as ``feed`` does.
    """

    def __init__(self, load: Load, session: Session, framework: Framework) -> None:
        self.is_recorded = load.is_recorded
        self._session = session
        self._feeder = open_feeder(
            framework,
            load.path,
            load.modules,
            model=session.model,
            steps=load.steps,
            ranks=load.ranks,
            step_that_runs=lambda: session.recorder.step,
        )
        self._is_on = False

    def start(self, model: Model | None) -> None:
        """Begin to feed; ``model`` is what holds the modules, by default the one that is known."""
        if not self._is_on:
            self._feeder.model = model if model is not None else self._feeder.model
            self._feeder.begin()
            self._is_on = True

    def stop(self) -> None:
        """Pause; calls are counted on in the same step."""
        if self._is_on:
            self._is_on = False
            self._feeder.end()

    def close(self) -> str:
        """Stop, and return what came of it."""
        self.stop()
        return str(self._feeder.fed)
