"""Links between pages."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote

import pytest

from pytest_msprobe.reports.pages import page_of_journal, relative_address, write_page
from pytest_msprobe.storage.files import atomic_write
from tests.support.browser.pages import page_data

SAMPLE = "tests.reports.pages.sample_page"


@pytest.mark.parametrize(
    "name",
    [
        "run.html",
        "javascript:alert(1).html",
        "a:b.html",
        "//host.html",
        "50%?#1.html",
        "née & <b>.html",
        "..x/y z.html",
    ],
)
def test_an_address_is_relative_and_leads_to_the_file_whatever_its_name(tmp_path: Path, name: str) -> None:
    page, target = tmp_path / "pages" / "trend.html", tmp_path / "runs" / name.lstrip("/")

    address = relative_address(page, target)

    assert address.startswith("../runs/")
    assert not set(address) & set(':?#<>" ')
    assert Path(os.path.normpath(page.parent / unquote(address))) == target


def test_a_name_that_reads_as_a_scheme_is_none_in_the_same_folder(tmp_path: Path) -> None:
    assert relative_address(tmp_path / "a.html", tmp_path / "javascript:alert(1)") == "javascript%3Aalert%281%29"


def test_the_page_of_a_journal_has_its_name(tmp_path: Path) -> None:
    assert page_of_journal(tmp_path / "run.jsonl") is None
    (tmp_path / "run.html").write_text("")
    assert page_of_journal(tmp_path / "run.jsonl") == tmp_path / "run.html"


def test_a_page_leads_to_the_newest_other_page_of_each_kind_in_its_folder(tmp_path: Path) -> None:
    for age, (name, kind) in enumerate([("new", "Check"), ("old", "Check"), ("steps", "Comparison"), ("own", "Graph")]):
        write_page(tmp_path / f"{name}.html", SAMPLE, {}, title=kind)
        os.utime(tmp_path / f"{name}.html", (1000 - age, 1000 - age))
    (tmp_path / "other.html").write_text("<!doctype html>\n<html><p>of another program")
    (tmp_path / "pipe.html").mkdir()

    with atomic_write(tmp_path / "own.html") as part:
        write_page(part, SAMPLE, {"title": "mine"}, title="Graph")

    links = page_data(tmp_path / "own.html")["links"]
    assert [link[:2] for link in links] == [["Check: new", "new.html"], ["Comparison: steps", "steps.html"]]


def test_a_page_alone_has_no_links(tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", SAMPLE, {"title": "mine"}, title="Graph")
    assert page_data(tmp_path / "page.html") == {"title": "mine"}
