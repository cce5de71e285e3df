"""The setting that limits the files sent to other hosts."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pytest_msprobe.errors import OptionError
from pytest_msprobe.run.option_fields import read_field, setting

_DEFAULT, _BYTES = "20GiB", 20 << 30


def _size(config: pytest.Config, name: str, text: str) -> int:
    from msprobe_hooks.messages import parse_size

    size = parse_size(text)
    if size is None:
        raise OptionError(f"{name} {text!r}: expected a size, such as {_DEFAULT}")
    return size


@dataclass(frozen=True, slots=True)
class HostOptions:
    """Number of bytes that another host may keep."""

    cache: int = setting(
        "msprobe_host_cache",
        f"maximum size of the files that another host keeps for later runs, such as 500MiB (default: {_DEFAULT})",
        read=_size,
        default=_BYTES,
    )


def read_host_cache(config: pytest.Config) -> int:
    """Return the bytes that a host may keep. Raises OptionError where the text is not a size."""
    size: int = read_field(config, HostOptions, "cache")
    return size
