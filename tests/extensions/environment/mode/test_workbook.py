"""``result.xlsx``: what a sheet has no number for."""

from __future__ import annotations

import math
from pathlib import Path
from zipfile import ZipFile

from pytest_msprobe.extensions.environment.fact_pairs import pairs_of
from pytest_msprobe.extensions.environment.msprobe_pack import Facts
from pytest_msprobe.extensions.environment.workbook import write_result


def test_infinities_and_large_integers_are_texts_of_a_sheet(tmp_path: Path) -> None:
    settings = {"clip": math.inf, "floor": -math.inf, "salt": 2**2000}
    pairs = pairs_of(Facts(0, {"hyperparameters": settings}), Facts(0, {"hyperparameters": dict.fromkeys(settings, 1)}))
    write_result(tmp_path / "result.xlsx", [(0, pair) for pair in pairs])
    with ZipFile(tmp_path / "result.xlsx") as book:
        texts = book.read("xl/sharedStrings.xml").decode()
    assert all(f">{value}<" in texts for value in settings.values())
