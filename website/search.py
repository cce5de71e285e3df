"""What MkDocs asks while it builds the site: which pages a search shows first."""

from __future__ import annotations

from typing import Any

# By how much a page's score is multiplied, by how its path begins: tasks come before what developers decided.
BOOSTS = {
    "adr/": 0.001,
    "api/": 0.5,
    "command-line.md": 0.1,
    "failing-cases.md": 2,
}


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Set the boost of a page, and return its text as it is."""
    for path, boost in BOOSTS.items():
        if page.file.src_uri.startswith(path):
            page.meta["search"] = {"boost": boost}
    return markdown
