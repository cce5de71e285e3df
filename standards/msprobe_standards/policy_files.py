"""The policies that come with the package: their names and their files. Reading one is `Policy.load`'s."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent / "policies"


def built_in_policies() -> tuple[str, ...]:
    """Return the names that `Policy.load` knows without a file, in alphabetical order."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


def policy_file(name: str) -> Path:
    """Return the file of a built-in policy."""
    return _FOLDER / f"{name}.yaml"
