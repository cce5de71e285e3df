"""The option that limits the files sent to other hosts."""

from __future__ import annotations

import pytest

from msprobe_hooks.byte_sizes import parse_size
from pytest_msprobe.errors import OptionError

_DEFAULT = "20GiB"


def add_options(group: pytest.OptionGroup) -> None:
    """Add the option to the group."""
    group.addoption(
        "--msprobe-host-cache",
        metavar="SIZE",
        default=_DEFAULT,
        help=f"maximum size of the files that another host keeps for later runs, such as 500MiB (default: {_DEFAULT})",
    )


def read_host_cache(config: pytest.Config) -> int:
    """Return the bytes that a host may keep. Raises OptionError where the text is not a size."""
    text = config.getoption("msprobe_host_cache")
    size = parse_size(text)
    if size is None:
        raise OptionError(f"--msprobe-host-cache {text!r}: expected a size, such as {_DEFAULT}")
    return size
