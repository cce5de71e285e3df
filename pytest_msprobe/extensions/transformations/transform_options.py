"""The option that names a file of transformations, and what reads them for a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_msprobe.errors import OptionError

if TYPE_CHECKING:
    import pytest

    from pytest_msprobe.extensions.transformations.transformations import Transformations
    from pytest_msprobe.modes.compare.options import CompareOptions

_FLAG = "--msprobe-transform"


@dataclass(frozen=True, slots=True)
class TransformOptions:
    """The file of transformations, None for none."""

    file: Path | None = None

    @property
    def of_calls(self) -> str:
        """The option, empty where it was not passed."""
        return _FLAG if self.file else ""

    def words(self) -> list[str]:
        """Return the command-line words that ask for the same."""
        return [_FLAG, str(self.file)] if self.file else []

    def settings(self) -> Mapping[str, str]:
        """Return what two runs must share for one to go on with the other's journal."""
        from pytest_msprobe.storage.naming import fingerprint

        return {"transform": fingerprint(self.file) if self.file else "none"}


def add_options(group: Any) -> None:
    """Add the option."""
    group.addoption(
        _FLAG,
        metavar="FILE",
        help="YAML file of transformations (rotate, dequantise, permute ...) that turn values of one run before they "
        "are compared",
    )


def passed(config: pytest.Config) -> list[str]:
    """Return the names of the options that were passed."""
    return ["transform"] if config.getoption("msprobe_transform") else []


def read_options(config: pytest.Config) -> TransformOptions:
    """Read and check the option. Raises OptionError where there is no such file."""
    text = config.getoption("msprobe_transform")
    path = config.invocation_params.dir / text if text else None
    if path is not None and not path.is_file():
        raise OptionError(f"{_FLAG} {text!r}: no such file")
    return TransformOptions(path)


def of_file(path: Path | None) -> TransformOptions:
    """Return the options that name this file."""
    return TransformOptions(path)


def read(options: CompareOptions, config: pytest.Config | None) -> Transformations | None:
    """Return the transformations of the file, then those of plugins and ``conftest.py`` files.

    Raises OptionError that names file, line, problem and remedy.
    """
    from pytest_msprobe.extensions.transformations.transform_file import read_transformations
    from pytest_msprobe.extensions.transformations.transformations import Transformations, TransformRegistry

    file, registry = options.part(TransformOptions).file, TransformRegistry()
    if config is not None:
        try:
            config.hook.pytest_msprobe_transform(registry=registry)
        except ValueError as error:
            raise OptionError(f"conftest.py or plugin: {error}") from None
    of_file = read_transformations(file).entries if file is not None else ()
    entries = (*of_file, *registry.entries)
    return Transformations(entries) if entries else None
