"""``msprobe_fast_path``: whether judged items take the fast path through pytest or pytest's own."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pytest_msprobe.extensions.fast_path.private_names import PRIVATE_NAMES, missing_names
from pytest_msprobe.run.item_bases import fast_path_key
from pytest_msprobe.run.option_fields import read_fields, setting


@dataclass(frozen=True, slots=True)
class FastPathOptions:
    """The setting of the fast path."""

    is_wanted: bool = setting(
        "msprobe_fast_path",
        "skip the hooks of pytest that have no effect on items of dumps (default: true)",
        kind="bool",
        default=True,
    )


def read_setting(config: pytest.Config) -> None:
    """Keep whether the fast path is on. It is off, with a warning, where pytest lacks a private name that it needs.

    Raises OptionError for a setting that is neither true nor false.
    """
    is_wanted = read_fields(config, FastPathOptions).is_wanted
    missing = missing_names(PRIVATE_NAMES) if is_wanted else []
    if missing:
        text = f"msprobe_fast_path is off: pytest {pytest.__version__} lacks {', '.join(missing)}"
        config.issue_config_time_warning(pytest.PytestConfigWarning(text), stacklevel=2)
    config.stash[fast_path_key] = is_wanted and not missing
