"""What MkDocs asks while it builds the site: links that leave docs/ lead to the repository."""

from __future__ import annotations

import re
from typing import Any

_OUTSIDE = re.compile(r"\]\(((?:\.\./)+)(?=[^)])")


def on_page_markdown(markdown: str, config: Any, **_: Any) -> str:
    """Return a page's text with its links to other files of the repository made absolute."""
    return _OUTSIDE.sub(f"]({config.repo_url}/blob/main/", markdown)
