"""msprobe's tables of a dump that MindSpore recorded."""

from __future__ import annotations

import csv
from pathlib import Path

import msgspec
import pytest

from pytest_msprobe.commands.main import main
from tests.support.journals import HEADER, make_judged, write_journal


@pytest.mark.parametrize("framework", ["mindspore", "mindtorch"])
def test_tables_of_a_journal_have_the_columns_that_msprobe_has_for_mindspore(framework: str, tmp_path: Path) -> None:
    header = msgspec.structs.replace(HEADER, settings={**HEADER.settings, "framework": framework})
    journal = write_journal(tmp_path / "run.jsonl", make_judged("Mint.add.0.forward", "pass"), header=header)
    assert main(["report", str(journal), "--csv", str(tmp_path)]) == 0

    columns, row = _rows(tmp_path, "details")
    numbers = "Cosine,MaxAbsErr,MaxRelativeErr"
    assert ",".join(columns) == f"API Name,Bench Dtype,Tested Dtype,Shape,{numbers},Status,Message"
    assert row[2] == "Float32"
    assert _rows(tmp_path, "result")[0] == ["API Name", "Forward Test Success", "Backward Test Success", "Message"]


def _rows(folder: Path, kind: str) -> list[list[str]]:
    (path,) = folder.glob(f"accuracy_checking_{kind}_*.csv")
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.reader(file))
