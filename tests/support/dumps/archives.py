"""Recorded data that is kept packed."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any


def unpack(packed: Path, folder: Path) -> None:
    """Unpack an archive of this repository below a folder."""
    # Older versions of Python 3.10 have no filters.
    filtering: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(packed) as archive:
        for member in archive.getmembers():
            assert not member.name.startswith(("/", ".."))
            archive.extract(member, folder, set_attrs=False, **filtering)
