"""Context that records."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msprobe_hooks.dump.recording_paths import KERNEL_LEVEL
from msprobe_hooks.errors import ConfigError
from msprobe_hooks.installed_extensions import first, implementations
from msprobe_hooks.recording.config import OVERFLOW_TASKS, Settings, settings
from msprobe_hooks.recording.summary import write_line

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from msprobe_hooks.recording.config import Level, RecordOptions
    from msprobe_hooks.recording.session import Model, Session

_log = logging.getLogger("msprobe_hooks")


Framework = Literal["pytorch", "mindspore"]


def require_framework(framework: object) -> None:
    """Raise ConfigError for a framework that is not recorded here."""
    frameworks = ("pytorch", *(name for names in implementations("FRAMEWORKS") for name in names))
    if framework not in frameworks:
        raise ConfigError("framework", framework, ", ".join(frameworks), known=frameworks)


def open_session(settings: Settings, model: Model | None, framework: Framework) -> Session:
    """Return a recording of a framework that has not been started; the framework is imported here.

    Raises ConfigError for an unknown framework, and for a task or level that no installed extension records.
    """
    require_framework(framework)
    if framework == "mindspore" and settings.tensor_files != "pt":
        raise ConfigError("tensor_files", settings.tensor_files, "not supported with MindSpore, which writes .npy")
    session: Session | None = first("open_session", settings, model, framework)
    if session is not None:
        return session
    of_extensions = {
        "level": settings.level in (KERNEL_LEVEL, "compiled"),
        "golden_path": settings.golden_path is not None,
        "task": settings.task in OVERFLOW_TASKS,
    }
    for key in (key for key, is_used in of_extensions.items() if is_used):
        raise ConfigError(key, getattr(settings, key), "not supported by any installed extension")
    from msprobe_hooks.torch.session import TorchSession

    return TorchSession(settings, model)


@contextmanager
def record(
    path: str | Path,
    level: Level | None = None,
    *,
    model: Model | None = None,
    framework: Framework = "pytorch",
    quiet: bool = False,
    **options: Unpack[RecordOptions],
) -> Iterator[Session]:
    """Record what runs inside into ``path/step0/rank``.

    The context's value has ``step()`` to begin the next step, ``stop()`` and ``start()`` to pause, and ``summary``.
    In the end rank 0 writes to stderr, in one line, what was recorded and the command that reads it.

    Args:
        path: The folder of the recording.
        level: What is recorded: ``L0`` modules, ``L1`` API calls, ``mix`` both, ``L2`` kernels, ``aten`` operators
            of ATen, ``compiled`` kernels of compiled graphs, ``debug`` only what ``save`` names. By default L1, and mix
            with a model.
        model: The model, or a list of its parts; levels L0 and mix need it.
        framework: ``pytorch`` or ``mindspore``.
        quiet: Log that line at level INFO instead.
        **options: Named as the keys of ``config.json``: ``task``, ``list``, ``data_mode`` and others.

    Raises:
        ConfigError: An option is wrong.
        RecordingError: The dump cannot be written.
    """
    recorded_level = level or ("L1" if model is None else "mix")
    session = open_session(settings(path, level=recorded_level, **options), model, framework)
    session.start()
    try:
        yield session
    finally:
        summary = session.close()
        if summary.is_empty:
            _log.warning("%s", summary)
        elif quiet or session.recorder.is_abandoned or session.rank():
            _log.info("%s", summary)
        else:
            command = _next_command(session.recorder.settings, has_files=bool(summary.folders))
            write_line("; ".join(filter(None, [str(summary), command])))
    if session.recorder.failure is not None:
        raise session.recorder.failure


def _next_command(settings: Settings, *, has_files: bool) -> str:
    """Return, in words, the command that reads what was recorded; none of a search that found and wrote nothing."""
    path = shlex.quote(str(settings.dump_path))
    if settings.spool_size is not None:
        return f"check it with: pytest-msprobe follow {path}"
    if settings.task in OVERFLOW_TASKS:
        return f"read it with: pytest --msprobe-overflow {path}" if has_files else ""
    if settings.level in ("L1", "mix", "aten") and settings.task != "structure" and settings.summary_mode != "xor":
        return f"check it with: pytest --msprobe-dump {path}"
    return f"compare it with: pytest --msprobe-compare {path} --msprobe-golden ANOTHER_RUN"
