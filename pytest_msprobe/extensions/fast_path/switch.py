"""``msprobe_fast_path``: whether judged items take the fast path through pytest or pytest's own."""

from __future__ import annotations

import pytest

from pytest_msprobe.errors import OptionError
from pytest_msprobe.extensions.fast_path.private_names import PRIVATE_NAMES, missing_names
from pytest_msprobe.run.deferred_item import fast_path_key


def read_setting(config: pytest.Config) -> None:
    """Keep whether the fast path is on. It is off, with a warning, where pytest lacks a private name that it needs.

    Raises OptionError for a setting that is neither true nor false.
    """
    try:
        is_wanted = bool(config.getini("msprobe_fast_path"))
    except (TypeError, ValueError, pytest.UsageError) as error:
        raise OptionError(f"msprobe_fast_path: {error}") from None
    missing = missing_names(PRIVATE_NAMES) if is_wanted else []
    if missing:
        text = f"msprobe_fast_path is off: pytest {pytest.__version__} lacks {', '.join(missing)}"
        config.issue_config_time_warning(pytest.PytestConfigWarning(text), stacklevel=2)
    config.stash[fast_path_key] = is_wanted and not missing
