"""Links from a page to others: relative, so that a folder of pages can be moved and sent."""

from __future__ import annotations

import contextlib
import math
import os
import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from msprobe_hooks.regular_files import open_regular

_HEAD = re.compile(rb'<!doctype html>\n<html lang="en" data-page="([^"]*)">')


class PageLink(NamedTuple):
    """A link in the head of a page: its text, where it leads, and what that is in more words."""

    text: str
    address: str
    title: str = ""


def relative_address(page: Path, target: Path) -> str:
    """Return the address of a file as a page in some file, which need not exist yet, refers to it.

    What a browser would read as a scheme, a host, a query or a fragment is encoded.
    """
    path = os.path.relpath(os.path.realpath(target), os.path.realpath(page.parent))
    return quote(os.fsencode(path.replace(os.sep, "/")), safe="/")


def page_of_journal(journal: Path) -> Path | None:
    """Return the page of a journal's run: the file next to it of the same name, as ``run.html`` of ``run.jsonl``."""
    page = journal.with_suffix(".html")
    return page if page.is_file() and page != journal else None


def pages_in_folder(page: Path) -> list[PageLink]:
    """Return links to the other pages in the folder of a page, of each kind to the newest, by kind."""
    newest: dict[str, tuple[float, Path]] = {}
    for file in page.parent.glob("*.html"):
        with contextlib.suppress(OSError):
            kind = None if file.name == page.name else _kind_of(file)
            if kind is not None:
                newest[kind] = max(newest.get(kind, (-math.inf, file)), (file.stat().st_mtime, file))
    return [
        PageLink(f"{kind}: {file.stem}", relative_address(page, file), "The newest page of this kind in the folder")
        for kind, (_, file) in sorted(newest.items())
    ]


def _kind_of(file: Path) -> str | None:
    """Return the kind of a page that `write_page` wrote, None for any other file. Raises OSError."""
    with open_regular(file) as page:
        found = _HEAD.match(page.read(200))
    return None if found is None else found[1].decode("utf-8", "replace")
