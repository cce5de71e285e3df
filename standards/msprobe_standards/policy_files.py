"""The policies that come with the package, and rules that were measured: their names and their files.

Reading one is `Policy.load`'s.
"""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent / "policies"


def built_in_policies() -> tuple[str, ...]:
    """Return the names of the built-in policies, in alphabetical order."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


def measured_rules() -> tuple[str, ...]:
    """Return the names of the lists of rules that a policy may have in place of a rule, as ``{measured: name}``."""
    return tuple(sorted(path.stem for path in (_FOLDER / "measured").glob("*.yaml")))


def measured_file(name: str) -> Path:
    """Return the file of such a list."""
    return _FOLDER / "measured" / f"{name}.yaml"


def policy_file(name: str) -> Path:
    """Return the file of a built-in policy."""
    return _FOLDER / f"{name}.yaml"
