"""The training environment, written by one line at the top of a training script."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.extensions.environment.environment_variables import allowed_variables
from msprobe_hooks.extensions.environment.packages import installed_packages
from msprobe_hooks.extensions.environment.script_texts import arguments_without_secrets, read_texts, without_secrets
from msprobe_hooks.extensions.environment.start_file import Started, rank_file, write_started
from msprobe_hooks.record import Framework, require_framework

if TYPE_CHECKING:
    from msprobe_hooks.extensions.environment.recorder import Start, Training
    from msprobe_hooks.recording.session import Model

#: The name of the command line among the launch scripts.
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
    """Write the environment of this training of PyTorch or MindSpore to ``rank<n>.json`` in a folder.

    Called at the top of the script, it counts random calls until the first forward pass, and notes batch, parameters
    and buffers at each of the first ``steps`` calls of the model. Secrets are left out. Nothing is raised into the
    training: a file that cannot be written is a RuntimeWarning.

    Args:
        path: The folder of the file.
        model: The model, by default the first module or cell with parameters that is called.
        files: Launch scripts and YAML settings, whose text is kept.
        settings: Hyperparameters, as a mapping or a namespace.
        steps: The number of the model's calls that are noted.
        variables: Patterns of environment variables to keep, added to those that docs/environment.md lists.
        framework: ``pytorch`` or ``mindspore``.

    Returns:
        The recorder; its ``follow`` names a model that is made later.

    Raises:
        ConfigError: An argument is wrong.
    """
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise ConfigError("steps", steps, "an integer >= 1")
    require_framework(framework)
    started = without_training(files, settings, variables)
    # The arguments alone: the path of the script is another on another machine.
    started.texts = {**(started.texts or {}), COMMAND_LINE: without_secrets(shlex.join(sys.argv[1:]))}
    from msprobe_hooks.extensions.environment.recorder import Start

    start = Start(Path(path), started, steps, _training(framework))
    start.begin()
    if model is not None:
        start.follow(model)
    return start


def _training(framework: Framework) -> Training:
    if framework == "mindspore":
        from msprobe_hooks.extensions.environment.mindspore_training import MindSporeTraining

        return MindSporeTraining()
    from msprobe_hooks.extensions.environment.torch_training import TorchTraining

    return TorchTraining()


def without_training(files: Sequence[str | Path], settings: Any, variables: Sequence[str]) -> Started:
    """Return the facts that need no training: variables, packages, scripts. Raises ConfigError."""
    return Started(
        variables=allowed_variables(variables),
        packages=installed_packages(),
        texts=read_texts(files) if files else None,
        arguments=None if settings is None else arguments_without_secrets(_mapping(settings)),
    )


def pack(folder: Path, files: Sequence[str | Path]) -> Path:
    """Write the facts that need no training and return the file. Raises ConfigError, StartError."""
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
