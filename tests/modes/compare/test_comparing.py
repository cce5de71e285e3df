"""Comparing as a test run: items, ids, outcomes, files, and what the terminal says."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.dumps import value, write_dump

Compare = Callable[..., pytest.RunResult]


@pytest.fixture
def three(runs: Any, call: Any, tensor: Any) -> tuple[Path, Path]:
    """Return two runs of three calls of which the second is wrong and the third inherits its error."""
    names = ["Torch.relu.0.forward", "Torch.mm.0.forward", "Torch.tanh.0.forward"]
    golden = {name: call(tensor(4, 4)) for name in names}
    wrong = tensor(4, 4, Max=1.5)
    target = {names[0]: call(tensor(4, 4)), names[1]: call(tensor(4, 4), out=wrong), names[2]: call(wrong, out=wrong)}
    paths: tuple[Path, Path] = runs.both(target, golden)
    return paths


def test_each_call_is_an_item_and_a_wrong_one_fails(compare: Compare, three: tuple[Path, Path]) -> None:
    result = compare(*three, "-v", "-p", "no:warnings")
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["*dump.json::Torch*relu*forward PASSED*", "*dump.json::Torch*mm*forward FAILED*"])


def test_the_summary_leads_with_the_first_culprit(compare: Compare, three: tuple[Path, Path]) -> None:
    result = compare(*three)
    result.stdout.fnmatch_lines(
        [
            "* msprobe *",
            "first forward culprit: Torch.mm.0.forward (output.0: differs by 0.333 of its scale; 0.00024 is allowed)",
            "3 calls: 1 equal enough, 2 wrong",
            "1 of them inherited their error from their inputs",
        ]
    )


def test_the_summary_tells_how_what_the_culprit_was_given_differs(
    compare: Compare, runs: Any, call: Any, tensor: Any
) -> None:
    golden = {"Torch.mm.0.forward": call(tensor(4, 4), value(1e-5))}
    target = {"Torch.mm.0.forward": call(tensor(4, 4), value(0.01), out=tensor(4, 4, Max=1.5))}
    expected = "*what it was given differs too: input.1 (0.01 in place of 1e-05; 0.00024 is allowed)"
    compare(*runs.both(target, golden)).stdout.fnmatch_lines([expected])


def test_the_failure_tells_what_how_much_and_how_to_run_it_again(compare: Compare, three: tuple[Path, Path]) -> None:
    (three[0].parent / "stack.json").write_text(
        json.dumps({"0": [["Torch.mm.0.forward"], ["File model.py, line 7, in forward, \n x @ w"]]})
    )
    (three[0].parent / "construct.json").write_text(json.dumps({"Torch.mm.0.forward": "Module.head.Linear.forward.0"}))
    result = compare(*three)
    result.stdout.fnmatch_lines(
        [
            "output.0: differs by 0.333 of its scale; 0.00024 is allowed",
            "Torch.mm.0.forward is wrong",
            "output.0 torch.float32 (4, 4): fail by default",
            "*target: max 1.5, min -1, mean 0.25, norm 2",
            "*golden: max 1, min -1, mean 0.25, norm 2",
            "*The error begins here: check the forward computation of this call.",
            "*called in Module.head.Linear.forward.0",
            "*File model.py, line 7, in forward, x @ w",
            "Run this item alone: pytest --msprobe-compare=*::Torch.mm.0.forward --msprobe-golden *",
        ]
    )


def test_the_command_of_a_failure_runs_that_item_alone(compare: Compare, three: tuple[Path, Path]) -> None:
    result = compare(Path(f"{three[0]}::Torch.mm.0.forward"), three[1])
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["first forward culprit: Torch.mm.0.forward *"])


@pytest.mark.slow
def test_workers_see_the_same_items(compare: Compare, three: tuple[Path, Path]) -> None:
    result = compare(*three, "-n", "2", apart=True)
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["first forward culprit: Torch.mm.0.forward *"])


def test_items_are_chosen_by_keyword_and_by_api(compare: Compare, three: tuple[Path, Path]) -> None:
    compare(*three, "-k", "relu").assert_outcomes(passed=1, deselected=2)
    compare(*three, "--msprobe-only", "mm,tanh").assert_outcomes(failed=2, deselected=1)
    compare(*three, "-m", "forward and float32").assert_outcomes(passed=1, failed=2)


def test_a_journal_is_written_and_resumed(compare: Compare, three: tuple[Path, Path], tmp_path: Path) -> None:
    journal = str(tmp_path / "run.jsonl")
    compare(*three, "--msprobe-journal", journal).assert_outcomes(passed=1, failed=2)
    compare(*three, "--msprobe-resume", journal).assert_outcomes(deselected=3)
    compare(*three, "--msprobe-resume", journal, "--msprobe-rerun=fail").assert_outcomes(failed=2, deselected=1)


def test_the_table_of_a_resumed_comparison_says_what_it_lacks(
    compare: Compare, three: tuple[Path, Path], tmp_path: Path
) -> None:
    journal = str(tmp_path / "run.jsonl")
    compare(*three, "-k", "relu", "--msprobe-journal", journal).assert_outcomes(passed=1, deselected=2)
    result = compare(*three, "--msprobe-resume", journal, "--msprobe-csv", str(tmp_path / "out"))
    result.stdout.fnmatch_lines(["msprobe report: *.csv (without the 1 calls that had finished before this run)"])


def test_a_journal_of_another_golden_run_is_refused(compare: Compare, three: tuple[Path, Path], tmp_path: Path) -> None:
    journal = str(tmp_path / "run.jsonl")
    compare(*three, "--msprobe-journal", journal)
    three[1].write_text(three[1].read_text() + " ")
    result = compare(*three, "--msprobe-resume", journal)
    result.stderr.fnmatch_lines(["*was made from other dumps*"])


def test_junit_holds_verdict_partner_and_cause(compare: Compare, three: tuple[Path, Path], tmp_path: Path) -> None:
    compare(*three, f"--junitxml={tmp_path / 'report.xml'}")
    text = (tmp_path / "report.xml").read_text()
    assert text.count("<testcase") == text.count('name="msprobe.verdict"') == 3
    assert 'name="msprobe.verdict" value="pass"' in text
    assert 'name="msprobe.cause" value="inherited"' in text
    assert 'name="msprobe.golden" value="Torch.mm.0.forward"' in text


def test_calls_without_partner_are_visible_on_both_sides(compare: Compare, runs: Any, call: Any, tensor: Any) -> None:
    both = {"Torch.relu.0.forward": call(tensor(4))}
    target = both | {"Torch.mm.0.forward": call(tensor(4))}
    golden = both | {"Torch.bmm.0.forward": call(tensor(4))}
    result = compare(*runs.both(target, golden), "-v")
    result.assert_outcomes(passed=1, skipped=2)
    result.stdout.fnmatch_lines(
        [
            "*::Torch*bmm*forward?golden? SKIPPED*",
            "*::Torch*mm*forward SKIPPED*",
            "3 calls: 1 equal enough, 2 not compared",
            "1 not compared: the target has no such call",
            "1 not compared: the golden run has no such call",
        ],
        consecutive=False,
    )


def step(call: Any, tensor: Any, batch: int, weight: float = 1.0, loss: float = 1.0) -> Any:
    """Return two layers and their loss; the first weight and the loss differ with what is given."""
    x, w = tensor(batch, 4, Max=float(batch)), tensor(4, 4)
    return {
        "Functional.linear.0.forward": call(x, w, out=x),
        "Functional.linear.1.forward": call(x, tensor(4, 4, Max=weight), out=x),
        "Functional.mse_loss.0.forward": call(x, x, out=tensor(Max=loss)),
        "Functional.mse_loss.0.backward": {"input": [tensor()], "output": [x]},
    }


def test_another_batch_size_is_one_sentence(compare: Compare, runs: Any, call: Any, tensor: Any) -> None:
    result = compare(*runs.both(step(call, tensor, 3, loss=2.0), step(call, tensor, 2)))
    result.stdout.fnmatch_lines(
        [
            "the runs had other input shapes: Functional.linear.0.forward input.0 is [[]3, 4[]] in place of *",
            "4 calls: 1 wrong, 3 not compared",
            "3 not compared: the runs had other input shapes, and what differs after that may follow from it",
        ],
        consecutive=True,
    )
    result.assert_outcomes(failed=1, skipped=3)


def test_a_policy_may_have_each_call_after_another_batch_size_fail(
    compare: Compare, runs: Any, call: Any, tensor: Any
) -> None:
    result = compare(*runs.both(step(call, tensor, 3), step(call, tensor, 2)), "--msprobe-policy", "msprobe-26")
    result.assert_outcomes(failed=4)


def test_another_length_is_one_sentence_where_the_first_call_makes_a_tensor_of_it(
    compare: Compare, runs: Any, call: Any, tensor: Any
) -> None:
    steps = [{"Torch.arange.0.forward": call(value(n), out=tensor(n)), **step(call, tensor, n)} for n in (3, 2)]
    result = compare(*runs.both(*steps))
    result.stdout.fnmatch_lines(
        ["the runs had other input shapes: Torch.arange.0.forward output.0 is [[]3[]] in place of *"]
    )
    result.stdout.no_fnmatch_line("first * culprit*")


def test_beside_another_batch_size_a_culprit_is_named(compare: Compare, runs: Any, call: Any, tensor: Any) -> None:
    extra = {"Torch.exp.0.forward": call(tensor(4), out=tensor(4, Max=3.0))}
    result = compare(
        *runs.both(step(call, tensor, 3) | extra, step(call, tensor, 2) | {"Torch.exp.0.forward": call(tensor(4))})
    )
    result.stdout.fnmatch_lines(["the runs had other input shapes: *", "first forward culprit: Torch.exp.0.forward *"])


def test_beside_another_batch_size_another_shape_made_of_the_same_is_a_culprit(
    compare: Compare, runs: Any, call: Any, tensor: Any
) -> None:
    steps = [step(call, tensor, n) | {"Torch.exp.0.forward": call(tensor(4), out=tensor(n + 2))} for n in (3, 2)]
    result = compare(*runs.both(*steps))
    result.stdout.fnmatch_lines(["the runs had other input shapes: *", "first forward culprit: Torch.exp.0.forward *"])
    result.assert_outcomes(failed=2, skipped=3)


def test_beside_another_batch_size_what_its_arguments_ask_for_is_not_compared(
    compare: Compare, runs: Any, call: Any, tensor: Any
) -> None:
    steps = [
        step(call, tensor, n) | {"Tensor.expand.0.forward": call(tensor(1), value(n), out=tensor(n))} for n in (3, 2)
    ]
    compare(*runs.both(*steps)).assert_outcomes(failed=1, skipped=4)


def test_a_transposition_is_no_other_batch_size(compare: Compare, runs: Any, call: Any, tensor: Any) -> None:
    target, golden = ({"Torch.exp.0.forward": call(tensor(*shape))} for shape in ((4, 3), (3, 4)))
    wrong = {"Torch.tanh.0.forward": call(tensor(4, Max=2.0))}, {"Torch.tanh.0.forward": call(tensor(4))}
    result = compare(*runs.both(target | wrong[0], golden | wrong[1]))
    result.stdout.fnmatch_lines(["first forward culprit: Torch.exp.0.forward *"])
    result.stdout.no_fnmatch_line("*other input shapes*")
    result.assert_outcomes(failed=2)


def test_one_length_that_makes_tensors_of_two_shapes_is_a_fault(
    compare: Compare, runs: Any, call: Any, tensor: Any
) -> None:
    steps = [{"Torch.arange.0.forward": call(value(4), out=tensor(n)), **step(call, tensor, n)} for n in (5, 4)]
    result = compare(*runs.both(*steps))
    result.stdout.fnmatch_lines(["first forward culprit: Torch.arange.0.forward *"])
    result.stdout.no_fnmatch_line("*other input shapes*")


def test_shapes_that_do_not_fit_suggest_fuzzy_matching(compare: Compare, runs: Any, call: Any, tensor: Any) -> None:
    sizes = [3, 5, 7]
    golden = {f"Torch.mm.{i}.forward": call(tensor(size)) for i, size in enumerate(sizes)}
    target = {f"Torch.mm.{i}.forward": call(tensor(size)) for i, size in enumerate([4, *sizes])}
    paths = runs.both(target, golden)
    hint = "calls of other shapes were compared, as Torch.mm.0.forward, and 1 calls have no partner: --msprobe-fuzzy *"
    compare(*paths).stdout.fnmatch_lines(["first forward culprit: Torch.mm.0.forward *", hint])
    compare(*paths, "--msprobe-fuzzy").stdout.no_fnmatch_line("*--msprobe-fuzzy pairs*")


SAVED = {"task": "statistics", "level": "debug"}


@pytest.fixture
def saved(tmp_path: Path, tensor: Any) -> tuple[Path, Path]:
    """Write two recordings of saved variables, as msprobe 26 does, and return their folders; one tensor differs."""
    for side, greatest in (("target", 2.0), ("golden", 1.0)):
        variables = {"loss.0.debug": tensor(4), "state.0.debug": {"h": [tensor(4), tensor(4, Max=greatest)]}}
        path = write_dump(tmp_path / side / "step0" / "rank0", variables, **SAVED)
        path.rename(path.with_name("debug.json"))
    return tmp_path / "target", tmp_path / "golden"


def test_variables_that_were_saved_by_name_are_compared(
    compare: Compare, saved: tuple[Path, Path], tmp_path: Path
) -> None:
    result = compare(*saved, f"--msprobe-csv={tmp_path}")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["first saved value that differs: state.0.debug (debug.h.1: *"])
    (table,) = tmp_path.glob("*.csv")
    names = [line.split(",")[0] for line in table.read_text().splitlines()[1:]]
    assert names == ["loss.0.debug", "state.0.debug.h.0", "state.0.debug.h.1"]


@pytest.mark.parametrize("mode", ["dump", "overflow"])
def test_saved_variables_are_no_calls_to_check(pytester: pytest.Pytester, saved: tuple[Path, Path], mode: str) -> None:
    result = pytester.runpytest_inprocess(f"--msprobe-{mode}={saved[0]}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *debug.json: level debug holds saved variables and no calls; *"])


def test_runs_of_which_nothing_was_compared_are_not_called_equal(compare: Compare, runs: Any) -> None:
    records = {"Torch.relu.0.forward": {"input_args": [], "output": []}, "Torch.abs.0.forward": []}
    result = compare(*runs.both(records, records | {"Torch.abs.0.forward": [0]}))
    result.stdout.fnmatch_lines(["nothing was compared", "2 calls: 1 wrong, 1 not compared"], consecutive=True)


def test_renamed_layers_are_named(compare: Compare, real_runs: Path) -> None:
    folder = real_runs / "lstm-26.2.0-mix-statistics"
    result = compare(folder / "rename" / "dump.json", folder / "base" / "dump.json")
    result.assert_outcomes(passed=176)
    result.stdout.fnmatch_lines(["no compared call differs", "*lm_head is head in the golden run"])


def test_nothing_heavy_is_loaded_for_statistics(pytester: pytest.Pytester, three: tuple[Path, Path]) -> None:
    pytester.makeconftest(
        """
        import sys

        def pytest_unconfigure():
            print("loaded:", sorted({"torch", "numpy"} & set(sys.modules)))
        """
    )
    words = ("--msprobe-compare", str(three[0]), "--msprobe-golden", str(three[1]), "-s")
    pytester.runpytest_subprocess(*words).stdout.fnmatch_lines(["*loaded: ?]"])


def test_steps_and_ranks_are_paired_by_their_numbers(compare: Compare, runs: Any, call: Any, tensor: Any) -> None:
    for rank in (2, 9, 10):
        records = {f"Torch.mm.{rank}.forward": call(tensor(rank))}
        runs.write(f"golden/step0/rank{rank}", records)
        wrong = {f"Torch.mm.{rank}.forward": call(tensor(rank), out=tensor(rank, at=7))}
        runs.write(f"target/step0/rank{rank}", wrong if rank == 9 else records)
    result = compare(runs.folder / "target", runs.folder / "golden")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "step 0, rank 9: first forward culprit: Torch.mm.9.forward *",
            "wrong calls by rank and step:",
            "*step0",
            "*rank2 *ok",
            "*rank9 *1",
            "*rank10 *ok",
        ]
    )


def test_a_rank_that_one_side_lacks_is_an_error(compare: Compare, runs: Any, call: Any, tensor: Any) -> None:
    records = {"Torch.mm.0.forward": call(tensor(2))}
    for folder in ("target/step0/rank0", "target/step0/rank1", "golden/step0/rank0"):
        runs.write(folder, records)
    result = compare(runs.folder / "target", runs.folder / "golden")
    result.stderr.fnmatch_lines(["*rank1/dump.json: the golden run has no dump of step 0 and rank 1*"])


def test_the_quick_question_has_one_answer(compare: Compare, three: tuple[Path, Path]) -> None:
    compare(three[1], three[1], "--msprobe-compare-quick").assert_outcomes(passed=1)
    result = compare(*three, "--msprobe-compare-quick")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["2 of 3 records differ, the first is Torch.mm.0.forward", "output.0: differs by 0.333*"]
    )


def test_a_policy_may_fail_calls_without_partner(
    compare: Compare, runs: Any, call: Any, tensor: Any, tmp_path: Path
) -> None:
    both = {"Torch.relu.0.forward": call(tensor(4))}
    policy = tmp_path / "strict.yaml"
    policy.write_text(
        "rule: msprobe-26\nlimits: {rel_err_thousandth: [0.9, 0.1], cosine_sim: [0.9, 0.1], norm_rel_diff: [0.1, 0.5],"
        " norm_growth: 10}\nunmatched: fail\n"
    )
    paths = runs.both(both | {"Torch.mm.0.forward": call(tensor(4))}, both)
    compare(*paths, "--msprobe-policy", str(policy)).assert_outcomes(passed=1, failed=1)


# Real tensors


@pytest.fixture
def tensors(real_runs: Path, tmp_path: Path) -> Iterator[Path]:
    """Return a copy of two runs with their tensors."""
    source = real_runs / "lstm-26.2.0-L1-tensor"
    for name, run in (("target", "base"), ("golden", "base")):
        shutil.copytree(source / run, tmp_path / name)
    return tmp_path


def dumps_below(folder: Path) -> tuple[Path, Path]:
    return folder / "target" / "dump.json", folder / "golden" / "dump.json"


def only(name: str) -> tuple[str, str]:
    return "-k", name.replace(".", " and ")


def test_equal_tensors_pass(compare: Compare, tensors: Path) -> None:
    compare(*dumps_below(tensors)).assert_outcomes(passed=159)


def test_a_missing_tensor_file_fails_its_call_and_names_the_file(compare: Compare, tensors: Path) -> None:
    missing = tensors / "golden" / "dump_tensor_data" / "Torch.tanh.0.forward.output.0.pt"
    missing.unlink()
    result = compare(*dumps_below(tensors), "-k", "tanh and forward")
    result.assert_outcomes(failed=1, deselected=158)
    result.stdout.fnmatch_lines([f"*missing: {missing}*"])


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no tensor", b"\x80\x02."])
def test_a_damaged_tensor_file_fails_its_call_and_names_the_file(
    compare: Compare, tensors: Path, content: bytes
) -> None:
    damaged = tensors / "target" / "dump_tensor_data" / "Torch.tanh.0.forward.output.0.pt"
    damaged.write_bytes(content)
    result = compare(*dumps_below(tensors), "-k", "tanh and forward")
    result.assert_outcomes(failed=1, deselected=158)
    result.stdout.fnmatch_lines([f"*{damaged}: not a readable tensor file*"])


def test_a_tensor_of_another_shape_than_recorded_fails_its_call(compare: Compare, tensors: Path) -> None:
    path = tensors / "target" / "dump_tensor_data" / "Torch.tanh.0.forward.output.0.pt"
    torch.save(torch.zeros(3), path)
    result = compare(*dumps_below(tensors), "-k", "tanh and forward")
    result.assert_outcomes(failed=1, deselected=158)
    result.stdout.fnmatch_lines(["*belongs to another dump*"])


def test_a_missing_tensor_folder_is_one_error(compare: Compare, tensors: Path) -> None:
    shutil.rmtree(tensors / "golden" / "dump_tensor_data")
    result = compare(*dumps_below(tensors))
    result.stderr.fnmatch_lines(["*dump_tensor_data: no such folder; copy the recorded tensors beside dump.json"])


# Wrong input


def test_the_golden_run_must_be_named(pytester: pytest.Pytester, three: tuple[Path, Path]) -> None:
    result = pytester.runpytest_inprocess("--msprobe-compare", str(three[0]))
    result.stderr.fnmatch_lines(["*give --msprobe-golden PATH as well"])


def test_the_target_must_be_named(pytester: pytest.Pytester, three: tuple[Path, Path]) -> None:
    result = pytester.runpytest_inprocess("--msprobe-golden", str(three[0]))
    result.stderr.fnmatch_lines(["*--msprobe-golden is for comparing two runs: give --msprobe-compare PATH"])


@pytest.mark.parametrize("side", [0, 1])
def test_a_missing_side_is_an_error(compare: Compare, three: tuple[Path, Path], side: int) -> None:
    paths = list(three)
    paths[side] = three[0].parent / "none.json"
    result = compare(*paths)
    result.stderr.fnmatch_lines(["*none.json*no such file*"])


@pytest.mark.parametrize(
    ("top", "problem"),
    [
        ({"task": "tensor"}, "*task statistics, but *has task tensor; record both with the same task"),
        ({"level": "mix"}, "*level L1, but *has level mix; record both at the same level"),
    ],
)
def test_other_tasks_and_levels_are_refused(
    compare: Compare, runs: Any, three: tuple[Path, Path], call: Any, tensor: Any, top: Any, problem: str
) -> None:
    golden = runs.write("golden", {"Torch.mm.0.forward": call(tensor(2))}, **top)
    compare(three[0], golden).stderr.fnmatch_lines([problem])


def test_checksums_on_one_side_alone_are_refused(
    compare: Compare, runs: Any, three: tuple[Path, Path], call: Any, tensor: Any
) -> None:
    golden = runs.write("golden", {"Torch.mm.0.forward": call(tensor(2, md5="0a"))})
    compare(three[0], golden).stderr.fnmatch_lines(["*recorded with checksums*without; record both the same way"])


def test_what_two_searches_for_overflow_wrote_is_compared(compare: Compare, runs: Any, call: Any, tensor: Any) -> None:
    records = {"Torch.exp.0.forward": call(tensor(2))}
    sides = runs.both(records, records, task="overflow_check")
    for side in sides:
        (side.parent / "dump_tensor_data").mkdir()
    compare(*sides).assert_outcomes(passed=1)


def test_another_model_is_one_error(compare: Compare, runs: Any, call: Any, tensor: Any) -> None:
    paths = runs.both({"Torch.mm.0.forward": call(tensor(2))}, {"Torch.relu.0.forward": call(tensor(2))})
    compare(*paths).stderr.fnmatch_lines(["*none of its 1 records matches one of *are these runs of one model?*"])


def test_a_malformed_record_fails_alone(compare: Compare, runs: Any, call: Any, tensor: Any) -> None:
    good = {"Torch.relu.0.forward": call(tensor(2)), "Torch.mm.0.forward": call(tensor(2))}
    bad = good | {"Torch.mm.0.forward": call(tensor(2, shape="wide"))}
    result = compare(*runs.both(bad, good))
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(['*data?"Torch.mm.0.forward"?.input.0.shape: expected an array of sizes'])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"Max": 10**309, "Min": 0}, ".Max: expected a number that a tensor can hold"),
        ({"shape": [10**24], "Min": 0}, ".shape: expected an array of sizes"),
    ],
)
def test_numbers_that_no_tensor_has_fail_their_record_alone(
    compare: Compare, runs: Any, call: Any, tensor: Any, fields: Any, said: str
) -> None:
    good = {"Torch.relu.0.forward": call(tensor(2)), "Torch.mm.0.forward": call(tensor(2))}
    bad = good | {"Torch.mm.0.forward": call(tensor(2, **fields))}
    result = compare(*runs.both(bad, good))
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines([f'*data?"Torch.mm.0.forward"?.input.0{said}'])


def test_a_call_with_an_empty_list_of_parents_is_in_no_module(compare: Compare, three: tuple[Path, Path]) -> None:
    name = next(iter(json.loads(three[0].read_text())["data"]))
    (three[0].parent / "construct.json").write_text(json.dumps({name: []}))
    compare(*three).assert_outcomes(passed=1, failed=2)


def test_a_damaged_construct_file_is_one_error(compare: Compare, three: tuple[Path, Path]) -> None:
    (three[0].parent / "construct.json").write_text("{")
    compare(*three).stderr.fnmatch_lines(["*construct.json: damaged*"])


# Data mapping


def test_a_mapping_pairs_values_of_other_names(
    compare: Compare, runs: Any, call: Any, tensor: Any, tmp_path: Path
) -> None:
    target = {"Torch.mine.0.forward": call(tensor(2), tensor(3))}
    golden = {"Torch.theirs.0.forward": call(tensor(3), tensor(2))}
    mapping = tmp_path / "map.yaml"
    mapping.write_text(
        "Torch.mine.0.forward.input.0: Torch.theirs.0.forward.input.1\n"
        "Torch.mine.0.forward.input.1: Torch.theirs.0.forward.input.0\n"
        "Torch.mine.0.forward.output.0: Torch.theirs.0.forward.input.1\n"
    )
    result = compare(*runs.both(target, golden), "--msprobe-data-mapping", str(mapping))
    # The golden output alone is left over.
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*only the golden run has it*", "*matched by mapping*"])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Torch.none.0.forward.input.0: Torch.mm.0.forward.input.0", "*no record of the target has the value*none*"),
        ("Torch.mm.0.forward.input.0: Torch.none.0.forward.input.0", "*no record of the golden has the value*none*"),
        ("[1, 2]", "*not a data mapping*"),
        ("a: [", "*not valid YAML at line 2*"),
    ],
)
def test_a_wrong_mapping_is_one_error(
    compare: Compare, three: tuple[Path, Path], tmp_path: Path, text: str, problem: str
) -> None:
    mapping = tmp_path / "map.yaml"
    mapping.write_text(text)
    result = compare(*three, "--msprobe-data-mapping", str(mapping))
    result.stderr.fnmatch_lines([problem])


def test_a_rank_of_which_nothing_was_compared_is_not_called_ok(
    compare: Compare, runs: Any, call: Any, tensor: Any
) -> None:
    for side in ("target", "golden"):
        runs.write(f"{side}/step0/rank0", {"Torch.relu.0.forward": call(tensor(2))})
        runs.write(f"{side}/step0/rank1", {"Torch.relu.0.forward": {"input_args": [], "output": []}})
    result = compare(runs.folder / "target", runs.folder / "golden")
    result.stdout.fnmatch_lines(["*rank0 *ok", "*rank1 *not compared"])
