"""``--msprobe-overflow``: which records fail, what is reported, and what wrong input becomes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msprobe_hooks.extensions.overflow.anomaly import LEVELS
from pytest_msprobe.extensions.overflow import options
from tests.extensions.overflow.mode.conftest import levels
from tests.support.dumps.dump_files import tensor_around, three_calls, write_dump
from tests.support.dumps.escapes import escaping_records, shapeless
from tests.support.dumps.static_graphs import GraphFolder, dense_step
from tests.support.items import assert_has_no_function

Check = Callable[..., Any]
Json = dict[str, Any]

EXAMPLE = Path(__file__).parents[4] / "examples" / "overflow" / "step0"
CULPRIT = "Torch.exp.0.forward"


@pytest.fixture
def overflowing(element: Callable[..., Json], forward: Callable[..., Json]) -> Json:
    """Return five records, of each level one, one that a rule ignores and one clean one."""
    good, bad = element(2), element(2, high=float("inf"))
    return {
        "Torch.exp.0.forward": forward(good, output=[bad]),
        "Torch.relu.0.forward": forward(bad, output=[bad]),
        "Functional.softmax.0.forward": forward(bad, output=[good]),
        "Torch.empty.0.forward": forward(output=[bad]),
        "Torch.tanh.0.forward": forward(good),
    }


WORKERS = pytest.param(["-n2"], marks=pytest.mark.slow)


@pytest.mark.parametrize("way", [[], ["--msprobe-isolate"], WORKERS], ids=" ".join)
def test_what_arises_fails_and_what_spreads_warns(
    write_dump: Check, overflowing: Json, check: Check, way: list[str]
) -> None:
    write_dump(overflowing)
    checked = check("--msprobe-overflow=dump.json", *way, apart=bool(way))
    assert checked.wrong == {"Torch.exp.0.forward"}
    assert levels(checked) == {
        "Torch.exp.0.forward": "critical",
        "Torch.relu.0.forward": "high",
        "Functional.softmax.0.forward": "medium",
        "Torch.empty.0.forward": "ignored",
        "Torch.tanh.0.forward": "clean",
    }
    assert "PrecisionWarning: overflow, high: inf or nan in the input and in the output" in checked.output
    assert "levels: 1 critical, 1 high, 1 medium, 1 ignored, 1 clean" in checked.output


@pytest.mark.slow
def test_a_test_of_the_users_own_is_rerun_as_a_check(
    pytester: pytest.Pytester, write_dump: Check, overflowing: Json
) -> None:
    write_dump(overflowing)
    body = "precision.check(torch.exp, torch.ones(2), golden=torch.tanh)"
    test = pytester.makepyfile(test_own=f"import torch\ndef test_it(precision):\n    {body}")
    words = ("--msprobe-overflow=dump.json", "-omsprobe_overflow_level=high", "--msprobe-device=cpu")
    result = pytester.runpytest_subprocess("test_own.py", *words)
    assert f"Run this item alone: pytest {test}::test_it --msprobe-device cpu\n" in result.stdout.str()


@pytest.mark.parametrize(("level", "failing"), [("critical", 1), ("high", 2), ("medium", 3)])
def test_a_level_and_what_is_graver_fails(
    write_dump: Check, overflowing: Json, check: Check, level: str, failing: int
) -> None:
    write_dump(overflowing)
    assert len(check("--msprobe-overflow=dump.json", f"-omsprobe_overflow_level={level}").wrong) == failing


def test_a_warning_that_is_to_be_an_error_is_reported_in_one_line(
    write_dump: Check, overflowing: Json, check: Check
) -> None:
    write_dump(overflowing)
    checked = check("--msprobe-overflow=dump.json", "-Werror")
    assert checked.cases["Torch.relu.0.forward"].text == "overflow, high: inf or nan in the input and in the output"


@pytest.mark.parametrize("style", ["auto", "line", "no"])
def test_where_the_culprit_is_is_reported_once(check: Check, pytester: Any, style: str) -> None:
    shutil.copytree(EXAMPLE / "rank2", pytester.path / "d")
    output = check("--msprobe-overflow=d", f"--tb={style}").output
    assert f", {CULPRIT}, between communications" in output
    assert output.count("called at /home/user/project/train.py, line 20, in step") == 1


def test_of_many_ranks_the_header_is_one_line(check: Check) -> None:
    output = check(f"--msprobe-overflow={EXAMPLE}", "--collect-only").output
    (line,) = [line for line in output.splitlines() if line.startswith("msprobe: ") and "ranks, " in line]
    assert "rank0/dump.json to " in line


def test_equal_warnings_are_one(write_dump: Check, element: Check, forward: Check, check: Check) -> None:
    bad = element(2, high=float("nan"))
    write_dump({f"Torch.relu.{i}.forward": forward(bad) for i in range(30)})
    assert check("--msprobe-overflow=dump.json").output.count("PrecisionWarning: overflow") == 1


def test_warnings_of_one_kind_are_named_by_the_first_record_and_counted(
    write_dump: Check, element: Check, forward: Check, check: Check
) -> None:
    bad = element(2, high=float("nan"))
    write_dump({f"Torch.relu.{i}.forward": forward(bad) for i in range(4)})
    named = "warned: Torch.relu.1.forward (and 2 more): high: inf or nan in the input and in the output"
    assert named in check("--msprobe-overflow=dump.json").output


def test_a_failure_shows_outputs_inputs_stack_modules_and_how_to_run_it_again(check: Check, pytester: Any) -> None:
    shutil.copytree(EXAMPLE / "rank2", pytester.path / "d")
    (pytester.path / "d/construct.json").write_text(json.dumps({CULPRIT: "Module.net.Net.forward.0"}))
    text = check("--msprobe-overflow=d").cases[CULPRIT].text
    for said in (
        "output.0 torch.float32 (8,): fail by overflow",
        "Max inf, Min inf",
        "critical: inf or nan in the output and none in the input",
        "input.0 torch.float32 (8,): Max 3637.43, Min 3424.43",
        "in Module.net.Net.forward.0",
        "called at /home/user/project/train.py, line 20, in step, scores = torch.exp(scores * 1000)",
        f"pytest --msprobe-overflow={pytester.path}/d/dump.json::{CULPRIT}",
    ):
        assert said in text, said


def test_the_rerun_command_repeats_the_options_and_the_failure(
    write_dump: Check, overflowing: Json, check: Check, pytester: Any
) -> None:
    write_dump(overflowing)
    (pytester.path / "mine.yaml").write_text("ignore_nan_inf: []")
    checked = check(
        "--msprobe-overflow=dump.json", "-omsprobe_overflow_level=high", "-omsprobe_overflow_ignore=mine.yaml"
    )
    command = checked.cases["Torch.relu.0.forward"].text.rpartition("Run this item alone: ")[2].split()
    assert command[2:] == [
        "-o",
        "msprobe_overflow_level=high",
        "-o",
        f"msprobe_overflow_ignore={pytester.path / 'mine.yaml'}",
    ]
    assert check(*command[1:]).wrong == {"Torch.relu.0.forward"}


def test_the_summary_leads_with_the_first_culprit_of_all_ranks(check: Check) -> None:
    checked = check(f"--msprobe-overflow={EXAMPLE}")
    assert checked.wrong == {CULPRIT}
    section = checked.output.partition("= msprobe overflow =")[2].splitlines()
    assert section[1] == f"first culprit: rank 2, {CULPRIT}, between communications"
    assert section[2] == f"  {EXAMPLE / 'rank2' / 'dump.json'}"
    assert "levels: 1 critical, 12 high, 16 clean" in checked.output


def test_a_dump_with_stack_files_missing_says_so(check: Check, pytester: Any) -> None:
    shutil.copy(EXAMPLE / "rank2/dump.json", pytester.path)
    checked = check("--msprobe-overflow=dump.json")
    assert "(no stack.json next to the dump)" in checked.cases[CULPRIT].text
    assert "(no construct.json next to the dump)" in checked.cases[CULPRIT].text


def test_gradients_of_parameters_are_counted_and_not_judged(
    write_dump: Check, element: Check, records: Json, check: Check
) -> None:
    name = "Module.fc.Linear.parameters_grad"
    write_dump(records | {name: {"weight": [element(2, high=float("nan"))]}}, level="mix")
    checked = check("--msprobe-overflow=dump.json")
    assert name not in checked.cases
    assert "1 record of parameters' gradients not judged: no inputs to compare with" in checked.output


def test_a_record_without_statistics_is_skipped(
    write_dump: Check, element: Check, forward: Check, check: Check
) -> None:
    write_dump({"Torch.relu.0.forward": forward(element(2, low=None, high=None))})
    checked = check("--msprobe-overflow=dump.json", "-rs")
    assert checked.outcomes == {"Torch.relu.0.forward": "skipped"}
    assert "the dump holds no statistics of this record's tensors" in checked.output


def test_a_malformed_record_is_one_failure_that_names_the_place(
    write_dump: Check, overflowing: Json, check: Check
) -> None:
    overflowing["Torch.tanh.0.forward"] = {"input_args": ["Infinity"], "output": {}}
    path = write_dump(overflowing)
    checked = check("--msprobe-overflow=dump.json")
    assert checked.wrong == {"Torch.exp.0.forward", "Torch.tanh.0.forward"}
    assert '$.data["Torch.tanh.0.forward"].input_args[0]' in checked.cases["Torch.tanh.0.forward"].text
    assert f"left out as malformed: {path}::Torch.tanh.0.forward" in checked.output


def test_dumps_of_mindspore_are_searched(write_dump: Check, element: Check, forward: Check, check: Check) -> None:
    bad = element(2, high=float("inf"), type="mindspore.Tensor", dtype="Float32")
    write_dump({"Mint.exp.0.forward": forward(element(2), output=[bad])}, framework="mindspore")
    assert check("--msprobe-overflow=dump.json").wrong == {"Mint.exp.0.forward"}


def test_only_and_skip_choose_records(write_dump: Check, overflowing: Json, check: Check) -> None:
    write_dump(overflowing)
    assert check("--msprobe-overflow=dump.json", "--msprobe-only=relu").outcomes == {"Torch.relu.0.forward": "passed"}


def test_the_file_of_msprobe_holds_the_first_culprits(check: Check, pytester: Any) -> None:
    check(f"--msprobe-overflow={EXAMPLE}", "--msprobe-json=found")
    (path,) = (pytester.path / "found").iterdir()
    assert path.match("anomaly_analyze_*.json")
    content = json.loads(path.read_text())
    ((rank, (entry,)),) = content.items()
    assert (rank, entry["op_name"], entry["construct_info"]) == ("rank_2", CULPRIT, [CULPRIT])
    assert set(entry["data_info"]) == {"input_args", "input_kwargs", "output"}
    assert entry["data_info"]["output"][0]["Max"] == float("inf")
    assert entry["stack_info"][0].startswith("File /home/user/project/train.py, line 20")


def test_several_steps_name_the_first_and_count_on(check: Check, pytester: Any) -> None:
    for step in ("step1", "step2"):
        shutil.copytree(EXAMPLE, pytester.path / "d" / step)
    output = check("--msprobe-overflow=d").output
    assert output.count("first culprit:") == 1
    assert f"also in {pytester.path / 'd' / 'step2'}: rank 2, {CULPRIT}" in output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["-omsprobe_overflow_level=hihg"],
            "msprobe_overflow_level 'hihg': not one of critical, high, medium; did you mean 'high'?",
        ),
        (["-omsprobe_overflow_ignore=gone.yaml"], "gone.yaml: cannot be read"),
        (["-omsprobe_overflow_ignore=dump.json"], "dump.json: not a file of rules; expected one key, ignore_nan_inf"),
        (["--msprobe-json=dump.json"], "dump.json': File exists"),
        (["--msprobe-dump=dump.json"], "--msprobe-dump and --msprobe-overflow cannot be combined; pass one of them"),
    ],
)
def test_a_wrong_option_is_one_usage_error(
    write_dump: Check, overflowing: Json, pytester: Any, arguments: list[str], said: str
) -> None:
    write_dump(overflowing)
    result = pytester.runpytest_inprocess("--msprobe-overflow=dump.json", *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert said in "\n".join(result.errlines)


def test_an_option_without_a_dump_to_search_is_a_usage_error(pytester: Any) -> None:
    result = pytester.runpytest_inprocess("-omsprobe_overflow_level=high")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "has no effect without --msprobe-overflow; pass --msprobe-overflow PATH" in "\n".join(result.errlines)


def test_the_search_loads_neither_torch_nor_yaml(pytester: Any) -> None:
    pytester.makeconftest(
        "import sys\n\ndef pytest_unconfigure():\n    print('torch' in sys.modules, 'yaml' in sys.modules)"
    )
    result = pytester.runpytest_subprocess(f"--msprobe-overflow={EXAMPLE}", "-s")
    assert result.stdout.str().splitlines()[-1] == "False False"


@pytest.mark.slow
def test_workers_show_the_same(check: Check) -> None:
    checked = check(f"--msprobe-overflow={EXAMPLE}", "-n2", apart=True)
    assert checked.wrong == {CULPRIT}
    assert "levels: 1 critical, 12 high, 16 clean" in checked.output


def test_a_journal_is_resumed_only_at_the_same_level(write_dump: Check, overflowing: Json, check: Check) -> None:
    write_dump(overflowing)
    check("--msprobe-overflow=dump.json", "--msprobe-journal=run.jsonl")
    again = check("--msprobe-overflow=dump.json", "--msprobe-resume=run.jsonl")
    assert "0 records: nothing left" in again.output
    other = check("--msprobe-overflow=dump.json", "--msprobe-resume=run.jsonl", "-omsprobe_overflow_level=high")
    assert "was made with overflow_level critical, this run has high" in other.errors


def test_a_file_of_culprits_that_cannot_be_written_is_reported(pytester: pytest.Pytester, check: Any) -> None:
    pytester.makeconftest(
        "from pathlib import Path\n\ndef pytest_collection_finish():\n    Path('out').rmdir()\n    Path('out').touch()"
    )
    checked = check(f"--msprobe-overflow={EXAMPLE}", "--msprobe-json=out", "-k", "not forward and not backward")
    assert "ERROR: --msprobe-json: " in checked.output
    assert "out: cannot be written: Not a directory" in checked.output
    assert checked.exit_code == pytest.ExitCode.INTERNAL_ERROR


def test_kernels_of_a_static_graph_are_refused(pytester: pytest.Pytester, tmp_path: Path) -> None:
    run = GraphFolder(tmp_path)
    dense_step(run, run.iteration(), np.ones((4, 2), np.float32))
    result = pytester.runpytest("--msprobe-overflow", str(run.folder))
    result.stderr.fnmatch_lines([f"*{run.iteration()}: holds kernels, not calls; *"])


def test_levels_are_the_same_for_options_and_anomalies() -> None:
    assert options.LEVELS == LEVELS


def test_what_is_about_checks_is_refused(pytester: pytest.Pytester, write_dump: Any) -> None:
    write_dump(three_calls())
    result = pytester.runpytest_inprocess("--msprobe-overflow=dump.json", "--msprobe-repeat=3")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    expected = "ERROR: --msprobe-repeat does not work with --msprobe-overflow; remove --msprobe-repeat"
    assert result.stderr.str().strip() == expected


def test_saved_variables_are_no_calls_to_check(pytester: pytest.Pytester) -> None:
    path = write_dump(pytester.path, {"loss.0.debug": tensor_around(4)}, level="debug")
    path = path.rename(path.with_name("debug.json"))
    result = pytester.runpytest_inprocess(f"--msprobe-overflow={path}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *debug.json: level debug: saved variables, no calls to check; *"])


def test_a_record_that_cannot_be_decoded_costs_no_other(write_dump: Any, records: Json, check: Any) -> None:
    deep, broken = "Torch.abs.0.forward", "Torch.abs.1.forward"
    path = write_dump({deep: "DEEP", broken: "BROKEN", **records})
    text = path.read_bytes().replace(b'"DEEP"', b'{"input_args": [' + b"[" * 5000 + b"]" * 5000 + b"]}")
    path.write_bytes(text.replace(b'"BROKEN"', b'{"input_args": ["\xb0", NaN]}'))
    checked = check("--msprobe-overflow=dump.json")
    assert checked.cases.keys() == {deep, broken, *records}
    assert {broken} <= checked.wrong <= {deep, broken}


def test_a_terminal_gets_no_character_that_it_would_obey(records: Json, pytester: pytest.Pytester) -> None:
    path = write_dump(pytester.path, escaping_records(records["Functional.softmax.0.forward"]))
    result = pytester.runpytest_inprocess(f"--msprobe-overflow={path}", "-v", "-rA")
    assert shapeless(result.stdout.str() + result.stderr.str()) == set()
    assert r"Torch.\x1b]0;pwned" in result.stdout.str()


def test_items_answer_as_items_without_a_function(pytester: pytest.Pytester, records: Json) -> None:
    write_dump(pytester.path, records)
    assert_has_no_function(pytester.inline_genitems("--msprobe-overflow=dump.json")[0][0])


def test_a_search_has_no_shards(pytester: pytest.Pytester, write_dump: Any) -> None:
    write_dump(three_calls())
    result = pytester.runpytest_inprocess("--msprobe-overflow=dump.json", "--msprobe-shard=1/2")
    expected = "ERROR: --msprobe-shard does not work with --msprobe-overflow; remove --msprobe-shard"
    assert result.stderr.str().strip() == expected


@pytest.mark.parametrize("level", ["L0", "L1"])
def test_what_comes_in_at_level_l0_may_be_made_between_modules(
    write_dump: Any, check: Any, element: Any, level: str
) -> None:
    nan = element(2, low="NaN", high="NaN")
    modules = {"input_args": [nan], "input_kwargs": {}, "output": [nan], "parameters": {}}
    write_dump({"Module.fc.Linear.forward.0": modules}, level=level)
    text = check("--msprobe-overflow=dump.json").cases["Module.fc.Linear.forward.0"].text
    assert ("level L0 records modules alone" in text) == (level == "L0")
