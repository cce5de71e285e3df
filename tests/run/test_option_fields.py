"""Options and settings as fields of a dataclass."""

from __future__ import annotations

import pytest

from pytest_msprobe.results.outcomes import OUTCOMES
from pytest_msprobe.run import options

PLUGIN = """
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pytest_msprobe.run.option_data import add_rows
from pytest_msprobe.run.option_fields import (
    as_path, existing_file, number, one_of, option, read_fields, refuse_without, rows, setting, settings, words
)


@dataclass(frozen=True)
class Own:
    colour: str = option("--own-colour", "colour", metavar="NAME", read=one_of("red", "blue"), default="red")
    loud: bool = option("--own-loud", "loud", journal=False)
    files: tuple[Path, ...] = option("--own-file", "files", metavar="FILE", read=existing_file, repeat=True)
    share: float = setting(
        "own_share", "share", kind="float", read=number(float, "a share", lambda x: x < 1), default=0.5
    )
    quick: bool = setting("own_quick", "quick", kind="bool", rerun=False)
    names: tuple[Path, ...] = setting("own_names", "names", kind="args", read=as_path)


def pytest_addoption(parser):
    add_rows(parser, rows(Own), default=parser.getgroup("own"))
    parser.addoption("--own", action="store_true")


def pytest_report_header(config):
    if not config.getoption("own"):
        refuse_without(config, Own, "--own")
        return []
    own = read_fields(config, Own)
    return [f"{own.colour} {own.loud} {own.share} {own.quick}", f"words {words(own)}", f"settings {settings(own)}"]
"""


@pytest.fixture
def own(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeconftest(PLUGIN)
    return pytester


def header(own: pytest.Pytester, *words: str) -> str:
    return own.runpytest_inprocess("--own", *words).stdout.str()


def test_values_that_are_not_set_have_their_defaults_and_no_words(own: pytest.Pytester) -> None:
    shown = header(own)
    assert "red False 0.5 False\nwords []\n" in shown
    assert "settings {'own_colour': 'red', 'own_file': 'none', 'own_share': '0.5'" in shown


def test_words_ask_for_the_same_in_another_run(own: pytest.Pytester) -> None:
    (own.path / "a.txt").write_text("")
    words = ["--own-colour=blue", "--own-loud", "--own-file=a.txt", "-o", "own_share=0.25", "-o", "own_names=a 'b c'"]
    shown = header(own, *words, "-o", "own_quick=true")
    path = own.path
    assert "blue True 0.25 True" in shown
    expected = ["--own-colour", "blue", "--own-loud", "--own-file", f"{path / 'a.txt'}", "-o", "own_share=0.25"]
    assert f"words {[*expected, '-o', f'''own_names={path}/a '{path}/b c'''.replace(chr(10), '') + chr(39)]}" in shown


def test_paths_of_the_ini_file_are_relative_to_it(own: pytest.Pytester) -> None:
    own.makeini("[pytest]\nown_names = a")
    folder = own.mkdir("inside")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        assert f"own_names={own.path / 'a'}'" in header(own)
        assert f"own_names={folder / 'a'}'" in header(own, "-o", "own_names=a")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--own-colour=green"], "--own-colour 'green': not one of red, blue"),
        (["--own-file=none"], "--own-file 'none': no such file"),
        (["-o", "own_share=2"], "own_share '2': expected a share"),
        (["-o", "own_share=x"], "own_share 'x': expected a share"),
        (["-o", "own_quick=perhaps"], "own_quick 'perhaps': expected true or false"),
    ],
)
def test_a_wrong_value_is_reported_with_its_name(own: pytest.Pytester, words: list[str], message: str) -> None:
    result = own.runpytest_inprocess("--own", *words)
    assert message in result.stdout.str() + result.stderr.str()


@pytest.mark.parametrize("words", [["--own-loud"], ["-o", "own_share=0.1"]])
def test_what_the_command_line_has_without_what_it_belongs_to_is_refused(
    own: pytest.Pytester, words: list[str]
) -> None:
    result = own.runpytest_inprocess(*words)
    assert "has no effect without --own; pass --own" in result.stdout.str() + result.stderr.str()


def test_a_key_of_the_ini_file_waits_for_the_run_that_it_applies_to(own: pytest.Pytester) -> None:
    own.makeini("[pytest]\nown_share = 0.1")
    result = own.runpytest_inprocess("--collect-only")
    assert "has no effect" not in result.stdout.str() + result.stderr.str()


def test_values_that_are_written_twice_so_that_less_is_loaded_are_the_same() -> None:
    assert tuple(OUTCOMES) == options._OUTCOMES
