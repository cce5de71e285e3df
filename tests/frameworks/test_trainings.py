"""Trainings of real frameworks on a CPU: recording changes no bit, checks give no alarm, faults are named first."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.frameworks.run import outcome
from tests.support.frameworks.started import run_thrice
from tests.support.runs import Checked

# Each with the weight of which the third run changes one element, or its module.
TRAININGS = {
    "transformers_trainer": "model.layers.1.mlp.up_proj.weight",
    "lightning_trainer": "net.4.weight",
    "peft_lora": "base_model.model.model.layers.1.self_attn.v_proj.lora_A.default.weight",
    "trl_sft": "model.layers.1.mlp.down_proj.weight",
    "trl_grpo": "model.layers.1.mlp.down_proj.weight",
    "trl_dpo": "model.layers.1.mlp.down_proj.weight",
    "accelerate_loop": "bert.encoder.layer.1.output.LayerNorm.weight",
    "timm_vit": "blocks.1.mlp.fc1.weight",
    "diffusers_unet": "mid_block.attentions.0.transformer_blocks.0.attn2.to_v.weight",
    "fsdp2_tp": "1.up.weight",
    # The call that gathers the shards of the layer whose `feed_forward.w1.weight` was changed.
    "torchtitan_llama": "Distributed.all_gather_into_tensor.4.forward",
    "megatron_gpt:tp": "decoder.layers.1.mlp.linear_fc1.weight",
    "megatron_gpt:dp": "decoder.layers.1.mlp.linear_fc1.weight",
    # The second of two stages, which has one layer.
    "megatron_gpt:pp": "decoder.layers.0.mlp.linear_fc1.weight",
    **{f"deepspeed_zero:{stage}": "Module.module.3.Linear" for stage in range(3)},
    # No module owns a shard: the call that reads it, to gather the weight.
    "deepspeed_zero:3": "Tensor.to.12.forward",
}
RANKS = {
    "fsdp2_tp": 4,
    "torchtitan_llama": 4,
    **{f"megatron_gpt:{split}": 2 for split in ("tp", "dp", "pp")},
    **{f"deepspeed_zero:{stage}": 2 for stage in range(4)},
}


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize(("training", "named"), TRAININGS.items(), ids=TRAININGS)
def test_a_training_is_unchanged_by_recording_and_its_planted_fault_is_the_first_culprit(
    training: str, named: str, pytester: pytest.Pytester, check: Callable[..., Checked]
) -> None:
    ranks = RANKS.get(training, 1)
    run_thrice(training, pytester.path, ranks)
    for number in range(ranks):
        plain, recorded = (outcome(pytester.path, kind, number) for kind in ("plain", "recorded"))
        assert recorded == plain
        assert len(plain["losses"]) >= 2
    assert outcome(pytester.path, "faulty") != outcome(pytester.path, "plain")

    healthy = check("--msprobe-dump=recorded", "--tb=no", "-q")
    assert healthy.wrong == set(), healthy.output
    assert "passed" in healthy.outcomes.values()

    compared = check("--msprobe-compare=faulty", "--msprobe-golden=recorded", "--tb=no", "-q", "-rN")
    # Other ranks begin with what they receive of it.
    rank = f"rank {1 if training.endswith(':pp') else 0}: " if ranks > 1 else ""
    first = compared.output.partition(f"{rank}first forward culprit: ")[2].partition("\n    File ")[0]
    assert named in first, compared.output
