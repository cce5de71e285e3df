"""The page of what was found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.support.browser.chromium import open_browser, texts

Show = Callable[..., tuple[int, str]]


@pytest.mark.slow
def test_the_page_shows_the_verdict_the_elements_and_where_they_are(tmp_path: Path, show: Show) -> None:
    x = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "<b>y.npy", x + np.float32(0.5) * (np.arange(64) == 63))
    show(tmp_path / "<b>y.npy", tmp_path / "x.npy", "--html", tmp_path / "page.html")
    with open_browser() as browser:
        browser.get((tmp_path / "page.html").as_uri())
        assert texts(browser, "h2 .fail") == ["fail"]
        assert "<b>y.npy" in texts(browser, "h1")[0]
        assert "[0, 63]" in texts(browser, "td")
        assert "64 elements beyond" in texts(browser, "canvas ~ p")[1]
        assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
