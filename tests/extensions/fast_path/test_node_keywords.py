"""What names pytest knows a record by."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Write = Callable[..., Path]
Json = dict[str, Any]

CHECK = ("--msprobe-dump=dump.json", "--msprobe-device=cpu")


def test_a_record_has_its_own_names_and_those_of_what_it_is_in(
    pytester: pytest.Pytester, write_dump: Write, records: Json
) -> None:
    write_dump(records)
    item = pytester.inline_genitems(*CHECK)[0][0]
    item.add_marker("usefixtures")
    file = item.parent
    assert file is not None
    file.keywords["added later"] = file.keywords["usefixtures"] = True
    names = [item.name, "usefixtures", *(name for name in file.keywords if name != "usefixtures")]
    assert list(item.keywords) == names
    assert len(item.keywords) == len(names)
    assert all(name in item.keywords for name in names)
    assert "no such name" not in item.keywords
    assert item.keywords["usefixtures"] == pytest.mark.usefixtures.mark


def test_the_report_of_a_record_has_the_name_of_its_file(
    pytester: pytest.Pytester, write_dump: Write, records: Json
) -> None:
    write_dump(records)
    reports = pytester.inline_run(*CHECK).getreports("pytest_runtest_logreport")
    assert all("dump.json" in report.keywords for report in reports if report.when == "call")
