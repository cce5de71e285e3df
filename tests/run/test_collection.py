from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

DUMPS = Path(__file__).parents[1] / "data" / "dumps"

Write = Callable[..., Path]
Json = dict[str, Any]


def collected(pytester: pytest.Pytester, *arguments: str | Path) -> list[str]:
    result = pytester.runpytest_inprocess("--collect-only", "-q", *arguments)
    return [line for line in result.outlines if "::" in line]


def test_ids_are_record_names_and_backward_follows_its_forward(
    pytester: pytest.Pytester, write_dump: Write, records: Json
) -> None:
    write_dump(records)
    assert collected(pytester, "--msprobe-dump", "dump.json") == [
        "dump.json::Functional.softmax.0.forward",
        "dump.json::Functional.softmax.0.backward",
        "dump.json::Functional.linear.0.forward",
        "dump.json::Functional.linear.0.backward",
        "dump.json::Torch.index_select.0.forward",
    ]


def test_dumps_of_the_ini_file_are_checked_from_any_folder(
    pytester: pytest.Pytester, write_dump: Write, records: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_dump(records)
    pytester.makeini("[pytest]\nmsprobe_dumps = dump.json")
    pytester.mkdir("below")
    monkeypatch.chdir(pytester.path / "below")
    assert "dump.json::Torch.index_select.0.forward" in collected(pytester)


def test_dumps_of_the_ini_file_give_way_to_what_a_command_names(
    pytester: pytest.Pytester, write_dump: Write, records: Json
) -> None:
    write_dump(records)
    other = write_dump(records, "other")
    pytester.makeini("[pytest]\nmsprobe_dumps = dump.json")
    pytester.makepyfile("def test_one(): pass")
    [named] = collected(pytester, "test_dumps_of_the_ini_file_give_way_to_what_a_command_names.py")
    assert named.endswith("::test_one")
    assert {line.partition("::")[0] for line in collected(pytester, "--msprobe-dump", other)} == {"other/dump.json"}


def test_a_backward_record_without_a_forward_one_keeps_its_place(
    pytester: pytest.Pytester, write_dump: Write, records: Json
) -> None:
    del records["Functional.linear.0.forward"]
    write_dump(records)
    names = [line.partition("::")[2] for line in collected(pytester, "--msprobe-dump", "dump.json")]
    assert names[-1] == "Functional.linear.0.backward"


def test_module_records_are_counted_and_reported_but_not_collected(pytester: pytest.Pytester) -> None:
    shutil.copy(DUMPS / "lstm-mix" / "dump.json", pytester.path)
    data = json.loads((pytester.path / "dump.json").read_text())["data"]
    modules = [name for name in data if name.startswith("Module.")]
    result = pytester.runpytest_inprocess("--collect-only", "-q", "-q", "--msprobe-dump", "dump.json")
    assert result.ret == 0
    names = {line.partition("::")[2] for line in collected(pytester, "--msprobe-dump", "dump.json")}
    assert names == set(data) - set(modules)
    header = pytester.runpytest_inprocess("--collect-only", "--msprobe-dump", "dump.json")
    header.stdout.fnmatch_lines([f"*: {len(data) - len(modules)} API records, {len(modules)} module records (*"])


def test_a_dump_of_modules_alone_collects_nothing_and_says_so(pytester: pytest.Pytester) -> None:
    shutil.copy(DUMPS / "lstm-L0" / "dump.json", pytester.path)
    result = pytester.runpytest_inprocess("--msprobe-dump", "dump.json")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    said = "msprobe: modules alone (level L0) are compared, not checked: record level mix or L1"
    result.stdout.fnmatch_lines(["*: 17 module records (*", said])


def test_a_folder_gives_every_rank_and_step_in_the_order_of_their_numbers(
    pytester: pytest.Pytester, write_dump: Write, records: Json
) -> None:
    one = {"Torch.index_select.0.forward": records["Torch.index_select.0.forward"]}
    for folder in ("step10/rank0", "step2/rank11", "step2/rank3"):
        write_dump(one, f"run/{folder}")
    assert collected(pytester, "--msprobe-dump", "run") == [
        f"run/{folder}/dump.json::Torch.index_select.0.forward"
        for folder in ("step2/rank3", "step2/rank11", "step10/rank0")
    ]


def test_several_dumps_may_be_given(pytester: pytest.Pytester, write_dump: Write, records: Json) -> None:
    for folder in ("a", "b"):
        write_dump(records, folder)
    names = collected(pytester, "--msprobe-dump", "a/dump.json", "--msprobe-dump", "b")
    assert [name.partition("/")[0] for name in names] == ["a"] * len(records) + ["b"] * len(records)


def test_a_dump_is_an_argument_like_any_test_file(pytester: pytest.Pytester, write_dump: Write, records: Json) -> None:
    write_dump(records)
    pytester.makepyfile(test_other="def test_it(): pass")
    chosen = "dump.json::Functional.linear.0.backward"
    assert collected(pytester, chosen, "test_other.py") == [chosen, "test_other.py::test_it"]


def test_the_option_takes_the_name_of_one_record_too(
    pytester: pytest.Pytester, write_dump: Write, records: Json
) -> None:
    write_dump(records, "run/rank0")
    name = "run/rank0/dump.json::Functional.linear.0.backward"
    assert collected(pytester, f"--msprobe-dump={name}") == [name]
    assert collected(pytester, "--msprobe-dump=run::Functional.linear.0.backward") == [name]


def test_a_record_that_a_dump_does_not_hold_is_a_usage_error(
    pytester: pytest.Pytester, write_dump: Write, records: Json
) -> None:
    write_dump(records)
    result = pytester.runpytest_inprocess("dump.json::Torch.nothing.0.forward")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "Torch.nothing.0.forward" in result.stderr.str()


def test_a_dump_comes_in_addition_to_tests_that_were_named(
    pytester: pytest.Pytester, write_dump: Write, records: Json
) -> None:
    write_dump(records)
    pytester.makepyfile(test_one="def test_it(): pass", test_two="def test_it(): pass")
    names = collected(pytester, "test_one.py", "--msprobe-dump", "dump.json")
    assert names[0] == "test_one.py::test_it"
    assert len(names) == 1 + len(records)


def test_without_named_tests_only_the_dump_is_collected(
    pytester: pytest.Pytester, write_dump: Write, records: Json
) -> None:
    write_dump(records)
    pytester.makepyfile(test_one="def test_it(): pass")
    assert len(collected(pytester, "--msprobe-dump", "dump.json")) == len(records)


def test_json_files_that_no_one_named_are_left_alone(
    pytester: pytest.Pytester, write_dump: Write, records: Json
) -> None:
    write_dump(records)
    pytester.makepyfile(test_one="def test_it(): pass")
    assert collected(pytester) == ["test_one.py::test_it"]


def test_dumps_outside_of_the_rootdir_keep_distinct_ids(
    pytester: pytest.Pytester, write_dump: Write, records: Json
) -> None:
    one = {"Torch.index_select.0.forward": records["Torch.index_select.0.forward"]}
    paths = [write_dump(one, f"elsewhere/rank{rank}") for rank in (0, 1)]
    project = pytester.mkdir("project")
    (project / "pytest.ini").write_text("[pytest]")
    result = pytester.runpytest_inprocess(
        "--collect-only", "-q", f"--rootdir={project}", f"--msprobe-dump={pytester.path / 'elsewhere'}"
    )
    ids = [line for line in result.outlines if "::" in line]
    expected = [f"{path.relative_to(pytester.path)}::Torch.index_select.0.forward" for path in paths]
    assert [str(id_).removeprefix(f"{pytester.path}/") for id_ in ids] == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-k", "softmax and backward"], ["Functional.softmax.0.backward"]),
        (["-m", "bfloat16 and backward"], ["Functional.linear.0.backward"]),
        (["-m", "int32"], ["Torch.index_select.0.forward"]),
        (
            ["-m", "Torch or (Functional and float32 and forward)"],
            ["Functional.softmax.0.forward", "Torch.index_select.0.forward"],
        ),
        (["-m", "pytorch and not Functional"], ["Torch.index_select.0.forward"]),
        (["-m", "mindspore"], []),
        (
            ["--deselect", "dump.json::Functional"],
            ["Torch.index_select.0.forward"],
        ),
        (
            ["--deselect", "dump.json::Functional.softmax.0.forward", "-k", "softmax"],
            ["Functional.softmax.0.backward"],
        ),
    ],
    ids=" ".join,
)
def test_records_are_selected_as_any_tests(
    pytester: pytest.Pytester, write_dump: Write, records: Json, arguments: list[str], expected: list[str]
) -> None:
    write_dump(records)
    names = collected(pytester, "--strict-markers", "--msprobe-dump", "dump.json", *arguments)
    assert [name.partition("::")[2] for name in names] == expected


