"""Names of one model in several frameworks."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_msprobe.errors import OptionError
from pytest_msprobe.extensions.model_names.fused_parts import ModelSizes, UnknownSizesError, part_rows, sizes_of_config
from pytest_msprobe.extensions.model_names.model_names import model_names, read_model_names

NAMES = {
    "module.module.decoder.layers.3.self_attention.linear_proj.weight": "layers.3.self_attn.o_proj.weight",
    "decoder.layers.3.self_attention.linear_qkv.layer_norm_weight": "layers.3.input_layernorm.weight",
    "decoder.layers.0.mlp.linear_fc1.layer_norm_weight": "layers.0.post_attention_layernorm.weight",
    "language_model.encoder.layers.0.post_attention_layernorm.weight": "layers.0.post_attention_layernorm.weight",
    "decoder.layers.1.post_attention_layernorm.weight": "layers.1.post_self_attn_layernorm.weight",
    "decoder.layers.1.mlp.experts.linear_fc2.weight7": "layers.1.mlp.experts.7.down_proj.weight",
    "decoder.layers.1.mlp.router.expert_bias": "layers.1.mlp.gate.e_score_correction_bias",
    "decoder.layers.1.self_attention.linear_kv_down_proj.weight": "layers.1.self_attn.kv_a_proj_with_mqa.weight",
    "model.layers.1.mlp.shared_expert.down_proj.weight": "layers.1.mlp.shared_experts.down_proj.weight",
    "_fsdp_wrapped_module.model.layers.0._orig_mod.mlp.gate_proj.weight": "layers.0.mlp.gate_proj.weight",
    "base_model.model.model.layers.0.self_attn.q_proj.base_layer.weight": "layers.0.self_attn.q_proj.weight",
    "decoder.layers.2": "layers.2",
    "decoder.layers.2.self_attention.core_attention": "layers.2.self_attn.core_attention",
    "visual.blocks.0.attn.qkv.weight": "visual.blocks.0.attn.qkv.weight",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_any_framework_becomes_that_of_transformers(name: str) -> None:
    assert model_names().canonical(name).name == NAMES[name]


@pytest.mark.parametrize(
    ("name", "parts", "arrangement"),
    [
        ("model.layers.0.self_attn.qkv_proj.bias", ["q_proj.bias", "k_proj.bias", "v_proj.bias"], "blocks"),
        ("decoder.layers.0.self_attention.linear_qkv", ["q_proj", "k_proj", "v_proj"], "groups"),
        (
            "model.layers.0.self_attn.fused_qkv_a_proj_with_mqa.weight",
            ["q_a_proj.weight", "kv_a_proj_with_mqa.weight"],
            "blocks",
        ),
        (
            "decoder.layers.0.mlp.experts.linear_fc1.weight5",
            ["experts.5.gate_proj.weight", "experts.5.up_proj.weight"],
            "blocks",
        ),
        (
            "model.layers.0.mlp.experts.w13_weight",
            ["experts.{expert}.gate_proj.weight", "experts.{expert}.up_proj.weight"],
            "experts",
        ),
    ],
)
def test_a_fused_name_has_its_parts_in_order(name: str, parts: list[str], arrangement: str) -> None:
    found = model_names().canonical(name)
    prefix = "layers.0.mlp." if "experts" in name else "layers.0.self_attn."
    assert [part.name for part in found.parts] == [prefix + part for part in parts]
    assert (found.arrangement, found.layer) == (arrangement, 0)


def test_tensor_parallel_ranks_share_weights_along_the_axis_of_the_layer() -> None:
    names = ["q_proj.weight", "q_proj.bias", "o_proj.weight", "o_proj.bias", "q_norm.weight"]
    found = [model_names().canonical(f"layers.0.self_attn.{name}").sharded for name in names]
    assert found == [0, 0, 1, None, None]


def test_blocks_of_a_rank_with_fewer_key_heads_than_ranks_hold_one_key_head() -> None:
    qkv = model_names().canonical("layers.0.self_attn.qkv_proj.weight")
    found = part_rows(qkv, 2 * 4 + 4 + 4, ModelSizes(heads=16, kv_heads=4, head_dim=4))
    assert [each.rows for each in found] == [(slice(0, 8),), (slice(8, 12),), (slice(12, 16),)]


def test_groups_of_megatron_alternate_query_key_and_value_heads() -> None:
    qkv = model_names().canonical("decoder.layers.0.self_attention.linear_qkv.weight")
    query, key, value = part_rows(qkv, 16, ModelSizes(heads=4, kv_heads=2, head_dim=2))
    assert query.rows == (slice(0, 4), slice(8, 12))
    assert key.rows == (slice(4, 6), slice(12, 14))
    assert value.rows == (slice(6, 8), slice(14, 16))


def test_what_is_needed_to_find_the_parts_is_named() -> None:
    qkv = model_names().canonical("decoder.layers.0.self_attention.linear_qkv.weight")
    with pytest.raises(UnknownSizesError, match="needs num_attention_heads, num_key_value_heads and head_dim"):
        part_rows(qkv, 16, ModelSizes())


def test_sizes_come_from_the_configurations_of_transformers_and_megatron() -> None:
    transformers = {"num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 64}
    megatron = {"num_attention_heads": 8, "num_query_groups": 2, "kv_channels": 8, "hidden_size": 64}
    assert sizes_of_config(transformers) == sizes_of_config(megatron) == ModelSizes(8, 2, 8, 64)


def test_a_file_of_the_user_adds_spellings_and_prefixes(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(
        "prefixes: actor\nnames:\n  layers.{layer}.self_attn.o_proj:\n    also: blocks.{layer}.attention.out\n"
    )
    found = read_model_names([own]).canonical("actor.blocks.12.attention.out.weight")
    assert (found.name, found.sharded) == ("layers.12.self_attn.o_proj.weight", 1)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("names:\n  a.{lay}: {sharded: 0}\n", "line 2: 'a.{lay}' is not a dotted name"),
        ("names:\n  a.(x+)+: {sharded: 0}\n", "line 2: 'a.(x+)+' is not a dotted name"),
        ("names:\n  a.b: {sharded: 2}\n", "line 2: '2' is not one of 0, 1"),
        ("names:\n  a.b:\n    also: c.{layer}\n", "line 3: 'c.{layer}' has not the numbers of 'a.b'"),
        ("fused:\n  a.b: {sharded: 0}\n", "line 2: a.b has no parts"),
        ("other: 1\n", "line 1: 'other' is not one of"),
    ],
)
def test_a_wrong_file_of_names_is_refused_with_its_line(tmp_path: Path, text: str, problem: str) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(text)
    with pytest.raises(OptionError) as refused:
        read_model_names([own])
    assert problem in str(refused.value)
