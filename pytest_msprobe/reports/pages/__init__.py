"""Pages that need nothing but a browser: what they share, and how one is written.

Importing its modules loads msgspec.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote

import msgspec

from msprobe_hooks.regular_files import open_regular
from pytest_msprobe.installed_extensions import extensions
from pytest_msprobe.results.result import as_json
from pytest_msprobe.storage.files import file_of_part

_HEAD = re.compile(rb'<!doctype html>\n<html lang="en" data-page="([^"]*)">')


#: A command with which the reader of a page goes on from one of its records: its title and its words. A page fills in
#: ``<dump>``, ``<record>``, ``<call>`` (the record of an API's call), ``<saved>`` (the folder of its case) and
#: ``<rerun>`` (the command that runs it again), and leaves out a command for which it lacks one of them.
NextStep: TypeAlias = tuple[str, Sequence[str]]

CHECK: NextStep = ("Check this call on a device", ("pytest", "--msprobe-dump=<dump>::<call>"))

_SAVE: NextStep = ("Save it as a case", ("<rerun>", "--msprobe-save-failures=failures"))


def next_steps() -> list[NextStep]:
    """Return the commands on a record: how it is saved, then what extensions have as ``NEXT_STEPS``."""
    return [_SAVE, *(step for one in extensions().values() for step in getattr(one, "NEXT_STEPS", ()))]


def below(folder: Path, path: Path) -> str:
    """Return a path as seen from a folder, where it lies below that."""
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


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
        match = _HEAD.match(page.read(200))
    return None if match is None else match[1].decode("utf-8", "replace")


def write_page(
    path: Path, package: str, data: Any, *, title: str, parts: tuple[str, ...] = (), links: Sequence[PageLink] = ()
) -> None:
    """Write the page whose ``body.html``, ``page.css`` and scripts lie in the folder ``page`` of a package.

    All pages have the layout's header, panes, tabs and colours; ``parts`` are folders next to it that several pages
    share. The scripts read the data as ``page``; names and messages in it are data and never markup. Those of a folder
    follow each other in the order of their names. The head has ``links``, and links to the other pages in the folder.
    Raises OSError where the disk refuses.
    """
    addresses = {link.address for link in links}
    links = [*links, *(link for link in pages_in_folder(file_of_part(path)) if link.address not in addresses)]
    if isinstance(data, dict) and links:
        data = {**data, "links": links}
    own, layout = resources.files(package) / "page", _SHARED / "layout"
    folders = [layout, *(_SHARED / part for part in parts), own]
    styles = [file for folder in folders for file in _files(folder, ".css")]
    scripts = [file for folder in folders for file in _files(folder, ".js") if file.name != _FIRST]
    text = _text(_SHARED / "page.html").replace("/*TITLE*/", title).replace("/*BODY*/", _text(own / "body.html"))
    text = text.replace("/*STYLE*/", "".join(map(_text, styles))).replace("/*THEME*/", _text(layout / _FIRST))
    text = text.replace("/*SCRIPT*/", "".join(map(_text, scripts)))
    # Last, because a name may read as a placeholder does. Inside of a script element only its end tag and the
    # opening of a comment mean anything.
    text = text.replace("/*DATA*/", _encoded(data).replace("<", "\\u003c"))
    path.write_text(text, encoding="utf-8")


def page_number(value: float | bool | None) -> float | bool | str | None:
    """Return a number as data of a page, the word for what JSON has no number for: ``asNumber`` of the scripts."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _encoded(data: Any) -> str:
    try:
        return msgspec.json.encode(data).decode()
    except UnicodeEncodeError:
        # A name may hold what is no UTF-8, such as half of a surrogate pair.
        return msgspec.json.encode(as_json(data)).decode()


_SHARED = resources.files(__package__)
#: The script that sets the colours, before anything is drawn.
_FIRST = "theme.js"


def _files(folder: Any, ending: str) -> list[Any]:
    return sorted((file for file in folder.iterdir() if file.name.endswith(ending)), key=lambda file: file.name)


def _text(file: Any) -> str:
    text: str = file.read_text(encoding="utf-8")
    return text
