"""Options of ``--msprobe-environment``: two that it shares with other modes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_msprobe.run.shared_options import golden_path, xlsx_folder


@dataclass(frozen=True, slots=True)
class EnvironmentOptions:
    """The launch configuration to compare with, and the folder of msprobe's workbook, None for none."""

    golden: Path
    xlsx: Path | None


environment_key = pytest.StashKey[EnvironmentOptions]()


def read_options(config: pytest.Config) -> EnvironmentOptions:
    """Read and check the options. Raises OptionError that says what is wrong."""
    return EnvironmentOptions(golden_path(config, "--msprobe-environment", "launch configuration"), xlsx_folder(config))
