from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_msprobe.extensions.hosts.bootstrap import ArrivalError, evict, pin_file, store


def parts_of(content: bytes, size: int = 3) -> Callable[[int], bytes]:
    """Return what reads this content in parts, from an offset on."""
    return lambda offset: content[offset : offset + size]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_put_together_from_its_parts(tmp_path: Path) -> None:
    path, content = tmp_path / "file", b"0123456789"
    store(path, 10, parts_of(content), hashlib.blake2b(content, digest_size=16).hexdigest(), changed=10**18)
    assert path.read_bytes() == content
    assert path.stat().st_mtime_ns == 10**18
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize(
    ("size", "digest", "reported"),
    [
        (11, "", "file: truncated while it was sent, at 10 of 11 bytes"),
        (10, "0" * 32, "file: changed while it was sent"),
    ],
)
def test_a_file_that_is_cut_or_changes_is_not_there(tmp_path: Path, size: int, digest: str, reported: str) -> None:
    with pytest.raises(ArrivalError, match=reported):
        store(tmp_path / "file", size, parts_of(b"0123456789"), digest)
    assert names(tmp_path) == []


def test_what_was_not_used_for_longest_makes_room_and_what_is_kept_stays(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a", "b", "c", "d")]
    for time, path in enumerate(files):
        path.write_bytes(bytes(100))
        os.utime(path, (time, time))
    descriptor = pin_file(files[0])
    os.utime(files[0], (0, 0))
    evict(tmp_path, 250)
    assert names(tmp_path) == ["a", "d"]
    os.close(descriptor)
    evict(tmp_path, 150)
    assert names(tmp_path) == ["d"]
