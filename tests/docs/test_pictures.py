"""The pictures of the documentation show the pages that the examples make."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from PIL import Image

from tests.support.browser.pictures import MOST_BYTES, PICTURES, SCHEMES, write_pictures

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
FILES = sorted(f"{picture.name}-{scheme}.png" for picture in PICTURES for scheme in SCHEMES)


def test_each_picture_is_there_and_none_is_left_over() -> None:
    assert sorted(path.name for path in IMAGES.iterdir()) == FILES


def test_the_documentation_shows_each_picture_to_readers_of_its_colour_scheme() -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    shown = re.findall(r"!\[\w[^]]+\]\(images/(\w+)-(\w+)\.png#only-(\w+)\)", pages)
    assert sorted(shown) == sorted((picture.name, scheme, scheme) for picture in PICTURES for scheme in SCHEMES)


@pytest.mark.nightly
@pytest.mark.slow
def test_pictures_made_again_show_something_and_are_small(tmp_path: Path) -> None:
    write_pictures(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == FILES
    assert [name for name in FILES if is_blank(tmp_path / name)] == []
    for folder in (tmp_path, IMAGES):
        assert sum(path.stat().st_size for path in folder.iterdir()) <= MOST_BYTES


def test_a_picture_of_an_empty_page_is_blank(tmp_path: Path) -> None:
    page = Image.new("RGB", (1200, 750), "white")
    page.paste("black", (20, 20, 400, 60))
    page.save(tmp_path / "page.png")
    assert is_blank(tmp_path / "page.png")


def is_blank(path: Path) -> bool:
    """Return whether a band across the picture, below the page's head, has one colour alone."""
    with Image.open(path) as image:
        shown = image.convert("L")
    bands = (shown.crop((0, top, shown.width, top + shown.height // 4)) for top in range(shown.height * 3 // 4))
    return any(low == high for low, high in (band.getextrema() for band in bands))
