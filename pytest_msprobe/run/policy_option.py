"""The policy of a run, and its level."""

from __future__ import annotations

from pathlib import Path

from msprobe_standards import built_in_policies
from pytest_msprobe.errors import OptionError


def find_policy(text: str, folder: Path, option: str = "--msprobe-policy") -> str:
    """Return the name of a built-in policy, or the path of a file, which may be relative to a folder.

    Raises OptionError, which names the option, where there is neither.
    """
    names = built_in_policies()
    if text in names:
        return text
    path = folder / text
    if not path.is_file():
        from pytest_msprobe.messages import not_one_of

        raise OptionError(f"{option} {text!r}: not a file, and {not_one_of(text, names)}")
    return str(path)


def require_level(policy: str, level: str) -> None:
    """Raise OptionError for a level of a policy that has none."""
    from msprobe_standards.policy import declared_levels

    if not declared_levels(policy):
        name = Path(policy).stem if policy.endswith((".yaml", ".yml")) else policy
        raise OptionError(
            f"--msprobe-level {level!r}: policy {name} has no levels",
            remedy="choose one with levels, such as msprobe-26, by --msprobe-policy",
        )
