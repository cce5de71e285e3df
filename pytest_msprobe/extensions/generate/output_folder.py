"""The output folder: what is written there, and never over anything that was not written here.

``generated.json`` lists each file with a digest of what was written. A file that is not listed, or that has been
changed since, is somebody's own.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from msprobe_hooks.json_decoding import JsonError, decode_json
from msprobe_hooks.regular_files import open_regular, read_regular
from pytest_msprobe.errors import FolderError
from pytest_msprobe.storage.files import atomic_write

MANIFEST = "generated.json"

#: What a file holds: its text, its bytes, what makes them when they are to be written, or the file it is a copy of.
Content = str | bytes | Path | Callable[[], bytes]


class _Manifest(msgspec.Struct):
    generated_by: str
    files: dict[str, str]


_AUTHOR = "pytest-msprobe generate"


def write_files(folder: Path, files: Mapping[str, Content]) -> list[str]:
    """Write files by their relative paths, and return the files of earlier runs that stay next to them.

    Nothing is written unless everything may be. Raises FolderError.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        listed = _read_manifest(folder)
        for name, content in files.items():
            _require_own(folder, name, content, listed.get(name))
        for name, content in files.items():
            listed[name] = _write(folder / name, content)
        manifest = _Manifest(_AUTHOR, dict(sorted(listed.items())))
        _write(folder / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=1).decode() + "\n")
    except OSError as error:
        place = error.filename or folder
        raise FolderError(
            f"cannot be written: {error.strerror}", file=place, remedy="make it writable, or pass another folder"
        ) from None
    return [name for name in sorted(listed) if name not in files and (folder / name).exists()]


def _read_manifest(folder: Path) -> dict[str, str]:
    path = folder / MANIFEST
    if not os.path.lexists(path):
        return {}
    try:
        manifest = decode_json(read_regular(path), _Manifest)
    except JsonError:
        manifest = None
    if path.is_symlink() or manifest is None or manifest.generated_by != _AUTHOR:
        raise FolderError(f"not written by {_AUTHOR}", file=path, remedy="pass another folder")
    return manifest.files


def _require_own(folder: Path, name: str, content: Content, digest: str | None) -> None:
    path = folder / name
    if not path.parent.resolve().is_relative_to(folder.resolve()):
        raise FolderError(f"leads out of {folder}", file=path.parent, remedy="remove this link or pass another folder")
    if not os.path.lexists(path):
        return
    if path.is_symlink() or not path.is_file():
        raise FolderError("not a regular file", file=path, remedy="remove it or pass another folder")
    present = _digest(path)
    if present not in (digest, _digest(content)):
        problem = "not written by" if digest is None else "changed since it was written by"
        raise FolderError(f"{problem} {_AUTHOR}", file=path, remedy="move it or pass another folder")


def _digest(content: Content) -> str:
    digest = hashlib.blake2b(digest_size=16)
    if isinstance(content, Path):
        with open_regular(content) as file:
            while block := file.read(2**20):
                digest.update(block)
    else:
        digest.update(_made(content))
    return digest.hexdigest()


def _made(content: str | bytes | Callable[[], bytes]) -> bytes:
    if isinstance(content, str):
        return content.encode()
    return content if isinstance(content, bytes) else content()


def _write(path: Path, content: Content) -> str:
    """Write one file, whole or not at all, and return its digest."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with atomic_write(path) as part:
            if isinstance(content, Path):
                shutil.copyfile(content, part)
            else:
                part.write_bytes(_made(content))
    except OSError as error:
        error.filename = str(path)
        raise
    return _digest(path)
