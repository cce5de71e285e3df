from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msprobe_hooks.errors import DumpError
from pytest_msprobe.extensions.communication.truncated_dump import read_truncated_dump
from tests.support.dumps.dump_files import three_calls, write_dump


def test_of_a_dump_that_was_cut_off_the_whole_records_are_read(tmp_path: Path) -> None:
    path = write_dump(tmp_path, three_calls(), level="mix")
    text = path.read_bytes()
    path.write_bytes(text[: text.index(b"Functional.linear.0.backward") + 100])
    part = read_truncated_dump(path)
    assert list(part.dump.records) == list(three_calls())[:3]
    assert (part.dump.level, part.problem) == ("mix", "the file is cut off after 3 records")
    assert part.dump.forward("Functional.linear.0.forward").args[0].dtype == "torch.bfloat16"


def test_a_whole_dump_has_no_problem(tmp_path: Path) -> None:
    assert read_truncated_dump(write_dump(tmp_path, three_calls())).problem == ""


def test_an_empty_file_has_no_record_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "dump.json"
    path.touch()
    part = read_truncated_dump(path)
    assert (dict(part.dump.records), part.problem) == ({}, "the file is empty")


@pytest.mark.parametrize("text", ["hello", '{"some": 1', '{"task": "dance", "data": {', '{"data": []}'])
def test_what_is_no_dump_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "dump.json"
    path.write_text(text)
    with pytest.raises(DumpError, match=r"dump\.json"):
        read_truncated_dump(path)


@given(st.integers(0, 4000))
def test_wherever_a_dump_is_cut_off_its_first_records_are_read(
    tmp_path_factory: pytest.TempPathFactory, at: int
) -> None:
    path = write_dump(tmp_path_factory.mktemp("cut"), three_calls())
    path.write_bytes(path.read_bytes()[:at])
    try:
        names = list(read_truncated_dump(path).dump.records)
    except DumpError:
        assert at < 110
        return
    assert names == list(three_calls())[: len(names)]
