"""Options of ``--msprobe-environment``: two that it shares with other modes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_msprobe.run.mode import DeclaredMode
from pytest_msprobe.run.shared_options import GOLDEN, HTML, XLSX, golden_path, xlsx_folder


@dataclass(frozen=True, slots=True)
class EnvironmentOptions:
    """The launch configuration to compare with, and the folder of msprobe's workbook, None for none."""

    golden: Path
    xlsx: Path | None


environment_key = pytest.StashKey[EnvironmentOptions]()


def read_options(config: pytest.Config) -> EnvironmentOptions:
    """Read and check the options. Raises OptionError that says what is wrong."""
    return EnvironmentOptions(golden_path(config, "--msprobe-environment", "launch configuration"), xlsx_folder(config))


ENVIRONMENT = DeclaredMode(
    name="environment",
    flag="--msprobe-environment",
    flag_help=(
        "compare this launch configuration with --msprobe-golden: a folder that msprobe_hooks.write_environment wrote, "
        "one rank's file, or msprobe's config_check_pack.zip"
    ),
    home="pytest_msprobe.extensions.environment.mode:EnvironmentMode",
    shared_options=(GOLDEN, XLSX, HTML),
)
