"""The text of a failure: its first line is all that many reports show."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from msprobe_standards.verdict import Verdict
from pytest_msprobe.reports.github import failure_text, place_in_words
from pytest_msprobe.reports.markdown import label
from pytest_msprobe.results.outcomes import Breakdown
from pytest_msprobe.results.result import DirectionResult, OutputResult, decided, failed_without_result

RECORD = "Functional.softmax.0.forward"


def test_the_first_line_is_the_reason_of_the_output_that_decided() -> None:
    right = OutputResult("output.0", Verdict("pass", "ulp"))
    wrong = OutputResult("output.1", Verdict("fail", "ulp", "up to 140 ulp (4 allowed)\nmore", margin=35.0))
    lines = failure_text(decided(RECORD, [right, wrong]), "pytest x").splitlines()
    assert lines[0] == "output.1: up to 140 ulp (4 allowed)"
    assert lines[2] == f"{RECORD} is wrong"
    assert [line.strip() for line in lines[4:7]] == ["output.1: fail by ulp", "more", ""]


def test_of_several_numbers_beyond_their_limits_the_one_furthest_beyond_leads() -> None:
    metrics, limits = {"b": 30.0, "a": 9.0, "c": 1.0}, {"b": 20.0, "a": 1.0, "c": 2.0}
    several = Verdict("fail", "ulp", "off", metrics, limits, margin=9.0)
    text = failure_text(decided(RECORD, [OutputResult("output.0", several)]), "")
    assert "fail by ulp\n  decided by a: 9 (limit 1)\n  details:\n    b: 30 (limit 20)\n\nRun" in text
    single = replace(several, limits={"a": 1.0})
    assert "limit" not in failure_text(decided(RECORD, [OutputResult("output.0", single)]), "")


def test_a_limit_on_a_share_that_cannot_be_exceeded_is_not_shown() -> None:
    verdict = Verdict("fail", "b", "off", {"tail_share": 0.5, "a": 2.0}, {"tail_share": 4.95, "a": 1.0}, margin=2.0)
    text = failure_text(decided(RECORD, [OutputResult("output.0", verdict)]), "", verbosity=2)
    assert "  tail_share: 0.5\n  a: 2 (limit 1)\n" in text


def test_the_first_line_of_what_did_not_end_is_how_it_ended() -> None:
    lines = failure_text(
        failed_without_result(RECORD, Breakdown.CRASH, "killed by SIGSEGV\nits stderr"), "pytest x"
    ).splitlines()
    assert lines[:4] == ["crash: killed by SIGSEGV", "", f"{RECORD} failed (crash)", "its stderr"]


def test_a_standard_that_gives_no_reason_is_named() -> None:
    output = OutputResult("output.0", Verdict("fail", "mine"))
    assert failure_text(decided(RECORD, [output]), "").startswith("output.0: fail by mine\n")


def test_the_text_names_card_and_dump() -> None:
    result = DirectionResult(RECORD, Verdict("fail", "", "why"))
    place = place_in_words("npu:3", "step0/rank1")
    assert f"{RECORD} failed on npu:3, in step0/rank1" in failure_text(result, "", place=place)


def test_labels_are_what_distinguishes_dumps() -> None:
    def labels(*paths: str) -> list[str]:
        return list(label([Path(path) for path in paths]).values())

    assert labels("/run/step0/rank3/dump.json") == [""]
    assert labels("/run/step0/rank0/dump.json", "/run/step0/rank1/dump.json") == ["rank0", "rank1"]
    assert labels("/a/step0/rank0/dump.json", "/b/dump.json") == ["a/step0/rank0", "b"]
    assert labels("/run/a.json", "/run/b.json") == ["a.json", "b.json"]
    assert labels("/run/dump.json", "/run/again/dump.json") == ["dump.json", "again/dump.json"]


@pytest.mark.parametrize("verbosity", [-1, 0])
def test_other_wrong_outputs_are_counted_where_the_worst_alone_is_shown(verbosity: int) -> None:
    outputs = tuple(
        OutputResult(f"changed.args.3.{place}", Verdict("fail", "ulp", "off", margin=float(9 - place)))
        for place in range(9)
    )
    result = DirectionResult("Torch._fused_adamw_.0.forward", outputs[0].verdict, outputs)
    text = failure_text(result, "pytest", verbosity)
    assert "8 more outputs are wrong; -v shows each" in text
