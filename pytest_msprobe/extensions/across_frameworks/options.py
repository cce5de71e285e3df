"""The options that map names of calls and layers of one run to those of the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_msprobe.errors import OptionError
from pytest_msprobe.storage.naming import fingerprint

#: The value of an option without a file.
BUILT_IN = "built-in"
_NAMES = ("api_mapping", "cell_mapping", "layer_mapping")


@dataclass(frozen=True, slots=True)
class AcrossOptions:
    """The mapping files; ``wants_apis`` and ``wants_cells``: whether one was asked for, with a file or not."""

    apis: Path | None = None
    cells: Path | None = None
    layers: Path | None = None
    wants_apis: bool = False
    wants_cells: bool = False

    @property
    def of_calls(self) -> str:
        """The first option that was passed; empty where none was."""
        wanted = {"api": self.wants_apis, "cell": self.wants_cells, "layer": self.layers}
        return next((f"--msprobe-{name}-mapping" for name, value in wanted.items() if value), "")

    def words(self) -> list[str]:
        """Return the command-line words that ask for the same."""
        words: list[str] = []
        for name, path, wanted in (
            ("api", self.apis, self.wants_apis),
            ("cell", self.cells, self.wants_cells),
            ("layer", self.layers, False),
        ):
            if path or wanted:
                # With its file in one word: a file of its own word could be a test's.
                words.append(f"--msprobe-{name}-mapping" + (f"={path}" if path else ""))
        return words

    def settings(self) -> Mapping[str, str]:
        """Return what two runs must share for one to go on with the other's journal."""
        files = {"api_mapping": self.apis, "cell_mapping": self.cells, "layer_mapping": self.layers}
        return {name: fingerprint(path) for name, path in files.items() if path}


def add_options(group: Any) -> None:
    """Add the options."""
    add = group.addoption
    add(
        "--msprobe-api-mapping",
        metavar="FILE",
        nargs="?",
        const=BUILT_IN,
        help="YAML file that maps MindSpore's APIs to PyTorch's, in addition to the built-in table (default: the "
        "table, for runs of both frameworks)",
    )
    add(
        "--msprobe-cell-mapping",
        metavar="FILE",
        nargs="?",
        const=BUILT_IN,
        help="YAML file that maps names of cells or modules of the target run to those of the golden run (default: "
        "Cell is Module, for runs of both frameworks)",
    )
    add(
        "--msprobe-layer-mapping",
        metavar="FILE",
        help="YAML file of layers that have other names in the golden run; the rest follows from the structure",
    )


def passed(config: pytest.Config) -> list[str]:
    """Return the names of the options that were passed."""
    return [name for name in _NAMES if config.getoption(f"msprobe_{name}") is not None]


def read_options(config: pytest.Config) -> AcrossOptions:
    """Read and check the options. Raises OptionError that says what is wrong."""
    files: dict[str, Path | None] = {}
    for name in _NAMES:
        text = config.getoption(f"msprobe_{name}")
        path = None if text in (None, BUILT_IN) else config.invocation_params.dir / text
        if path is not None and not path.is_file():
            raise OptionError(f"--msprobe-{name.replace('_', '-')} {text!r}: no such file")
        files[name] = path
    wanted = passed(config)
    return AcrossOptions(
        files["api_mapping"],
        files["cell_mapping"],
        files["layer_mapping"],
        wants_apis="api_mapping" in wanted,
        wants_cells="cell_mapping" in wanted,
    )
