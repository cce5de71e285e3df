"""The option that names a file of transformations, and what reads them for a comparison."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_msprobe.modes.compare.options import PartOptions
from pytest_msprobe.run.option_fields import existing_file, option

if TYPE_CHECKING:
    import pytest

    from pytest_msprobe.extensions.transformations.transformations import Transformations
    from pytest_msprobe.modes.compare.options import CompareOptions

_FLAG = "--msprobe-transform"


@dataclass(frozen=True, slots=True)
class TransformOptions(PartOptions):
    """The file of transformations, None for none."""

    transform: Path | None = option(
        _FLAG,
        "YAML file of transformations (rotate, dequantise, permute ...) that turn values of one run before they are "
        "compared",
        metavar="FILE",
        read=existing_file,
    )

    @property
    def of_calls(self) -> str:
        """Return the option, empty where it was not passed."""
        return _FLAG if self.transform else ""


def read(options: CompareOptions, config: pytest.Config | None) -> Transformations | None:
    """Return the transformations of the file, then those of plugins and ``conftest.py`` files.

    Raises OptionError that names file, line, problem and remedy.
    """
    from pytest_msprobe.errors import OptionError
    from pytest_msprobe.extensions.transformations.transformations import (
        Transformations,
        TransformRegistry,
        read_transformations,
    )

    file, registry = options.part(TransformOptions).transform, TransformRegistry()
    if config is not None:
        try:
            config.hook.pytest_msprobe_transform(registry=registry)
        except ValueError as error:
            raise OptionError(f"conftest.py or plugin: {error}") from None
    of_file = read_transformations(file).entries if file is not None else ()
    entries = (*of_file, *registry.entries)
    return Transformations(entries) if entries else None
