"""Which facts of two starts are one, and what is said of them."""

from __future__ import annotations

from typing import Any

import pytest

from msprobe_hooks.extensions.environment.environment import COMMAND_LINE
from msprobe_hooks.extensions.environment.start_file import RandomCalls, Started, TensorFact
from pytest_msprobe.extensions.environment.fact_pairs import pairs_of
from pytest_msprobe.extensions.environment.judging import judge_pair
from pytest_msprobe.extensions.environment.launch_scripts import is_same
from pytest_msprobe.extensions.environment.msprobe_pack import Facts, facts_of


def verdicts(section: str, target: dict[str, Any], golden: dict[str, Any], **options: Any) -> dict[str, str]:
    pairs = pairs_of(Facts(0, {section: target}, **options), Facts(0, {section: golden}))
    return {pair.name: judge_pair(pair).outcome for pair in pairs}


@pytest.mark.parametrize(
    ("target", "golden", "expected"),
    [
        ({"lr": "1e-4"}, {"lr": 0.0001}, {"lr": "pass"}),
        ({"lr": "1e-4"}, {"train.learning-rate": "2e-4"}, {"lr": "fail"}),
        ({"num_hidden_layers": 4}, {"n-layer": 4}, {"num_hidden_layers": "pass"}),
        ({"a.size": 1, "b.size": 2}, {"a.size": 1, "c.size": 3}, {"a.size": "pass", "b.size": "fail"}),
        ({"recompute_method": "a"}, {"recompute_methods": "b"}, {"recompute_method": "warn"}),
        ({"stage1": 1}, {"stage2": 2}, {"stage1": "warn", "stage2": "warn"}),
        ({"only": 1}, {}, {"only": "warn"}),
        ({"data": "/a/x"}, {"data": "/b/x"}, {"data": "warn"}),
    ],
)
def test_hyperparameters_meet_by_name_alias_and_likeness(
    target: dict[str, Any], golden: dict[str, Any], expected: dict[str, str]
) -> None:
    assert verdicts("hyperparameters", target, golden) == expected


def test_a_name_that_two_frameworks_spell_differently_is_reported_with_both() -> None:
    [pair] = pairs_of(Facts(0, {"arguments": {"lr": 2}}), Facts(0, {"arguments": {"learning-rate": 1}}))
    assert judge_pair(pair).reason == "2, golden 1 (learning-rate, by mapping)"


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("1e-4", 0.0001, True),
        ("True", True, True),
        (12345678901234567891, "12345678901234567890", False),
        ("1.0", 1, True),
        ([1, "2"], ["1.0", 2], True),
        ("nan", float("nan"), True),
        (None, "null", False),
        ("1_0", "10", False),
        ("adam", "adamw", False),
    ],
)
def test_settings_are_the_same_however_they_are_spelled(one: Any, other: Any, expected: bool) -> None:
    assert is_same(one, other) is expected


def test_a_setting_of_none_is_one_that_there_is() -> None:
    starts = [facts_of(Started(arguments={"lr": 1, "warmup": warmup})) for warmup in (None, None, 3)]
    assert {judge_pair(pair).outcome for pair in pairs_of(starts[0], starts[1])} == {"pass"}
    assert [judge_pair(pair).reason for pair in pairs_of(starts[0], starts[2])] == ["equal", "None, golden 3"]


def test_versions_are_no_numbers() -> None:
    assert verdicts("packages", {"torch": "2.1"}, {"torch": "2.10"}) == {"torch": "fail"}


@pytest.mark.parametrize(
    ("target", "golden", "expected"),
    [
        ({"HCCL_ALGO": "x"}, {"NCCL_ALGO": "x"}, {"HCCL_ALGO": "pass"}),
        ({"HCCL_DETERMINISTIC": "true"}, {}, {"HCCL_DETERMINISTIC": "fail"}),
        ({"HCCL_DETERMINISTIC": "false"}, {}, {"HCCL_DETERMINISTIC": "pass"}),
        ({"CUDA_VISIBLE_DEVICES": "1"}, {"CUDA_VISIBLE_DEVICES": "2"}, {"CUDA_VISIBLE_DEVICES": "warn"}),
        ({"OMP_NUM_THREADS": "1"}, {}, {"OMP_NUM_THREADS": "warn"}),
    ],
)
def test_variables_of_npu_and_gpu_that_mean_the_same_are_one(
    target: dict[str, str], golden: dict[str, str], expected: dict[str, str]
) -> None:
    assert verdicts("variables", target, golden) == expected


A, B = (TensorFact(2, 0, 1, 3, "float32", (4,), digest) for digest in "ab")


