from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from msprobe_standards import Cascade, ExcusedByBaseline, MsprobeBenchmark, Policy, Standard, standard

F16, BF16, F32, F64, I64 = torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64
F8 = torch.float8_e4m3fn


def inner(by: Standard) -> Standard:
    assert isinstance(by, ExcusedByBaseline)
    return by.inner


@pytest.mark.parametrize(
    ("api", "name"),
    [
        ("relu", "binary_consistency"),
        ("relu_", "binary_consistency"),
        ("transpose", "binary_consistency"),
        ("__getitem__", "binary_consistency"),
        ("__setitem__", "binary_consistency"),
        ("add.Tensor", "ulp"),
        ("__iadd__", "ulp"),
        ("__radd__", "ulp"),
        ("__rsub__", "ulp"),
        ("__truediv__", "ulp"),
        ("special.expit", "ulp"),
        ("gelu", "ulp"),
        ("__matmul__", "benchmark"),
        ("linalg.norm", "benchmark"),
        ("softmax", "benchmark"),
        ("addcmul", "benchmark"),
        ("npu_fusion_attention", "benchmark"),
        ("an_api_of_tomorrow", "benchmark"),
    ],
)
def test_the_default_policy_knows_an_api_under_all_its_names(api: str, name: str) -> None:
    assert Policy.load("default").select(api, output_dtype=F32).name == name


@pytest.mark.parametrize(
    ("dtype", "name"), [(I64, "binary_consistency"), (torch.bool, "binary_consistency"), (F8, "ulp")]
)
def test_the_dtype_of_the_output_may_decide(dtype: torch.dtype, name: str) -> None:
    assert Policy.load("default").select("softmax", output_dtype=dtype).name == name


def test_gradients_are_never_judged_as_exact_copies() -> None:
    policy = Policy.load("default")
    assert policy.select("transpose", output_dtype=F32, backward=True).name == "benchmark"
    assert policy.select("add", output_dtype=F16, backward=True).name == "benchmark"


def test_python_values_are_judged_as_float32() -> None:
    policy = Policy.load("default")
    assert policy.select("softmax", output_dtype=None) == policy.select("softmax", output_dtype=F32)


def test_the_magnitude_of_a_complex_number_is_computed() -> None:
    policy = Policy.load("default")
    assert policy.select("abs", output_dtype=F32).name == "binary_consistency"
    assert policy.select("abs", output_dtype=F32, input_dtypes=[torch.complex64]).name == "ulp"


@pytest.mark.parametrize(
    ("api", "dtype", "name"),
    [
        ("add", F16, "absolute_threshold"),
        ("add_", F32, "absolute_threshold"),
        ("sort", F32, "binary_consistency"),
        ("matmul", BF16, "msprobe_ulp"),
        ("conv2d", F16, "thousandth"),
        ("softmax", F32, "msprobe_benchmark"),
        ("softmax", I64, "binary_consistency"),
        ("softmax", F64, "not_compared"),
        ("__truediv__", F32, "msprobe_benchmark"),
    ],
)
def test_msprobe_1_2_has_a_standard_per_api_for_recorded_baselines(api: str, dtype: torch.dtype, name: str) -> None:
    policy = Policy.load("msprobe-1.2")
    assert policy.select(api, output_dtype=dtype, recorded_baseline=True).name == name
    assert policy.select(api, output_dtype=dtype) == Cascade()


@pytest.mark.parametrize(
    ("api", "level", "limits"),
    [
        ("layer_norm", None, (1.2, 2, 1.2)),
        ("embedding", None, (1.5, 5, 1.5)),
        ("softmax", None, (2, 10, 2)),
        ("softmax", "L2", (1.2, 2, 1.2)),
        ("softmax", "L1", (1.5, 5, 1.5)),
        ("layer_norm", "L0", (2, 10, 2)),
    ],
)
def test_msprobe_26_has_levels(api: str, level: str | None, limits: tuple[float, float, float]) -> None:
    by = Policy.load("msprobe-26", level).select(api, output_dtype=F16, recorded_baseline=True)
    assert isinstance(by, MsprobeBenchmark)
    assert (by.rmse, by.max_rel_error, by.mean_rel_error) == limits


