"""What MkDocs asks while it builds the site: where links lead that leave docs/, and addresses of pages that moved."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

# The page, and the section, that has the text of a page that is no longer there.
MOVED = {
    "check-page": "tools#the-page-of-a-check",
    "checkpoints": "environment#checkpoints",
    "ci": "journal#ci-github-gitlab-jenkins",
    "concepts": "user-guide#three-runs-of-each-call",
    "differences": "from-msprobe#differences-in-checks",
    "faq": "reading-a-failure#is-it-a-false-alarm",
    "feed": "bisect#feeding-modules",
    "graph": "tools#graphs",
    "merged-ranks": "many-machines#runs-with-different-numbers-of-ranks",
    "monitor-msprobe": "monitor-reference#trainermon",
    "monitor-two-runs": "monitor#two-runs-side-by-side",
    "operators": "new-accelerator#operators-without-a-model",
    "public-bugs": "verdict-quality#thirty-public-bug-reports",
    "random-results": "screening#random-results",
    "recording-files": "recording#what-a-recording-holds",
    "recording-mindspore": "mindspore#recording",
    "recording-msprobe": "from-msprobe#programs-that-record",
    "silent-corruption": "run-again#in-a-training",
    "static-graphs": "across-frameworks#static-graphs",
    "weight-sync": "environment#weight-sync",
}
_OUTSIDE = re.compile(r"\]\(((?:\.\./)+)(?=[^)])")


def on_page_markdown(markdown: str, config: Any, **_: Any) -> str:
    """Return a page's text with its links to other files of the repository made absolute."""
    return _OUTSIDE.sub(f"]({config.repo_url}/blob/main/", markdown)


def on_post_build(config: Any, **_: Any) -> None:
    """Write a page at each old address that leads to the new one."""
    for old, new in MOVED.items():
        address = "../" + new.replace("#", "/#")
        page = Path(config.site_dir, old, "index.html")
        page.parent.mkdir(exist_ok=True)
        page.write_text(
            f'<!doctype html><html lang="en"><title>Moved</title><link rel="canonical" href="{address}">'
            f'<meta http-equiv="refresh" content="0; url={address}"><a href="{address}">It has moved.</a></html>\n',
            encoding="utf-8",
        )
