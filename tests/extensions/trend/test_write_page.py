"""Pages are written whatever a name holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_msprobe.commands.main import main
from pytest_msprobe.extensions.trend.margins import make_trend
from pytest_msprobe.extensions.trend.trend_report import write_trend_page
from pytest_msprobe.journal import read_journal
from pytest_msprobe.journal.shards import Part, whole_runs
from tests.support.browser.pages import page_data
from tests.support.journals import make_judged, write_journal


@pytest.mark.parametrize(
    ("name", "written"),
    [("\ud800", "\\\\ud800"), ("</script>", "\\u003c/script>"), ("/*STYLE*/", "/*STYLE*/"), ("naïve", "naïve")],
)
def test_a_name_is_data_of_the_page(tmp_path: Path, name: str, written: str) -> None:
    paths = [write_journal(tmp_path / file, make_judged(name, "pass")) for file in ("a", "b")]
    write_trend_page(tmp_path / "page.html", make_trend(whole_runs([Part(path, read_journal(path)) for path in paths])))
    assert f'"{written}"' in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_the_trend_leads_to_the_page_of_each_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "runs").mkdir()
    journals = [
        str(write_journal(tmp_path / "runs" / f"{name}.jsonl", make_judged("Torch.add.0.forward", "pass")))
        for name in ("first", "second")
    ]
    assert main(["report", journals[1], "--html", journals[1].replace("jsonl", "html")]) == 0

    assert main(["report", *journals, "--trend", "--html", str(tmp_path / "trend.html")]) == 0

    assert [link[1] for link in page_data(tmp_path / "trend.html")["links"]] == ["runs/second.html"]
