"""Golden checkpoints of other steps, read only where a parameter differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from pytest_msprobe.extensions.checkpoint.formats import main_file, read_checkpoint
from pytest_msprobe.extensions.checkpoint.parameters import Checkpoint, Parameter
from pytest_msprobe.extensions.checkpoint.same_model import paired
from pytest_msprobe.extensions.checkpoint.weight_differences import Earlier
from pytest_msprobe.extensions.checkpoint.weights_folder import INDEX
from pytest_msprobe.extensions.model_names.model_names import ModelNames


class EarlierSteps:
    """The parameters of other steps by the names that those of the target have."""

    def __init__(self, target: Checkpoint, paths: Sequence[Path], names: ModelNames) -> None:
        self._target = target
        self._paths = paths
        self._names = names
        self._read = cache(self._parameters)

    def of(self, name: str) -> Iterator[Earlier]:
        """Yield a parameter of each of the steps, with where it is. Raises CheckpointError."""
        for path in self._paths:
            parameter = self._read(path).get(name)
            if parameter is not None:
                yield _in_words(path), parameter

    def _parameters(self, path: Path) -> Mapping[str, Parameter]:
        found = paired(self._target, read_checkpoint(main_file(path) if path.is_dir() else path), self._names)
        return {name: golden for name, (_, golden) in found.items() if golden is not None}


def _in_words(path: Path) -> str:
    named = path.parents[1] if path.name == INDEX else path
    return "/".join(named.parts[-2:]) if named.name.startswith("step") else named.name
