"""Options of ``--msprobe-environment``: two that several kinds of run share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_msprobe.run.shared_options import golden_path, xlsx_folder


@dataclass(frozen=True, slots=True)
class EnvironmentOptions:
    """The start to compare with, and the folder of msprobe's workbook, None for none."""

    golden: Path
    xlsx: Path | None


environment_key = pytest.StashKey[EnvironmentOptions]()


def read_options(config: pytest.Config) -> EnvironmentOptions:
    """Read and check the options. Raises OptionError that says what is wrong."""
    return EnvironmentOptions(golden_path(config, "--msprobe-environment", "start"), xlsx_folder(config))
