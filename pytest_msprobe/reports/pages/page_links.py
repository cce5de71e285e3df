"""Links from a page to others: relative, so that a folder of pages can be moved and sent."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote


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
