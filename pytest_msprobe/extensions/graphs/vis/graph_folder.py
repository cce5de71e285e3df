"""A folder of graph files, as TensorBoard is pointed at it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Literal

from pytest_msprobe.errors import FolderError
from pytest_msprobe.extensions.graphs.vis.database import Database, open_database
from pytest_msprobe.extensions.graphs.vis.json_export import write_json_files
from pytest_msprobe.extensions.graphs.vis.model import Manner

Form = Literal["db", "json"]


def require_free(folder: Path) -> None:
    """Raise FolderError where a folder holds graphs already: of several, the viewer shows one database only."""
    if folder.exists() and not folder.is_dir():
        raise FolderError("not a directory", file=folder)
    found = sorted([*folder.glob("*.vis.db"), *folder.glob("*.vis")])
    if found:
        raise FolderError(
            f"holds {found[0].name} already, and the viewer shows one graph file per folder",
            file=folder,
            remedy="pass another folder, or empty this one",
        )


@contextmanager
def open_graphs(folder: Path, manner: Manner, form: Form = "db") -> Iterator[tuple[Database, list[Path]]]:
    """Yield what takes the graphs, and the paths of the files, which are there when the context has ended.

    Raises OSError where the disk refuses.
    """
    kind, time = "compare" if manner.is_comparison else "build", f"{datetime.now():%Y%m%d%H%M%S}"
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    if form == "db":
        path = folder / f"{kind}_{time}.vis.db"
        with open_database(path, manner) as database:
            yield database, paths
            database.finish()
        _protect(path)
        paths.append(path)
        return
    with tempfile.TemporaryDirectory() as scratch, open_database(Path(scratch, "graphs"), manner) as database:
        yield database, paths
        database.finish()
        for path in write_json_files(database, folder, kind, time):
            _protect(path)
            paths.append(path)


def _protect(path: Path) -> None:
    # The viewer refuses a file that others may write to.
    path.chmod(path.stat().st_mode & ~0o022)