def test_msprobe_26_judges_by_input_and_quantization() -> None:
    policy = Policy.load("msprobe-26")
    assert policy.select("x", output_dtype=F16, input_dtypes=[F8], recorded_baseline=True).name == "absolute_threshold"
    assert policy.select("x", output_dtype=F8).name == "ulp"
    by_one = standard("binary_consistency", max_abs_err=1)
    assert policy.select("npu_dynamic_quant", output_dtype=torch.int8) == by_one


def test_a_policy_of_ones_own_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "rules:\n"
        "  - {standard: ulp, limits: {max_ulp: 3}, apis: [matmul], output: [bfloat16], framework: mindspore}\n"
        "  - {standard: thousandth}\n"
    )
    policy = Policy.load(path)
    assert policy.name == "mine"
    assert policy.select("matmul", output_dtype=BF16, framework="mindspore") == standard("ulp", max_ulp=3)
    assert policy.select("matmul", output_dtype=BF16) == standard("thousandth")
    assert policy.select("matmul", output_dtype=F16, framework="mindspore") == standard("thousandth")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", r"not a policy; write a mapping with the keys name"),
        ("rules: 3", r"rules: 3 is not a list of rules"),
        ("rules: []", r"rules: \[\] is not a list of rules"),
        ("rule: []", r"unknown key 'rule' with value \[\]; did you mean 'rules'\?"),
        ("rules: [{standard: ulp}", r"not valid YAML"),
        ("rules: [{apis: [a]}]", r"rules\[0\]: .* is not a mapping with a 'standard'"),
        ("rules: [{standard: ulps}]", r"rules\[0\]: unknown standard 'ulps'; did you mean 'ulp'\?"),
        (
            "rules: [{standard: ulp, limits: {ulp: 1}}]",
            r"rules\[0\]: standard 'ulp' has no limit 'ulp'; did you mean 'max_ulp'\?",
        ),
        ("rules: [{standard: ulp, limits: 3}]", r"rules\[0\]: limits: 3 is not a mapping"),
        (
            "rules: [{standard: ulp, api: [a]}]",
            r"rules\[0\]: unknown key 'api' with value \['a'\]; did you mean 'apis'\?",
        ),
        ("rules: [{standard: ulp, apis: add}]", r"rules\[0\]: apis: 'add' is not a list of names"),
        ("rules: [{standard: ulp, output: [half16]}]", r"rules\[0\]: output: 'half16'; known: bool, int, float, "),
        ("rules: [{standard: ulp, backward: maybe}]", r"rules\[0\]: backward: 'maybe'; known: True, False"),
        ("rules: [{standard: ulp, framework: jax}]", r"rules\[0\]: framework: 'jax'; known: pytorch, mindspore"),
        ("rules: [{standard: ulp, level: L1}]", r"rules\[0\]: level: 'L1'; known: none"),
        ("{names: fuzzy, rules: [{standard: ulp}]}", r"names: 'fuzzy'; known: exact, loose"),
        ("{levels: 5, rules: [{standard: ulp, level: L1}]}", r"levels: 5 is not a list of names"),
        ("{name: [a], rules: [{standard: ulp}]}", r"name: \['a'\] is not a string"),
        ("rules: [{standard: [ulp]}]", r"rules\[0\]: .* is not a mapping with a 'standard'"),
        ("rules: [{standard: ulp, limits: {1: 2}}]", r"rules\[0\]: limits: \{1: 2\} is not a mapping"),
        (f"rules: [{{standard: ulp, limits: {{max_ulp: 1{'0' * 400}}}}}]", r"rules\[0\]: limit 'max_ulp' .* number"),
        (
            "rules: [{standard: ulp, limits: {max_ulp: .nan}}]",
            r"rules\[0\]: limit 'max_ulp' .* is nan; allowed: a number >= 0",
        ),
        ("rules: [{standard: !!int x}]", "not valid YAML at line 1: not a value of int"),
        ("{nondeterministic: add, rules: [{standard: ulp}]}", "nondeterministic: 'add' is not a list of mappings"),
        (
            "{nondeterministic: [add], rules: [{standard: ulp}]}",
            r"nondeterministic\[0\]: 'add' is not a mapping with 'apis'",
        ),
        (
            "{nondeterministic: [{apis: [add], output: [int]}], rules: [{standard: ulp}]}",
            r"nondeterministic\[0\]: unknown key 'output' .*known: apis, backward, framework, device",
        ),
        (
            "{nondeterministic: [{apis: [add], device: gpu}], rules: [{standard: ulp}]}",
            r"nondeterministic\[0\]: device: 'gpu'; known: npu, cuda, cpu",
        ),
        ("rules: [{standard: ulp, device: meta}]", r"rules\[0\]: device: 'meta'; known: npu, cuda, cpu"),
        (
            "rules: [{standard: ulp, device: mlu}]",
            r"rules\[0\]: device: 'mlu'; known: .*, and the types whose package torch_<type> is installed",
        ),
        ("rules: [{standard: ulp, device: 'xpu:0'}]", r"rules\[0\]: device: 'xpu:0'; known: npu, cuda, cpu"),
        ("rules: [{standard: ulp, device: [npu]}]", r"rules\[0\]: device: \['npu'\]; known: npu, cuda, cpu"),
        ("{screening: linear, rules: [{standard: ulp}]}", "screening: 'linear' is not a list of mappings"),
        (
            "{screening: [{apis: [linear]}], rules: [{standard: ulp}]}",
            r"screening\[0\]: above: None; allowed: a positive number of billion operations, or never",
        ),
        (
            "{screening: [{apis: [mm], above: 0}], rules: [{standard: ulp}]}",
            r"screening\[0\]: above: 0; allowed: a positive number",
        ),
        (
            "{screening: [{apis: [mm], below: 3}], rules: [{standard: ulp}]}",
            r"screening\[0\]: unknown key 'below' .*known: apis, above",
        ),
        (f"rules: {'[' * 60}{']' * 60}", "nested deeper than 50 levels"),
        ("rules: [{standard: ulp, apis: 0x1" + "0" * 5000 + "}]", "rules.0.: apis: a number of thousands of digits"),
    ],
)
def test_errors_in_a_policy_name_file_key_value_and_what_is_allowed(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"mine.yaml: {message}"):
        Policy.load(path)