@pytest.mark.parametrize(
    ("target", "golden", "outcome", "reason"),
    [
        (A, A, "pass", "equal"),
        (A, B, "fail", "elements differ, or their order"),
        (A, TensorFact(2, 0, 1, 3), "pass", "equal"),
        (A, TensorFact(2, 0, 1 + 1e-7, 3), "warn", "mean or norm differ by rounding"),
        (A, TensorFact(2, 0, 1.1, 3), "fail", "mean 1, golden 1.1"),
        (A, TensorFact(2, 0, 1, 3, "bfloat16", (4,), "a"), "fail", "dtype float32, golden bfloat16"),
        (A, TensorFact(2, 0, 1, 3, "float32", (2, 2), "a"), "fail", "shape"),
        (TensorFact(float("nan")), TensorFact(float("nan")), "pass", "equal"),
        (A, None, "fail", "only the target has it: float32 [4], max 2, min 0"),
        (A, "3", "fail", "float32 [4], max 2, min 0, golden 3"),
        (TensorFact(dtype="a", shape=(2,)), TensorFact(dtype="a", shape=(3,)), "fail", "shape (2,), golden (3,)"),
        (TensorFact(dtype="a", shape=(2,)), TensorFact(dtype="a", shape=(2,)), "warn", "its values are unknown"),
    ],
)
def test_tensors_are_equal_by_their_digests_else_by_their_statistics(
    target: Any, golden: Any, outcome: str, reason: str
) -> None:
    facts = [Facts(0, {"weights": {"step0/w": value} if value else {"step0/v": A}}) for value in (target, golden)]
    verdict = next(judge_pair(pair) for pair in pairs_of(*facts) if pair.name == "step0/w")
    assert (verdict.outcome, reason in verdict.reason) == (outcome, True)


def test_steps_that_only_one_side_has_are_not_compared() -> None:
    steps = {"step0/w": A, "step1/w": B}
    assert verdicts("weights", steps, {"step0/w": A}) == {"step0/w": "pass"}


def test_next_to_a_pack_of_msprobe_only_tensors_are_compared() -> None:
    assert verdicts("batches", {"step0/x": A}, {"step0/x": A, "step0/scale": "0.5"}, is_whole=False) == {
        "step0/x": "pass"
    }


def calls(*places: tuple[str, int, int]) -> list[RandomCalls]:
    return [
        RandomCalls([f"File /{file}/train.py, line {line}, in main, x = draw({line})"], n) for file, line, n in places
    ]


def test_random_calls_meet_by_stack_wherever_the_program_lies() -> None:
    watched = frozenset({"torch.rand"})
    target = Facts(0, {}, {"torch.rand": calls(("a", 3, 2), ("a", 9, 1)), "torch.randn": calls(("a", 1, 1))}, watched)
    golden = Facts(0, {}, {"torch.rand": calls(("b", 3, 2), ("b", 9, 5))}, watched)
    assert {pair.name: judge_pair(pair).outcome for pair in pairs_of(target, golden)} == {
        "torch.rand@train.py:3": "pass",
        "torch.rand@train.py:9": "fail",
    }


@pytest.mark.parametrize("name", ["master_port", "master-addr", "rdzv_endpoint", "main_process_port"])
def test_where_a_start_was_reached_is_not_compared(name: str) -> None:
    assert verdicts("hyperparameters", {name: "6001", "lr": 1}, {name: "6000", "lr": 1}) == {"lr": "pass"}
    assert verdicts("hyperparameters", {name: "6001", "lr": 1}, {"lr": 1}) == {"lr": "pass"}


@pytest.mark.parametrize(
    ("name", "target", "golden", "expected"),
    [
        ("out", "e_none", "base", "warn"),
        ("log-dir", "a", "b", "warn"),
        ("train.checkpoint_path", "a", "b", "warn"),
        ("save_interval", "10", "20", "fail"),
        ("save", "10", "20", "fail"),
        ("log_path", True, False, "fail"),
        ("data_path", "wiki", "books", "fail"),
        ("data_path", "a/wiki", "b/wiki", "warn"),
    ],
)
def test_a_folder_that_a_run_writes_to_may_differ_without_a_slash(
    name: str, target: Any, golden: Any, expected: str
) -> None:
    assert verdicts("arguments", {name: target}, {name: golden}) == {name: expected}


@pytest.mark.parametrize(
    ("line", "settings", "expected"),
    [
        ("--lr 2e-3", {"lr": 0.002}, {"lr": "2e-3"}),
        ("--lr 2e-3", {"lr": 0.004}, {"lr": "2e-3; 0.004"}),
        ("--betas 0.9 0.95", {"betas": [0.9, 0.95]}, {"betas": "0.9 0.95"}),
        ("--batch-size 4", {"batch_size": 4}, {"batch_size": "4"}),
        ("--batch-size 4", {"lr": 1}, {"batch-size": "4", "lr": 1}),
        ("--fp16", {"fp16": True}, {"fp16": True}),
    ],
)
def test_a_value_of_the_command_line_that_the_settings_repeat_is_shown_once(
    line: str, settings: dict[str, Any], expected: dict[str, Any]
) -> None:
    found = facts_of(Started(texts={COMMAND_LINE: line}, arguments=settings))
    assert found.sections["arguments"] == expected
