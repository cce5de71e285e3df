from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from pytest_msprobe.commands.main import main
from tests.support.journals import HEADER, make_judged, write_journal


@pytest.fixture
def step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set what GitHub sets in a step, and return the file of its summary."""
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path / "repository"))
    return summary


def reported(journal: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert main(["report", "--github", str(journal)]) == 0
    return capsys.readouterr().out.splitlines()


def test_each_api_that_failed_is_one_annotation_that_reports_the_worst(
    tmp_path: Path, step: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    softmax = [make_judged(f"Functional.softmax.{place}.forward", "fail", 2.0 + place, "off") for place in range(3)]
    journal = write_journal(
        tmp_path / "run.jsonl", make_judged("Torch.exp.0.forward", "fail", 9.0, "100%: wrong"), *softmax
    )
    command = "pytest --msprobe-dump=/data/run/dump.json::{} --msprobe-device npu:0-7"
    softmaxes = "Functional.softmax.0.forward, Functional.softmax.1.forward"
    assert [line.replace("npu:3", "npu:0-7") for line in reported(journal, capsys)] == [
        "::error title=Functional.softmax%3A 3 records failed::Functional.softmax.2.forward: output.0: off%0A"
        f"and 2 more: {softmaxes}%0ARun this item alone: {command.format('Functional.softmax.2.forward')}",
        "::error title=Torch.exp%3A 1 record failed::Torch.exp.0.forward: output.0: 100%25: wrong%0A"
        f"Run this item alone: {command.format('Torch.exp.0.forward')}",
    ]
    assert step.read_text().startswith("## msprobe: 4 of 4 records failed")


def test_a_step_has_no_more_than_the_ten_annotations_that_github_shows(
    tmp_path: Path, step: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = [make_judged(f"Torch.f{place}.0.forward", "fail", 2.0, "off") for place in range(30)]
    lines = reported(write_journal(tmp_path / "run.jsonl", *failed), capsys)
    assert len(lines) == 10
    assert lines[-1].startswith("::error title=21 more records of 21 APIs failed::Torch.f9, ")


def test_an_annotation_points_at_the_programs_line_or_else_at_the_dump(
    tmp_path: Path, step: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dumps = tmp_path / "repository" / "run"
    dumps.mkdir(parents=True)
    frames = ["File /v/site-packages/torch/x.py, line 3, in f, g()", f"File {dumps.parent}/net.py, line 7, in f, g()"]
    (dumps / "stack.json").write_text(json.dumps({"Torch.exp.0.forward": frames}))
    failed = [make_judged(f"Torch.{api}.0.forward", "fail", 2.0, "off") for api in ("exp", "log")]
    journal = write_journal(tmp_path / "run.jsonl", *failed, header=replace(HEADER, root=str(dumps.parent)))
    assert [line.partition(",title")[0] for line in reported(journal, capsys)] == [
        "::error file=net.py,line=7",
        "::error file=run/dump.json",
    ]


def test_a_name_begins_no_command_of_its_own(tmp_path: Path, step: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failed = make_judged("a\n::stop-commands::x", "fail", 2.0, "b\r\n::error::c")
    (line,) = reported(write_journal(tmp_path / "run.jsonl", failed), capsys)
    assert line.startswith("::error title=a%0A%3A%3Astop-commands%3A%3Ax%3A 1 record failed::")


def test_outside_of_a_step_the_remedy_is_said(
    journal: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    assert main(["report", "--github", str(journal)]) == 2
    assert "GITHUB_STEP_SUMMARY" in capsys.readouterr().err
