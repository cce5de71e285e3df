"""A dump is somebody else's: what its names and messages hold changes nothing in a report but text."""

from __future__ import annotations

import csv
import json
import shlex
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from pytest_msprobe.commands.main import main
from pytest_msprobe.journal import read_journal
from pytest_msprobe.reports.text import code_block, code_span, printable
from tests.support.dumps.escapes import ESCAPES, escaping_records, shapeless

Write = Callable[..., Path]

HOSTILE = [
    "../../../etc/passwd",
    "</testcase><testcase name='x'/>]]>&amp;&#0;",
    "<script>alert(1)</script><!--",
    "# title\n\n* list\n```\nout of the block\n````",
    "` | `` | ``` @someone #1 [link](javascript:x) ![](y)",
    "| cell | --- |\n| --- |",
    "%s %n {0} {entry.__class__} $HOME `id` $(id); rm -rf ~ '\"",
    "=cmd|' /C calc'!A0",
    "+1+1",
    "-1+1",
    "@SUM(A1)",
    "\t=1",
    "\r\n=1",
    "\uff1d1",
    "\x00\x01\x1b[2J\x7f\x85\u2028\ufffe\uffff",
    "\u202egnp.exe",
    "\\",
    " ",
    "a" * 5000,
]


@pytest.fixture(params=HOSTILE, ids=lambda name: ascii(name)[:20])
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def reports(name: str, write_journal: Write, judged: Any, tmp_path: Path) -> Path:
    """Make every report of a journal with a right record and a wrong one of this name; return their folder."""
    results = [judged("Torch.add.0.forward", "pass"), judged(f"{name}.0.forward", "fail", margin=3.0, reason=name)]
    journal = write_journal(*results)
    words = ["--junit", "report.xml", "--markdown", "page.md", "--csv", "out"]
    paths = [word if word.startswith("--") else str(tmp_path / word) for word in words]
    assert main(["report", str(journal), *paths]) == 0
    return tmp_path


def test_junit_keeps_its_shape_and_the_name(reports: Path, name: str) -> None:
    (suite,) = ET.parse(reports / "report.xml").getroot()
    assert suite.attrib["tests"] == "2"
    _, wrong = suite.iter("testcase")
    # XML makes line breaks in an attribute spaces.
    assert wrong.attrib["name"].split() == f"{printable(name)}.0.forward".split()
    assert [child.tag for child in wrong] == ["properties", "failure"]


def test_markdown_keeps_its_shape(reports: Path) -> None:
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse((reports / "page.md").read_text(encoding="utf-8"))
    inline = [child.type for token in tokens for child in token.children or ()]
    assert set(inline) <= {"text", "code_inline", "softbreak"}
    assert [token.type for token in tokens].count("fence") == 1
    assert [token.type for token in tokens].count("heading_open") == 3
    assert [token.type for token in tokens].count("tr_open") == 3
    assert not [token for token in tokens if token.type.startswith("html")]


def test_no_cell_of_the_tables_is_a_formula(reports: Path) -> None:
    for path in (reports / "out").iterdir():
        with path.open(encoding="utf-8-sig", newline="") as file:
            header, *rows = csv.reader(file)
        assert len(rows) == 2
        assert {len(row) for row in rows} <= {len(header), 3}
        texts = [cell for row in rows for cell in row]
        assert not [cell for cell in texts if cell.strip(" \t\r\n\0")[:1] in tuple("=+-@\uff1d\uff0b\uff0d\uff20")]


def test_nothing_is_written_next_to_what_was_asked_for(reports: Path) -> None:
    names = {path.name.partition("_2")[0] for path in reports.rglob("*") if path.is_file()}
    assert names == {
        "run.jsonl",
        "report.xml",
        "page.md",
        "accuracy_checking_result",
        "accuracy_checking_details",
    }


def test_the_command_that_repeats_an_item_is_one_argument_to_a_shell(reports: Path, name: str) -> None:
    journal = read_journal(reports / "run.jsonl")
    _, wrong = journal.entries.values()
    assert shlex.split(journal.rerun_command(wrong))[1] == f"--msprobe-dump=/data/run/dump.json::{name}.0.forward"


texts = st.text(st.sampled_from("`|\\ \n\tab<>&*_[]()#~\x00\x1b") | st.characters(exclude_categories=("Cs",)))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(texts)
def test_any_text_in_a_span_of_a_table_is_one_piece_of_code(text: str) -> None:
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(f"| a |\n| --- |\n| {code_span(text)} |\n")
    (_, cell) = (token for token in tokens if token.type == "inline")
    assert [child.type for child in cell.children or ()] == ["code_inline"]


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(texts)
def test_any_text_in_a_block_is_one_block(text: str) -> None:
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(f"before\n\n{code_block(text)}\n\nafter\n")
    assert [token.type for token in tokens if token.level == 0] == [
        "paragraph_open",
        "paragraph_close",
        "fence",
        "paragraph_open",
        "paragraph_close",
    ]


@given(st.text(st.characters()))
def test_printable_text_can_be_written_as_xml(text: str) -> None:
    element = ET.Element("x")
    element.text = printable(text)
    assert (ET.fromstring(ET.tostring(element, encoding="utf-8")).text or "") == printable(text)


@pytest.fixture
def escaping(records: dict[str, Any]) -> dict[str, Any]:
    """Return records that a terminal would obey."""
    return escaping_records(records["Functional.softmax.0.forward"])


@pytest.mark.parametrize("mode", ["dump", "compare"])
def test_a_terminal_gets_no_character_that_it_would_obey(
    escaping: dict[str, Any], write_dump: Write, pytester: pytest.Pytester, mode: str
) -> None:
    words = [f"--msprobe-{mode}={write_dump(escaping)}"]
    if mode == "compare":
        for record in escaping.values():
            record["output"] = [{"type": ESCAPES, "value": ESCAPES}]
        words.append(f"--msprobe-golden={write_dump(escaping, 'golden')}")
    else:
        words.append("--msprobe-device=sim")
    result = pytester.runpytest_inprocess(*words, "-v", "-rA")
    assert shapeless(result.stdout.str() + result.stderr.str()) == set()
    assert r"Torch.\x1b]0;pwned" in result.stdout.str()


def test_a_record_whose_name_has_no_shape_is_chosen_by_the_id_that_is_shown(
    escaping: dict[str, Any], write_dump: Write, pytester: pytest.Pytester
) -> None:
    write_dump(escaping)
    shown = pytester.runpytest_inprocess("--collect-only", "-q", "--msprobe-dump=dump.json").outlines[0]
    chosen = pytester.runpytest_inprocess("--collect-only", "-q", "--msprobe-device=sim", f"--msprobe-dump={shown}")
    assert [line for line in chosen.outlines if "::" in line] == [shown]


def test_a_usage_error_and_a_commands_error_show_no_character_that_a_terminal_would_obey(
    pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    (pytester.path / "dump.json").write_text(json.dumps({"data": {}, "task": [ESCAPES]}))
    assert shapeless(pytester.runpytest_inprocess("--msprobe-dump=dump.json").stderr.str()) == set()
    capsys.readouterr()
    assert main(["report", f"{ESCAPES[:-2]}.jsonl"]) == 2
    assert shapeless(capsys.readouterr().err) == set()
