"""One journal of all steps of a spool folder."""

from __future__ import annotations

from pathlib import Path

import msgspec

from msprobe_hooks.dump.recording_paths import DUMP_FILE
from pytest_msprobe.journal.journal import Journal, JournalWriter, MoreDumps, read_header


class StepsJournal:
    """Takes over the journals of steps. Raises JournalError for a file that is no such journal, or in use.

    With ``refuses_links`` a link in its place is no such file.
    """

    def __init__(self, path: Path, *, refuses_links: bool = False) -> None:
        self.path = path
        self._refuses_links = refuses_links
        self._writer: JournalWriter | None = None
        if path.exists() and path.stat().st_size:
            read_header(path)

    def add(self, step: Journal, folder: Path) -> None:
        """Append the results of one step, whose dump will lie in ``folder``.

        The header is that of the first step, without its dump: its dumps are added as they come. Raises
        JournalError where the steps before were judged by other settings.
        """
        dump = folder.absolute() / DUMP_FILE
        if self._writer is None:
            self._writer = JournalWriter(
                self.path, msgspec.structs.replace(step.header, dumps={}), refuses_links=self._refuses_links
            )
        self._writer.write(MoreDumps({str(dump): digest for digest in step.header.dumps.values()}))
        for start in step.starts:
            self._writer.write(start)
        root = Path(step.header.root)
        file = dump.relative_to(root) if dump.is_relative_to(root) else dump
        for entry in step.entries.values():
            name = entry.id.partition("::")[2]
            self._writer.write(msgspec.structs.replace(entry, id=f"{file.as_posix()}::{name}"))

    def close(self) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
