"""Files of rules that a user writes in YAML, with errors that name the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msprobe_hooks.regular_files import read_regular
from pytest_msprobe.errors import UserError


def read_yaml_rules(path: Path, error: type[UserError]) -> Any:
    """Return what a YAML file holds. Raises ``error`` where it cannot be read or is not YAML."""
    from msprobe_standards.decoding import YamlError, decode_yaml

    try:
        return decode_yaml(read_regular(path))
    except OSError as failure:
        raise error(f"cannot be read: {failure.strerror}", file=path) from None
    except YamlError as failure:
        raise error(str(failure), file=path) from None
