"""What MkDocs asks while it builds the site: that readers of all kinds can read it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

_SEARCH = '<div class="md-search" data-md-component="search" role="dialog"'
_STYLE = Path(__file__).with_name("contrast.css")


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Return the site's files with the style sheet of ``extra_css``."""
    files.append(File.generated(config, _STYLE.name, abs_src_path=str(_STYLE)))
    return files


def on_post_page(output: str, **_: Any) -> str:
    """Return a page whose search has a name for screen readers."""
    return output.replace(_SEARCH, f'{_SEARCH} aria-label="Search"')
