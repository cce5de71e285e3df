"""Notes on a monitored run in the page of its tests."""

from __future__ import annotations

from pathlib import Path

from pytest_msprobe.commands.main import main
from pytest_msprobe.journal import Entry, Header
from tests.support.browser.pages import page_data
from tests.support.journals import make_judged, write_journal


def test_a_monitored_run_leads_to_the_page_of_its_curves(tmp_path: Path) -> None:
    files = {f"/data/my runs/a/{name}_0-99.csv": "1" for name in ("actv", "grad_reduced")}
    header = Header(dumps=files, settings={"mode": "monitor"}, root="/data")
    entry = Entry("my runs/a/actv_0-99.csv::actv/.input/norm", "pass", make_judged("actv/.input/norm", "pass"))
    journal, page = write_journal(tmp_path / "run.jsonl", entry, header=header), tmp_path / "run.html"
    assert main(["report", str(journal), "--html", str(page)]) == 0
    (note,) = page_data(page)["runs"][0]["notes"]
    assert note.endswith("pytest '--msprobe-monitor=/data/my runs/a' --msprobe-html=curves.html")