def test_every_mark_of_a_record_is_listed_by_markers(pytester: pytest.Pytester) -> None:
    listed = pytester.runpytest_inprocess("--markers", "-m", "forward").stdout.str()
    for mark in ("bfloat16", "backward", "Functional", "pytorch", "precision_standard(name, [*][*]limits)"):
        assert f"@pytest.mark.{mark.replace('[*]', '*')}:" in listed


def test_last_failed_runs_only_what_failed(
    write_dump: Write, records: Json, check: Callable[..., Any], make_device: Callable[[str], None]
) -> None:
    write_dump(records)
    make_device("if record == 'Torch.index_select.0.forward': result = result + 1")
    arguments = ("--msprobe-dump=dump.json", "--msprobe-device=faulty")
    assert check(*arguments).wrong == {"Torch.index_select.0.forward"}
    assert check(*arguments, "--lf").outcomes == {"Torch.index_select.0.forward": "failed"}
    assert check("--msprobe-dump=dump.json", "--msprobe-device=sim", "--lf").exit_code == 0
    assert len(check(*arguments, "--lf").cases) == len(records)


@pytest.mark.parametrize("elsewhere", [False, True], ids=["inside", "outside the rootdir"])
def test_last_failed_finds_dumps_wherever_they_are(
    pytester: pytest.Pytester,
    write_dump: Write,
    records: Json,
    check: Callable[..., Any],
    make_device: Callable[[str], None],
    elsewhere: bool,
) -> None:
    path = write_dump(records, "dumps")
    make_device("if record == 'Torch.index_select.0.forward': result = result + 1")
    rootdir = pytester.mkdir("project") if elsewhere else pytester.path
    arguments = (
        f"--rootdir={rootdir}",
        f"--confcutdir={pytester.path}",
        f"--msprobe-dump={path}",
        "--msprobe-device=faulty",
    )
    assert len(check(*arguments).cases) == len(records)
    assert check(*arguments, "--lf").outcomes == {"Torch.index_select.0.forward": "failed"}


