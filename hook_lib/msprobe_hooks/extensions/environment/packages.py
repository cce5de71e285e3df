"""Installed packages."""

from __future__ import annotations

import platform
import re
from importlib.metadata import distributions

_SEPARATORS = re.compile(r"[-_.]+")


def installed_packages() -> dict[str, str]:
    """Return the versions of Python and of the installed packages, under their normalized names.

    Of a package that is installed twice, the one counts that is imported.
    """
    versions: dict[str, str] = {}
    for one in distributions():
        # A folder that a removal left behind has no name.
        name = one.metadata["Name"]
        if name:
            versions.setdefault(normalized(name), one.version)
    return {"python": platform.python_version(), **dict(sorted(versions.items()))}


def normalized(name: str) -> str:
    """Return the one spelling of a package's name."""
    return _SEPARATORS.sub("-", name).lower()