@pytest.mark.parametrize(
    ("api", "conditions", "is_known"),
    [
        ("scatter_add_", {"device": "cuda"}, True),
        ("scatter_add_", {"device": "cuda", "backward": True}, True),
        ("scatter_add_", {"device": "cpu"}, False),
        ("scatter_add_", {"device": "npu"}, False),
        ("index_select", {"device": "cuda", "backward": True}, True),
        ("index_select", {"device": "cuda"}, False),
        ("matmul", {"device": "cuda"}, False),
        ("kthvalue", {"device": "cuda"}, True),
        ("scaled_dot_product_attention", {"device": "cuda", "backward": True}, True),
        ("scaled_dot_product_attention", {"device": "cuda"}, False),
        ("_scaled_dot_product_flash_attention", {"device": "cuda", "backward": True}, True),
        ("_scaled_dot_product_flash_attention_backward", {"device": "cuda"}, True),
        ("multi_head_attention_forward", {"device": "cuda", "backward": True}, True),
        ("npu_fusion_attention_v2", {"device": "cuda", "backward": True}, True),
        ("npu_fusion_attention_v2", {"device": "npu", "backward": True}, False),
        ("linalg.lstsq", {"device": "cpu"}, True),
        ("linalg_lstsq", {"device": "cpu"}, True),
        ("lstsq", {"device": "npu"}, False),
        ("lstsq", {"device": "cpu", "framework": "mindspore"}, False),
    ],
)
def test_the_default_policy_knows_what_is_nondeterministic_on_which_device(
    api: str, conditions: dict[str, Any], is_known: bool
) -> None:
    assert Policy.load("default").knows_nondeterministic(api, **conditions) is is_known


def test_a_policy_shows_from_where_on_an_api_is_screened(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "{names: loose, rules: [{standard: ulp}], screening: "
        "[{apis: [matmul], above: never}, {apis: [linear, matmul], above: 2.5}]}"
    )
    policy = Policy.load(path)
    found = [policy.screened_above(api, 10.0) for api in ("__matmul__", "linear", "mm")]
    assert found == [None, 2.5, 10.0]


