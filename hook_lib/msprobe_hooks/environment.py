"""What a training is started with, written by one line at the top of its script."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.instruments.environment.environment_variables import allowed_variables
from msprobe_hooks.instruments.environment.packages import installed_packages
from msprobe_hooks.instruments.environment.script_texts import arguments_without_secrets, read_texts, without_secrets
from msprobe_hooks.instruments.environment.start_file import Started, rank_file, write_started
from msprobe_hooks.record import Framework, require_framework

if TYPE_CHECKING:
    from msprobe_hooks.instruments.environment.recorder import Start, Training
    from msprobe_hooks.recording.session import Model

#: Under this name the command line of the training stands among its launch scripts.
COMMAND_LINE = "command line"


def write_environment(
    path: str | Path,
    model: Model | None = None,
    *,
    files: Sequence[str | Path] = (),
    settings: Any = None,
    steps: int = 2,
    variables: Sequence[str] = (),
    framework: Framework = "pytorch",
) -> Start:
    """Write what this training of PyTorch or MindSpore is started with to ``rank<n>.json`` in a folder.

    Called at the top of the script, it counts random calls until the first forward pass, notes at each of the first
    ``steps`` calls of the model its batch, parameters and buffers, and is gone. The model is ``model``, or what
    ``follow`` of the returned object names, else the first module or cell with parameters that is called. ``files`` are
    launch scripts and YAML settings, ``settings`` a mapping or a namespace of hyperparameters, ``variables`` patterns
    of environment variables beside those that docs/environment.md lists. Secrets are left out.

    Raises ConfigError for a wrong argument; in the training nothing is raised, a file that cannot be written is a
    RuntimeWarning.
    """
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise ConfigError("steps", steps, "an int of at least 1")
    require_framework(framework)
    started = without_training(files, settings, variables)
    # The arguments alone: the path of the script is another on another machine.
    started.texts = {**(started.texts or {}), COMMAND_LINE: without_secrets(shlex.join(sys.argv[1:]))}
    from msprobe_hooks.instruments.environment.recorder import Start

    start = Start(Path(path), started, steps, _training(framework))
    start.begin()
    if model is not None:
        start.follow(model)
    return start


def _training(framework: Framework) -> Training:
    if framework == "mindspore":
        from msprobe_hooks.instruments.environment.mindspore_training import MindSporeTraining

        return MindSporeTraining()
    from msprobe_hooks.instruments.environment.torch_training import TorchTraining

    return TorchTraining()


def without_training(files: Sequence[str | Path], settings: Any, variables: Sequence[str]) -> Started:
    """Return what can be told without a training: variables, packages, scripts. Raises ConfigError."""
    return Started(
        variables=allowed_variables(variables),
        packages=installed_packages(),
        texts=read_texts(files) if files else None,
        arguments=None if settings is None else arguments_without_secrets(_mapping(settings)),
    )


def pack(folder: Path, files: Sequence[str | Path]) -> Path:
    """Write what can be told without a training and return the file. Raises ConfigError, StartError."""
    path = rank_file(folder, int(os.environ["RANK"]) if os.environ.get("RANK", "").isdecimal() else 0)
    write_started(path, without_training(files, None, ()))
    return path


def _mapping(settings: Any) -> Mapping[str, Any]:
    if isinstance(settings, Mapping):
        return settings
    try:
        held: dict[str, Any] = vars(settings)
    except TypeError:
        raise ConfigError("settings", settings, "a mapping or a namespace") from None
    return held
