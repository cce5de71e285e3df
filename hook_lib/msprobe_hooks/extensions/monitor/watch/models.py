"""The models that a watcher is given."""

from __future__ import annotations

from typing import Any

from msprobe_hooks.errors import ConfigError


def as_models(given: Any, module_class: type) -> list[Any]:
    """Return a model, or a list of them, as a list. Raises ConfigError for anything else."""
    models = [given] if isinstance(given, module_class) else given
    if not isinstance(models, (list, tuple)) or not models or not all(isinstance(one, module_class) for one in models):
        module = module_class.__module__.rpartition(".nn.")[0]
        raise ConfigError("model", type(given).__name__, f"a {module}.nn.{module_class.__name__}, or a list of them")
    return list(models)
