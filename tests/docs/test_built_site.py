"""The built site in a real browser: its search, and who can read it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.support.browser.chromium import set_system_theme, texts, until
from tests.support.browser.page_checks import serious_violations
from tests.support.browser.serving import served

ROOT = Path(__file__).parents[2]
RESULTS = "[data-md-component=search-result] .md-search-result__item > a"
# The page that answers, by what a user searches for.
ANSWERS = {
    "precision fixture": "your-functions",
    "install": "install",
    "threshold": "standards",
    "false alarm": "reading-a-failure",
    "kernel wrong": "failing-cases",
    "nan loss": "overflow",
    "compare two runs": "comparing",
    "timeout": "containment",
    "allreduce hangs": "communication",
}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Build the site and serve it."""
    built = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", "website/mkdocs.yml", "-d", built]
    subprocess.run(build, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, check=True)
    with served(built) as address:
        yield address


@pytest.mark.parametrize(("query", "page"), ANSWERS.items(), ids=ANSWERS)
def test_search_finds_the_page_that_answers_first(browser: Any, address: str, query: str, page: str) -> None:
    browser.get("about:blank")
    browser.get(f"{address}/?q={quote(query)}")
    until(browser, lambda: bool(texts(browser, RESULTS)))
    found = browser.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map((link) => new URL(link.href).pathname)", RESULTS
    )
    assert found[0] == f"/{page}/", found


def test_an_old_address_leads_to_the_section_that_has_its_text(browser: Any, address: str) -> None:
    browser.get(f"{address}/feed/")
    until(browser, lambda: browser.current_url == f"{address}/bisect/#feeding-modules")
    until(browser, lambda: any("Feeding modules" in text for text in texts(browser, "article h2")))


@pytest.mark.nightly
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("page", ["", "tools/", "user-guide/", "api/hooks/"])
def test_a_page_has_no_serious_fault_of_access(browser: Any, address: str, page: str, scheme: str) -> None:
    set_system_theme(browser, scheme)
    browser.get(f"{address}/{page}")
    # The site would keep the scheme in which it was opened first.
    browser.execute_script("localStorage.clear()")
    browser.refresh()
    assert serious_violations(browser) == []


def test_the_reference_of_the_api_has_a_first_page(browser: Any, address: str) -> None:
    browser.get(f"{address}/api/")
    assert texts(browser, "article h1") != []
