"""Digests by which files are known."""

from __future__ import annotations

import hashlib
from pathlib import Path


def fingerprint(path: Path) -> str:
    """Return a short digest of a file's content."""
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