def test_a_policy_demands_float32_sums_by_a_word_of_two(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("accumulation: float32\nrules:\n  - {standard: benchmark}\n")
    assert Policy.load(path).accumulation == "float32"
    assert Policy.load("default").accumulation == "any"
    path.write_text("accumulation: bfloat16\nrules:\n  - {standard: benchmark}\n")
    with pytest.raises(ValueError, match=r"mine\.yaml: accumulation: 'bfloat16'.*float32"):
        Policy.load(path)


@pytest.mark.parametrize("device", ["xpu", "mps", "hpu", "toy"])
def test_a_rule_and_what_is_nondeterministic_may_be_of_any_device_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    (tmp_path / "torch_toy.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "mine.yaml"
    path.write_text(
        f"{{nondeterministic: [{{apis: [exp], device: {device}}}],"
        f" rules: [{{standard: binary_consistency, device: {device}}}, {{standard: ulp}}]}}"
    )
    policy = Policy.load(path)
    names = [policy.select("exp", output_dtype=F32, device=each).name for each in (device, "cpu")]
    assert names == ["binary_consistency", "ulp"]
    assert [policy.knows_nondeterministic("exp", device=each) for each in (device, "cpu")] == [True, False]


def test_other_built_in_policies_know_nothing_nondeterministic() -> None:
    assert not Policy.load("msprobe-26").knows_nondeterministic("scatter_add", device="cuda")


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        ValueError, match=r"unknown policy 'strict'; known: default, mindspore-1.2, msprobe-1.2, msprobe-26, or"
    ):
        Policy.load("strict")


def test_an_unknown_level_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown level 'L9'; known: L0, L1, L2"):
        Policy.load("msprobe-26", "L9")
    with pytest.raises(
        ValueError, match=r"level 'L1': policy default has no levels; choose one with levels, such as msprobe-26"
    ):
        Policy.load("default", "L1")


def test_a_missing_policy_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Policy.load(tmp_path / "none.yaml")


def test_a_folder_in_place_of_a_policy_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").mkdir()
    with pytest.raises(ValueError, match=r"mine.yaml: cannot be read: Is a directory"):
        Policy.load(tmp_path / "mine.yaml")


def test_the_names_of_the_policies_cost_neither_torch_nor_numpy() -> None:
    code = """
import msprobe_standards, sys
msprobe_standards.built_in_policies()
sys.exit("torch" in sys.modules or "numpy" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_apis_rule_is_unique_within_its_conditions() -> None:
    policy = Policy.load("default")
    seen: dict[object, int] = {}
    for number, rule in enumerate(policy.rules):
        for api in rule.apis or ():
            condition = (api, rule.output, rule.input, rule.backward, rule.framework, rule.device)
            assert condition not in seen, f"{api} is in rules {seen[condition]} and {number}"
            seen[condition] = number


def test_a_rule_that_asks_for_a_math_mode_judges_in_that_mode_alone(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("rules: [{standard: thousandth, math_mode: [tf32, hf32]}, {standard: ulp}]")
    policy = Policy.load(path)
    assert policy.select("mm", output_dtype=F32).name == "ulp"
    assert policy.select("mm", output_dtype=F32, math_modes=["hf32"]).name == "thousandth"
    with pytest.raises(ValueError, match="has no rule"):
        policy.select("mm", output_dtype=F32, math_modes=["bf16"])


def test_an_unknown_math_mode_is_refused_with_what_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("rules: [{standard: ulp, math_mode: [tf33]}]")
    with pytest.raises(ValueError, match=r"rules\[0\]: math_mode: 'tf33'; did you mean 'tf32'\?"):
        Policy.load(path)


def test_every_math_mode_of_a_device_has_a_rule_in_the_default_policy() -> None:
    for mode in ("tf32", "hf32", "bf16", "fp16_reduction", "bf16_reduction", "fp16_accumulation"):
        assert Policy.load("default").select("mm", output_dtype=F32, math_modes=[mode]).name == "benchmark"