ODD_NAMES = [
    "Torch.../../etc/passwd.0.forward",
    "Torch.$(touch owned); `touch owned`.0.forward",
    "Torch.abs\n'\"<&>.0.forward",
    "no name at all",
    "",
]


def test_names_with_path_or_shell_characters_are_only_text(
    pytester: pytest.Pytester, write_dump: Write, element: Callable[..., Json], forward: Callable[..., Json],
    check: Callable[..., Any],
) -> None:  # fmt: skip
    write_dump({name: forward(element(4)) for name in [*ODD_NAMES, "Torch.abs.0.forward"]})
    before = set(pytester.path.iterdir())
    checked = check("--msprobe-dump=dump.json", "--msprobe-device=sim", "-v")
    assert checked.exit_code == 1
    assert len(checked.cases) == len(ODD_NAMES) + 1
    assert checked.outcomes["Torch.abs.0.forward"] == "passed"
    assert checked.outcomes[ODD_NAMES[0]] == checked.outcomes[ODD_NAMES[1]] == "skipped"
    assert checked.outcomes["no name at all"] == "failed"
    new = {path.name for path in set(pytester.path.iterdir()) - before}
    assert new <= {"report.xml", ".pytest_cache"}


def test_brackets_and_colons_in_names_are_only_text(
    write_dump: Write, element: Callable[..., Json], forward: Callable[..., Json], check: Callable[..., Any]
) -> None:
    names = ["Torch.a[b].0.forward", "Torch.a::b.0.forward", "Torch.abs.0.forward"]
    write_dump({name: forward(element(4)) for name in names})
    checked = check("--msprobe-dump=dump.json", "--msprobe-device=sim")
    assert sorted(checked.outcomes.values()) == ["passed", "skipped", "skipped"]
    assert check(f"dump.json::{names[0]}", "--msprobe-device=sim").exit_code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["--version"],
        ["--help"],
        ["--markers"],
        ["--collect-only", "-q", "-m", "bfloat16", "--msprobe-unique", "--msprobe-dump=dump.json"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_what_runs_no_item_loads_neither_torch_nor_schedulers_of_xdist(
    pytester: pytest.Pytester, write_dump: Write, records: Json, arguments: list[str]
) -> None:
    write_dump(records)
    pytester.makeconftest(
        """
        import sys

        def pytest_unconfigure(config):
            print("loaded:", [name for name in ("torch", "xdist.scheduler") if name in sys.modules], flush=True)
        """
    )
    result = pytester.runpytest_subprocess(*arguments)
    assert result.ret == 0
    if arguments == ["--version"]:
        assert "loaded:" not in result.stdout.str()
    else:
        assert "loaded: []" in result.stdout.str()


@pytest.mark.slow
def test_a_worker_loads_neither_torch_nor_numpy_before_its_first_record(
    pytester: pytest.Pytester, write_dump: Write, records: Json
) -> None:
    write_dump(records)
    pytester.makeconftest(
        """
        import sys
        from pathlib import Path

        def loaded():
            return str([name for name in ("torch", "numpy") if name in sys.modules])

        def pytest_collection_finish(session):
            if hasattr(session.config, "workerinput"):
                Path("collected").write_text(loaded())

        def pytest_sessionfinish(session):
            if hasattr(session.config, "workerinput"):
                Path("finished").write_text(loaded())
        """
    )
    result = pytester.runpytest_subprocess("--msprobe-dump=dump.json", "--msprobe-device=cpu", "-n1")
    assert result.ret == 0
    assert (pytester.path / "collected").read_text() == "[]"
    assert (pytester.path / "finished").read_text() == "['torch', 'numpy']"


def test_the_header_names_dumps_without_records(pytester: pytest.Pytester, write_dump: Write, records: Json) -> None:
    write_dump(records, "step0")
    write_dump({}, "step1")
    result = pytester.runpytest_inprocess("--collect-only", "--msprobe-dump", ".")
    result.stdout.fnmatch_lines(["msprobe: 1 dump without records, not checked: *step1*"])
