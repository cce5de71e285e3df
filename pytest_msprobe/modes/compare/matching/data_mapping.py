"""Data mapping files: which golden value a value of the target is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pytest_msprobe.errors import OptionError
from pytest_msprobe.modes.compare.yaml_with_lines import read_document

if TYPE_CHECKING:
    from pathlib import Path

    from msprobe_hooks.dump.reader import Dump

_EXAMPLE = "Mint.add.0.forward.input.0: Torch.add.0.forward.input.0"
#: What a file says in place of a golden name where a value has no twin.
NOTHING = "N/A"


def read_mapping(path: Path) -> dict[str, str]:
    """Read a YAML mapping of full value names, the target's to the golden run's or ``N/A``.

    Raises OptionError that names file, line and remedy.
    """
    entries = read_document(path, _EXAMPLE).items(f"not a data mapping; it maps names of values, as in  {_EXAMPLE}")
    return {name: value.text("the name of a golden value, or N/A") for name, _, value in entries}


def record_of(name: str, dump: Dump) -> str | None:
    """Return the record that a value belongs to: the longest beginning of its name that is a record's name."""
    while name:
        if name in dump.records:
            return name
        name = name.rpartition(".")[0]
    return None


def require_known(path: Path, mapping: Mapping[str, str], targets: list[Dump], goldens: list[Dump]) -> None:
    """Raise OptionError where a name belongs to no record of any dump of its side."""
    for side, names, dumps in (
        ("target", mapping, targets),
        ("golden", [name for name in mapping.values() if name != NOTHING], goldens),
    ):
        unknown = [name for name in names if not any(record_of(name, dump) for dump in dumps)]
        if unknown:
            more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
            raise OptionError(
                f"{path}: no record of the {side} has the value {unknown[0]!r}{more}; correct or delete it"
            )
