"""Digests by which files are known."""

from __future__ import annotations

import hashlib
from pathlib import Path

from msprobe_hooks.regular_files import read_regular


def fingerprint(path: Path) -> str:
    """Return a short digest of a file's content."""
    return hashlib.blake2b(read_regular(path), digest_size=16).hexdigest()
