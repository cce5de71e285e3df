"""Comparing as a test run: items, ids, outcomes, files, and what the terminal says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from msprobe_hooks import record

Compare = Callable[..., pytest.RunResult]


def test_each_call_is_an_item_and_a_wrong_one_fails(compare: Compare, three: tuple[Path, Path]) -> None:
    result = compare(*three, "-v", "-p", "no:warnings")
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["*dump.json::Torch*relu*forward PASSED*", "*dump.json::Torch*mm*forward FAILED*"])


def test_the_summary_leads_with_the_first_culprit(compare: Compare, three: tuple[Path, Path]) -> None:
    result = compare(*three)
    result.stdout.fnmatch_lines(
        [
            "* msprobe *",
            "first forward culprit: Torch.mm.0.forward (output.0: scaled error 3.33e-01 exceeds limit 2.40e-04, "
            "warning limit 6.00e-05)",
            "3 calls: 1 equal enough, 2 wrong",
            "1 of them inherited its error from its inputs (listed with -v)",
        ]
    )


def test_a_call_whose_inputs_differ_already_names_the_first_culprit(compare: Compare, three: tuple[Path, Path]) -> None:
    compare(*three, "-v").stdout.fnmatch_lines(["*Its inputs differ already; first culprit: Torch.mm.0.forward"])


def test_a_gradient_that_reads_wrong_values_of_its_forward_call_points_there(compare: Compare, tmp_path: Path) -> None:
    for run, factor in (("target", 1.02), ("golden", 1.0)):
        scale = torch.full((8,), factor)
        with record(tmp_path / run, level="L1", task="tensor", quiet=True):
            torch.square(torch.mul(torch.linspace(1, 2, 8, requires_grad=True), scale)).sum().backward()
    result = compare(tmp_path / "target", tmp_path / "golden")
    lines = [line.strip() for line in result.outlines]
    begin = lines.index("Torch.square.0.backward is wrong")
    assert "Its forward call differs, from whose values gradients are computed: check that call first." in lines[begin:]
    assert not any(line.startswith("The difference begins here") for line in lines[begin : begin + 12])


def test_a_gradient_of_values_that_differ_within_the_limit_says_so(compare: Compare, tmp_path: Path) -> None:
    for run, moved in (("target", 2.0**-24), ("golden", 0.0)):
        # The least root is 2^-15 apart; its gradient, which is larger than all others, by 2^-5 of itself.
        x = torch.linspace(1, 2, 64)
        x[0] = 2.0**-20 + moved
        with record(tmp_path / run, level="L1", task="tensor", quiet=True):
            torch.sqrt(x.requires_grad_()).sum().backward()
    result = compare(tmp_path / "target", tmp_path / "golden")
    begin = next(i for i, line in enumerate(result.outlines) if line.startswith("first backward culprit: Torch.sqrt.0"))
    said = "its forward call differs within the limit, from whose values gradients are computed"
    assert result.outlines[begin + 1].strip() == said


def test_a_run_that_is_compared_with_itself_is_reported(compare: Compare, three: tuple[Path, Path]) -> None:
    said = "msprobe: warning: the target and the golden run are one file"
    assert said in compare(three[0], three[0]).outlines
    assert said not in compare(*three).outlines


def test_calls_that_inherit_are_named_where_more_is_asked_for(compare: Compare, three: tuple[Path, Path]) -> None:
    result = compare(*three, "-v")
    result.stdout.fnmatch_lines(["1 of them inherited its error from its inputs: Torch.tanh.0.forward"])
    assert "listed with -v" not in result.stdout.str()


def test_the_failure_shows_what_how_much_and_how_to_run_it_again(compare: Compare, three: tuple[Path, Path]) -> None:
    (three[0].parent / "stack.json").write_text(
        json.dumps({"0": [["Torch.mm.0.forward"], ["File model.py, line 7, in forward, \n x @ w"]]})
    )
    (three[0].parent / "construct.json").write_text(json.dumps({"Torch.mm.0.forward": "Module.head.Linear.forward.0"}))
    result = compare(*three)
    result.stdout.fnmatch_lines(
        [
            "output.0: scaled error 3.33e-01 exceeds limit 2.40e-04, warning limit 6.00e-05",
            "Torch.mm.0.forward is wrong",
            "output.0 torch.float32 (4, 4): fail by default",
            "*The difference begins here: check the forward computation of this call.",
            "*called in Module.head.Linear.forward.0",
            "*File model.py, line 7, in forward, x @ w",
            "*target: max 1.5, min -1, mean 0.25, norm 2",
            "*golden: max 1, min -1, mean 0.25, norm 2",
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


def test_runs_of_which_nothing_was_compared_are_not_called_equal(compare: Compare, runs: Any) -> None:
    records = {"Torch.relu.0.forward": {"input_args": [], "output": []}, "Torch.abs.0.forward": []}
    result = compare(*runs.both(records, records | {"Torch.abs.0.forward": [0]}))
    result.stdout.fnmatch_lines(["nothing was compared", "2 calls: 1 wrong, 1 not compared"], consecutive=True)


def test_renamed_layers_are_named(compare: Compare, real_runs: Path) -> None:
    folder = real_runs / "lstm-26.2.0-mix-statistics"
    result = compare(folder / "rename" / "dump.json", folder / "base" / "dump.json")
    result.assert_outcomes(passed=176)
    result.stdout.fnmatch_lines(["no compared call differs*", "*lm_head is head in the golden run"])


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


def test_the_quick_question_has_one_answer(compare: Compare, three: tuple[Path, Path]) -> None:
    compare(three[1], three[1], "-omsprobe_compare_quick=true").assert_outcomes(passed=1)
    result = compare(*three, "-omsprobe_compare_quick=true")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["2 of 3 records differ, first Torch.mm.0.forward", "output.0: scaled error 3.33e-01*"])


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


def test_what_two_searches_for_overflow_wrote_is_compared(compare: Compare, runs: Any, call: Any, tensor: Any) -> None:
    records = {"Torch.exp.0.forward": call(tensor(2))}
    sides = runs.both(records, records, task="overflow_check")
    for side in sides:
        (side.parent / "dump_tensor_data").mkdir()
    compare(*sides).assert_outcomes(passed=1)


def test_a_call_with_an_empty_list_of_parents_is_in_no_module(compare: Compare, three: tuple[Path, Path]) -> None:
    name = next(iter(json.loads(three[0].read_text())["data"]))
    (three[0].parent / "construct.json").write_text(json.dumps({name: []}))
    compare(*three).assert_outcomes(passed=1, failed=2)
