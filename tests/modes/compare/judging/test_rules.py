"""What the policies say of rows."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_msprobe.modes.compare.judging.policy import load_policy

NAME = "Torch.mm.0.forward"


def outcome(runs: Any, target: Any, golden: Any, policy: str = "default") -> str:
    outcome: str = runs.pair({NAME: target}, {NAME: golden}, policy).compare(NAME).outcome
    return outcome


@pytest.mark.parametrize(
    ("dtype", "factor", "expected"),
    [
        ("float32", 1 + 1e-6, "pass"),
        ("float32", 1 + 1e-4, "warn"),
        ("float32", 1.01, "fail"),
        ("float16", 1 + 1e-3, "pass"),
        ("bfloat16", 1.01, "pass"),
        ("bfloat16", 1.02, "warn"),
        ("bfloat16", 1.1, "fail"),
        ("int64", 2, "fail"),
        ("bool", 2, "fail"),
    ],
)
def test_a_difference_is_judged_by_what_its_dtype_can_hold(
    runs: Any, call: Any, tensor: Any, dtype: str, factor: float, expected: str
) -> None:
    golden = tensor(4, dtype=f"torch.{dtype}")
    target = tensor(4, dtype=f"torch.{dtype}", Max=factor)
    assert outcome(runs, call(golden, out=target), call(golden)) == expected


def test_half_may_stand_for_float(runs: Any, call: Any, tensor: Any) -> None:
    target, golden = tensor(4, dtype="torch.bfloat16"), tensor(4, dtype="torch.float32")
    assert outcome(runs, call(target), call(golden)) == "pass"
    assert outcome(runs, call(target), call(golden), "msprobe-26") == "fail"


def test_an_error_of_half_size_in_half_precision_is_worth_a_warning_next_to_float(
    runs: Any, call: Any, tensor: Any
) -> None:
    target, golden = tensor(4, dtype="torch.bfloat16", Max=1.004), tensor(4)
    assert outcome(runs, call(golden, out=target), call(golden)) == "warn"


def test_another_shape_is_wrong(runs: Any, call: Any, tensor: Any) -> None:
    assert outcome(runs, call(tensor(4)), call(tensor(2, 2))) == "fail"
    assert outcome(runs, call(tensor(4)), call(tensor(2, 2)), "msprobe-26") == "fail"


def test_a_double_or_an_integer_does_not_stand_for_float(runs: Any, call: Any, tensor: Any) -> None:
    for dtype in ("torch.int32", "torch.bool"):
        assert outcome(runs, call(tensor(4, dtype=dtype)), call(tensor(4))) == "fail"


def test_a_tensor_in_place_of_a_number_is_wrong(runs: Any, call: Any, tensor: Any) -> None:
    number = {"type": "int", "value": 3}
    assert outcome(runs, call(tensor(4), tensor(4)), call(tensor(4), number)) == "fail"


def test_another_argument_is_wrong_and_another_device_is_not(runs: Any, call: Any, tensor: Any) -> None:
    def with_argument(kind: str, value: Any) -> Any:
        return call(tensor(4), {"type": kind, "value": value})

    assert outcome(runs, with_argument("int", 1), with_argument("int", 2)) == "fail"
    assert outcome(runs, with_argument("str", "a"), with_argument("str", "b")) == "fail"
    assert outcome(runs, with_argument("float", 0.1), with_argument("float", 0.1 + 1e-9)) == "pass"
    assert outcome(runs, with_argument("float", 0.1), with_argument("float", 0.2)) == "fail"
    assert outcome(runs, with_argument("torch.device", "npu:0"), with_argument("torch.device", "cuda:0")) == "pass"


def test_an_argument_given_by_name_on_one_side_is_the_same_argument(runs: Any, call: Any, tensor: Any) -> None:
    two = {"type": "int", "value": 2}
    assert outcome(runs, call(tensor(4), two), call(tensor(4), dim=two)) == "pass"


def test_a_missing_output_is_wrong(runs: Any, call: Any, tensor: Any) -> None:
    target = call(tensor(4)) | {"output": []}
    assert outcome(runs, target, call(tensor(4))) == "fail"


def test_nan_on_the_target_alone_is_wrong_under_every_policy(runs: Any, call: Any, tensor: Any) -> None:
    nan = tensor(4, Max=float("nan"), Min=float("nan"), Mean=float("nan"), Norm=float("nan"))
    for policy in ("default", "msprobe-1.2", "msprobe-26"):
        assert outcome(runs, call(tensor(4), out=nan), call(tensor(4)), policy) == "fail"
        assert outcome(runs, call(tensor(4), out=nan), call(tensor(4), out=nan), policy) == "pass"


def test_checksums_must_be_equal(runs: Any, call: Any, tensor: Any) -> None:
    golden = tensor(4, md5="00000001")
    assert outcome(runs, call(golden), call(golden)) == "pass"
    assert outcome(runs, call(golden, out=tensor(4, md5="00000002")), call(golden)) == "fail"


@pytest.mark.parametrize(("norm", "expected"), [(2.0, "pass"), (2.1, "warn"), (2.3, "warn"), (3.2, "fail")])
def test_msprobe_26_looks_at_what_a_call_adds(runs: Any, call: Any, tensor: Any, norm: float, expected: str) -> None:
    # The input's norm is off by 0.5 %; ten times as much is suspicious, half of everything wrong.
    target = call(tensor(4, Norm=2.01), out=tensor(4, Norm=norm + (norm > 2.05) * 0.02))
    assert outcome(runs, target, call(tensor(4)), "msprobe-26") == expected


def test_msprobe_26_exempts_calls_that_make_memory(runs: Any, call: Any, tensor: Any) -> None:
    name = "Torch.empty_like.0.forward"
    pair = runs.pair({name: call(tensor(4), out=tensor(4, at=7))}, {name: call(tensor(4))}, "msprobe-26")
    assert pair.compare(name).outcome == "pass"


@pytest.mark.parametrize(("at", "expected"), [(1.5, "pass"), (2.1, "fail"), (0.4, "fail")])
def test_msprobe_12_takes_a_second_look_at_half(runs: Any, call: Any, tensor: Any, at: float, expected: str) -> None:
    target = call(tensor(4), out=tensor(4, Max=at))
    assert outcome(runs, target, call(tensor(4)), "msprobe-1.2") == expected


def test_a_call_that_adds_to_its_inputs_error_is_a_culprit_of_its_own(runs: Any, call: Any, tensor: Any) -> None:
    names = [f"Torch.mm.{i}.forward" for i in range(3)]
    golden = dict.fromkeys(names, call(tensor(4)))
    off, wrong = tensor(4, Max=1.001), tensor(4, Max=1.5)
    target = dict(zip(names, [call(tensor(4), out=off), call(off, out=off), call(off, out=wrong)], strict=True))
    pair = runs.pair(target, golden)
    assert [pair.compare(name).cause for name in names] == ["culprit", "inherited", "culprit"]


def test_a_message_names_the_limits_of_warnings_and_of_failures(runs: Any, call: Any, tensor: Any) -> None:
    def message(at: float) -> str:
        name = "Torch.mm.0.forward"
        pair = runs.pair({name: call(tensor(4), out=tensor(4, Max=at))}, {name: call(tensor(4))})
        return str(pair.compare(name).rows[-1].messages[-1])

    assert message(1.0001) == "scaled error 1.00e-04 exceeds warning limit 6.00e-05, limit 2.40e-04"
    assert message(1.25) == "scaled error 2.00e-01 exceeds limit 2.40e-04, warning limit 6.00e-05"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("rule: none", "unknown rule 'none'; known are scaled"),
        ("rule: scaled\nlimits: {float32: [1, 2]}", "no limits for"),
        ("rule: scaled\nlimit: 1", "unknown key 'limit'"),
        ("rule: msprobe-1.2\nlimits: {cosine_sim: 1}", "do not fit"),
        ("rule: msprobe-26\nunmatched: maybe", "skip, warn, fail"),
        ("[1]", "expected a mapping with"),
        ("{", "YAML"),
        ("rule: [a]", r"unknown rule \['a'\]; known are scaled"),
        ("rule: {a: b}", r"unknown rule \{'a': 'b'\}; known are scaled"),
        ("rule: scaled\nlimits: word", "limits: 'word' .allowed: a mapping to numbers"),
        (f"rule: msprobe-1.2\nlimits: {{statistics: 1{'0' * 400}}}", "limits: .* .allowed: a mapping to numbers"),
        ("rule: msprobe-1.2\nlimits: {cosine_sim: [.nan, .nan]}", "limits: .*nan.* .allowed: a mapping to numbers"),
        ("rule: scaled\ninherited: .nan", "inherited: nan .allowed: a number of at least 1"),
        ("rule: msprobe-26\nlimits: {}\nexempt_apis: 5", "exempt_apis: 5 .allowed: a list of APIs"),
    ],
)
def test_a_wrong_policy_says_what_is_allowed(tmp_path: Any, text: str, problem: str) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=problem):
        load_policy(str(path))


@pytest.mark.parametrize("name", ["default", "msprobe-1.2", "msprobe-26"])
def test_a_built_in_policy_has_the_name_that_users_type(name: str) -> None:
    assert load_policy(name).name == name


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        ValueError, match=r"'compare-default'; did you mean 'default'\? known are default, msprobe-1.2, msprobe-26, and"
    ):
        load_policy("compare-default")


@pytest.mark.parametrize("policy", ["msprobe-1.2", "msprobe-26"])
def test_a_value_without_partner_that_is_no_error_has_not_passed_either(
    runs: Any, call: Any, tensor: Any, policy: str
) -> None:
    target, golden = call(tensor(4), tensor(4)), call(tensor(4))
    rows = runs.pair({NAME: target}, {NAME: golden}, policy).compare(NAME).rows
    assert [(row.place, row.outcome) for row in rows] == [
        ("input.0", "pass"),
        ("input.1", "skip"),
        ("output.0", "pass"),
    ]
