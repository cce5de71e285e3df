"""Names on the command line that no record has: the run says which names there are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Write = Callable[..., Path]
Json = dict[str, Any]


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess("--collect-only", *arguments)


@pytest.fixture(autouse=True)
def dump(write_dump: Write, element: Any, forward: Any) -> None:
    names = [f"Functional.silu.{call}.forward" for call in range(5)]
    write_dump({name: forward(element(4)) for name in (*names, "Torch.exp.0.forward")})


@pytest.mark.parametrize(
    ("wanted", "hint"),
    [
        ("Functional.silu.9.forward", "Functional.silu.0.forward, Functional.silu.1.forward, "),
        ("Functional.slu.0.forward", "Functional.silu.0.forward, Functional.silu.1.forward, "),
    ],
)
def test_an_unknown_record_in_an_id_is_answered_by_those_of_its_api(
    pytester: pytest.Pytester, wanted: str, hint: str
) -> None:
    said = run(pytester, f"--msprobe-dump=dump.json::{wanted}").stderr.str()
    assert f"ERROR: not found: {pytester.path}/dump.json::{wanted}\n" in said
    assert f"; the dump has {hint}Functional.silu.2.forward and 2 more" in said


def test_an_id_like_no_record_is_answered_by_the_first_records(pytester: pytest.Pytester) -> None:
    said = run(pytester, "--msprobe-dump=dump.json::0123").stderr.str()
    assert "; the dump has Functional.silu.0.forward, " in said


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("slu", "no record matches 'slu'; did you mean 'silu'?"),
        ("0123,4567", "no record matches '0123', '4567'; the records are of Functional.silu, Torch.exp"),
    ],
)
def test_a_choice_that_leaves_no_record_is_in_the_header(pytester: pytest.Pytester, wanted: str, said: str) -> None:
    result = run(pytester, "--msprobe-dump=dump.json", f"--msprobe-only={wanted}")
    assert f"msprobe: warning: --msprobe-only: {said}" in result.outlines


def test_a_run_without_a_header_says_it_at_its_end(pytester: pytest.Pytester) -> None:
    result = run(pytester, "-q", "--msprobe-dump=dump.json", "--msprobe-only=slu")
    result.stdout.fnmatch_lines(["msprobe: warning: --msprobe-only: no record matches 'slu'; did you mean 'silu'?"])


@pytest.mark.slow
def test_an_unknown_record_is_answered_under_xdist_too(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("-n2", "--msprobe-dump=dump.json::Functional.slu.0.forward")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "; the dump has Functional.silu.0.forward, " in result.stderr.str()


@pytest.mark.parametrize("flag", ["--msprobe-only", "--msprobe-skip"])
def test_a_pattern_that_matches_nothing_is_in_the_header(pytester: pytest.Pytester, flag: str) -> None:
    result = run(pytester, "--msprobe-dump=dump.json", f"{flag}=exp,slu")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines([f"msprobe: warning: {flag}: no record matches 'slu'; did you mean 'silu'?"])


@pytest.mark.parametrize(("wanted", "hint"), [("gpu", "for a GPU: cuda"), ("cud", "did you mean 'cuda'?")])
def test_an_unknown_device_is_answered_by_the_one_that_was_meant(
    pytester: pytest.Pytester, wanted: str, hint: str
) -> None:
    said = run(pytester, "--msprobe-dump=dump.json", f"--msprobe-device={wanted}").stderr.str()
    assert f"unknown device '{wanted}'; known are auto, npu, cuda, " in said
    assert f"; {hint}\n" in said
