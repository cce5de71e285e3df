"""What holds of every page at every width and in both themes, looked at in a real browser."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.support.browser.every_page import PAGES, VIEWS, EveryPage
from tests.support.browser.page_checks import serious_violations, wider_than_the_window
from tests.support.browser.pictures import prepare
from tests.support.nightly import nightly_but

pytestmark = pytest.mark.slow

# Axe reads the whole page: the narrowest and a usual screen say what it can say.
READ_BY_AXE = {360, 1400}
FEW_VIEWS = ((360, "dark"), (1400, "light"))
# One whose table is scrolled, one with a chart, and both kinds of drawings.
EACH_TIME = [page for page in PAGES if page.name in {"check", "comparison", "communication", "graph"}]
THEME = "return document.documentElement.dataset.theme"


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    prepare(folder)
    return folder


@pytest.mark.parametrize(
    "views",
    [pytest.param(FEW_VIEWS, id="a phone and a screen"), pytest.param(VIEWS, id="all", marks=pytest.mark.nightly)],
)
@pytest.mark.parametrize("page", nightly_but(PAGES, *EACH_TIME), ids=lambda page: page.name)
def test_a_page_can_be_read_at_every_width_in_both_themes(
    browser: Any, work: Path, page: EveryPage, views: tuple[tuple[int, str], ...]
) -> None:
    address = written(page, work).as_uri()
    faults = []
    for width, theme in page.views(browser, address, views):
        wide = wider_than_the_window(browser)
        violations = serious_violations(browser) if width in READ_BY_AXE else []
        errors = [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
        errors += [] if browser.execute_script(THEME) == theme else ["in the other theme"]
        blank = [] if colours(browser.get_screenshot_as_png()) > 8 else ["blank"]
        faults += [(width, theme, fault) for fault in (*wide, *violations, *errors, *blank)]
    assert faults == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_asks_for_nothing_but_itself(browser: Any, work: Path, page: EveryPage) -> None:
    browser.get(written(page, work).as_uri())
    assert browser.execute_script("return performance.getEntriesByType('resource').map((one) => one.name)") == []
    assert browser.execute_script("return [...document.querySelectorAll('main, header')].length") == 2


def written(page: EveryPage, work: Path) -> Path:
    """Return the page, which the first test that looks at it writes."""
    path = work / f"{page.name}.html"
    return path if path.exists() else page.write(work)


def colours(picture: bytes) -> int:
    """Return how many colours a picture has."""
    found = Image.open(BytesIO(picture)).convert("RGB").getcolors(2**24)
    return len(found or ())
