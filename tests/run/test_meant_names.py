"""Options and settings that are spelled almost like ours: what was probably meant."""

from __future__ import annotations

from typing import Any

import pytest

from msprobe_hooks import PrecisionDebugger
from pytest_msprobe import check_dump, compare_dumps

Write = Any


@pytest.mark.parametrize(
    ("word", "meant"),
    [("--msprobe-dmp=dump.json", "--msprobe-dump"), ("--mprobe-compare", "--msprobe-compare")],
)
def test_pytests_error_names_the_option_that_was_probably_meant(
    pytester: pytest.Pytester, word: str, meant: str
) -> None:
    result = pytester.runpytest_inprocess(word)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [f"*unrecognized arguments: {word}", f"  {word.partition('=')[0]}: did you mean {meant}?"]
    )


def test_an_option_of_an_extension_is_named_too(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("--msprobe-overflw=x")
    result.stderr.fnmatch_lines(["  --msprobe-overflw: did you mean --msprobe-overflow?"])


def test_options_of_others_get_no_hint(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("--dump=x", "--probably")
    assert "did you mean" not in result.stderr.str()


def test_an_option_that_a_conftest_adds_is_no_error(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("def pytest_addoption(parser): parser.addoption('--msprobe-dumped')")
    result = pytester.runpytest_inprocess("--msprobe-dumped=x")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_an_unknown_setting_of_the_command_line_is_an_error(pytester: pytest.Pytester, write_dump: Write) -> None:
    write_dump({})
    result = pytester.runpytest_inprocess("--msprobe-dump=dump.json", "-o", "msprobe_histry=x")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: -o msprobe_histry: no such setting; did you mean 'msprobe_history'?"])


def test_a_wrong_value_of_a_known_setting_is_reported_as_that(pytester: pytest.Pytester, write_dump: Write) -> None:
    write_dump({})
    words = ("--msprobe-compare=dump.json", "--msprobe-golden=dump.json", "-o", "msprobe_fuzzy=tru")
    result = pytester.runpytest_inprocess(*words)
    result.stderr.fnmatch_lines(["ERROR: msprobe_fuzzy 'tru': expected true or false"])


@pytest.mark.parametrize(
    ("function", "word", "meant"),
    [(check_dump, "devise", "device"), (compare_dumps, "polcy", "policy"), (PrecisionDebugger, "tsk", "task")],
)
def test_a_public_function_names_the_keyword_that_was_probably_meant(function: Any, word: str, meant: str) -> None:
    with pytest.raises(TypeError, match=rf"{function.__name__}\(\) has no argument '{word}'; did you mean '{meant}'\?"):
        function(**{word: "x"})


def test_a_folder_of_recordings_among_the_arguments_is_named_with_the_option(pytester: pytest.Pytester) -> None:
    (pytester.mkdir("run") / "step0/rank").mkdir(parents=True)
    (pytester.path / "run/step0/rank/dump.json").write_text("{}")
    pytester.makepyfile(test_it="def test_it(): pass")
    said = "msprobe: run holds recordings, which pytest reads where an option names them: --msprobe-dump run"
    for arguments in (["run"], ["run", "test_it.py"]):
        result = pytester.runpytest_inprocess(*arguments)
        assert said in result.outlines


def test_a_folder_of_tests_that_holds_a_dump_is_one_of_tests(pytester: pytest.Pytester) -> None:
    folder = pytester.mkdir("tests")
    (folder / "dump.json").write_text("{}")
    (folder / "test_it.py").write_text("def test_it(): pass")
    result = pytester.runpytest_inprocess("tests")
    result.assert_outcomes(passed=1)
    assert "holds recordings" not in result.stdout.str()


@pytest.mark.parametrize("option", [(), ("--msprobe-dump=../tests",)])
def test_a_folder_above_is_known_as_that_of_what_was_collected(
    pytester: pytest.Pytester, write_dump: Write, monkeypatch: pytest.MonkeyPatch, option: tuple[str, ...]
) -> None:
    folder = pytester.mkdir("tests")
    write_dump({}).rename(folder / "dump.json")
    (folder / "test_it.py").write_text("def test_it(): pass")
    monkeypatch.chdir(pytester.mkdir("below"))
    result = pytester.runpytest_inprocess("../tests", *option)
    result.assert_outcomes(passed=1)
    assert "holds recordings" not in result.stdout.str()


def test_a_test_is_run_whose_name_is_too_long_for_a_path(pytester: pytest.Pytester) -> None:
    value = "x" * 300
    text = f"import pytest\n@pytest.mark.parametrize('a', [1], ids=['{value}'])\ndef test_it(a): pass"
    pytester.makepyfile(test_long=text)
    result = pytester.runpytest_inprocess(f"test_long.py::test_it[{value}]")
    result.assert_outcomes(passed=1)


def test_a_known_option_of_others_gets_no_hint_by_an_error_about_another(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("def pytest_addoption(parser): parser.addoption('--probe-dump')")
    result = pytester.runpytest_inprocess("--probe-dump=x", "--unknown")
    assert "did you mean" not in result.stderr.str()


def test_an_option_of_an_extension_that_is_turned_off_is_called_that(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("-p", "no:msprobe.overflow", "--msprobe-overflow=x")
    result.stderr.fnmatch_lines(["  --msprobe-overflow: of an extension that is turned off"])


def test_arguments_of_a_program_may_be_paths(pytester: pytest.Pytester) -> None:
    path = pytester.makepyfile(test_it="def test_it(): pass")
    result = pytester.runpython_c(f"import pathlib, pytest; pytest.main([pathlib.Path({str(path)!r})])")
    result.assert_outcomes(passed=1)
