"""The page of what was found."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.support.browser.chromium import open_browser, texts
from tests.support.browser.pages import page_data

Show = Callable[..., tuple[int, str]]


@pytest.mark.slow
def test_the_page_shows_the_verdict_the_elements_and_where_they_are(tmp_path: Path, show: Show) -> None:
    x = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "<b>y.npy", x + np.float32(0.5) * (np.arange(64) == 63))
    show(tmp_path / "<b>y.npy", tmp_path / "x.npy", "--html", tmp_path / "page.html")
    with open_browser() as browser:
        browser.get((tmp_path / "page.html").as_uri())
        assert texts(browser, "#details .fail") == ["fail"]
        assert texts(browser, "h1") == ["1 of 1 tensor differs"]
        assert "<b>y.npy" in texts(browser, "#about")[0]
        (again,) = texts(browser, ".command pre")
        assert shlex.split(again) == ["pytest-msprobe", "show", str(tmp_path / "<b>y.npy"), str(tmp_path / "x.npy")]
        assert "[0, 63]" in texts(browser, "td")
        assert texts(browser, ".map .caption")[0].startswith("64 elements of 4096 beyond")
        assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


@pytest.mark.slow
def test_many_tensors_are_a_table_of_which_the_worst_is_open(tmp_path: Path, show: Show) -> None:
    one = {name: np.arange(4, dtype=np.float32) for name in ("a", "b", "c")}
    save_file(one, tmp_path / "first.safetensors")
    save_file(one | {"b": np.full(4, 2, np.float32)}, tmp_path / "second.safetensors")
    show(tmp_path / "first.safetensors", tmp_path / "second.safetensors", "--html", tmp_path / "two.html")
    show(tmp_path / "first.safetensors", "--html", tmp_path / "one.html")
    with open_browser() as browser:
        browser.get((tmp_path / "two.html").as_uri())
        assert texts(browser, "#scroller td:nth-child(2)") == ["b", "a", "c"]
        assert texts(browser, "#details h2") == ["b"]
        browser.find_element("css selector", "#outcomes .pass").click()
        assert texts(browser, "#count") == ["1 of 3 tensors"]
        browser.get((tmp_path / "one.html").as_uri() + "#c")
        assert texts(browser, "#details h2") == ["c"]
        assert texts(browser, "tr.chosen td") == ["c", "float32", "4", "3", "0", "1.5", "3.741657"]
        assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_the_title_counts_what_differs_and_names_the_first(tmp_path: Path, show: Show) -> None:
    one = {name: np.ones(4, np.float32) for name in ("a", "b", "c")}
    save_file(one, tmp_path / "first.safetensors")
    save_file(one | {"b": np.full(4, 2, np.float32)}, tmp_path / "second.safetensors")
    show(tmp_path / "first.safetensors", tmp_path / "second.safetensors", "--html", tmp_path / "page.html")
    assert page_data(tmp_path / "page.html")["title"] == "1 of 3 tensors differs, first b"
    show(tmp_path / "first.safetensors", tmp_path / "first.safetensors", "--html", tmp_path / "page.html")
    assert page_data(tmp_path / "page.html")["title"] == "none of 3 tensors differs"
