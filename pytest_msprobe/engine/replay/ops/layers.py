"""Rows of layers and losses: convolutions, normalizations, attention, recurrent layers, losses of classes."""

from __future__ import annotations

from pytest_msprobe.engine.replay.inputs.constraints import indices, segments, values
from pytest_msprobe.engine.replay.inputs.constraints.drawn import recorded_numbers
from pytest_msprobe.engine.replay.inputs.points import Argument, Points, apart, at
from pytest_msprobe.engine.replay.ops import cuts
from pytest_msprobe.engine.replay.ops.convolution_geometry import PARAMETERS
from pytest_msprobe.engine.replay.ops.cuts import Blocks
from pytest_msprobe.engine.replay.ops.traits import OpInfo, Rows
from pytest_msprobe.engine.replay.random_apis import attention_dropout, probability_switch, unverifiable

_LOSS = "input target weight size_average ignore_index reduce reduction"


def _product(blocks: Blocks) -> OpInfo:
    return OpInfo(blocks=blocks, terms="product", gradient_terms="product")


def _convolution(name: str) -> OpInfo:
    blocks = Blocks(cuts.convolution(name), " ".join(PARAMETERS[name]), is_product=True)
    return OpInfo(blocks=blocks) if "transpose" in name else _product(blocks)


def _by_element(parameters: str) -> Blocks:
    return Blocks(cuts.loss_of_elements, f"input target {parameters}")


def _difference(parameters: str, points: Points | None = None) -> OpInfo:
    return OpInfo(points=points, blocks=_by_element(parameters), terms="squared_loss", gradient_terms="difference_loss")


ROWS: Rows = (
    ("linear", _product(Blocks(cuts.linear, "input weight bias", is_product=True))),
    *((name, _convolution(name)) for name in PARAMETERS),
    # Normalizations, some of which write to running statistics.
    (
        "layer_norm",
        OpInfo(blocks=Blocks(cuts.over_last, "input normalized_shape weight bias eps"), gradient_terms="layer_norm"),
    ),
    (
        "rms_norm",
        OpInfo(blocks=Blocks(cuts.over_last, "input normalized_shape weight eps"), gradient_terms="rms_norm"),
    ),
    (
        "group_norm",
        OpInfo(blocks=Blocks(cuts.over_groups, "input num_groups weight bias eps"), gradient_terms="layer_norm"),
    ),
    (
        "instance_norm",
        OpInfo(
            running_statistics=1,
            blocks=Blocks(cuts.over_planes, "input running_mean running_var weight bias use_input_stats momentum eps"),
            gradient_terms="batch_norm",
        ),
    ),
    (
        "batch_norm",
        OpInfo(
            running_statistics=1,
            blocks=Blocks(cuts.over_channels, "input running_mean running_var weight bias training momentum eps"),
            gradient_terms="batch_norm",
        ),
    ),
    (
        """_batch_norm_impl_index _native_batch_norm_legit cudnn_batch_norm miopen_batch_norm native_batch_norm
        BatchNorm""",
        OpInfo(running_statistics=3),
    ),
    ("upsample upsample_bilinear upsample_nearest", OpInfo(found_in="torch.nn.functional")),
    ("_weight_norm normalize", OpInfo(gradient_terms="unit_length")),
    ("cosine_similarity", OpInfo(gradient_terms="cosine")),
    # Attention.
    (
        "scaled_dot_product_attention",
        OpInfo(
            random=unverifiable.attention,
            switch=probability_switch.probability("dropout_p", 4),
            readable=attention_dropout.readable,
            # It computes more for each byte, and its blocks make the forward pass twice more.
            blocks=Blocks(
                cuts.heads,
                "query key value attn_mask dropout_p is_causal scale enable_gqa",
                is_product=True,
                whole_times=4,
            ),
        ),
    ),
    (
        "_scaled_dot_product_attention_math _scaled_dot_product_fused_attention_overrideable",
        OpInfo(
            random=unverifiable.attention,
            switch=probability_switch.probability("dropout_p", 4),
            readable=attention_dropout.readable,
        ),
    ),
    (
        "_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu",
        OpInfo(
            random=unverifiable.flash_attention,
            switch=probability_switch.probability("dropout_p", 3),
            readable=attention_dropout.readable,
        ),
    ),
    (
        "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention",
        OpInfo(
            random=unverifiable.efficient_attention,
            switch=probability_switch.probability("dropout_p", 5),
            readable=attention_dropout.readable,
        ),
    ),
    (
        "multi_head_attention_forward",
        OpInfo(random=unverifiable.multi_head_attention, switch=probability_switch.probability("dropout_p", 10)),
    ),
    ("_flash_attention_forward", OpInfo(constraint=segments.cumulative_lengths(0, 3, dim=0))),
    ("_flash_attention_forward_no_dropout_inplace", OpInfo(constraint=segments.cumulative_lengths(1, 4, dim=0))),
    ("_flash_attention_backward", OpInfo(constraint=segments.cumulative_lengths(1, 6, dim=0))),
    ("_efficient_attention_forward", OpInfo(constraint=segments.cumulative_lengths(0, 4, dim=1))),
    ("_efficient_attention_backward", OpInfo(constraint=segments.cumulative_lengths(1, 6, dim=1))),
    (
        """_cudnn_attention_forward _cudnn_attention_backward _scaled_dot_product_cudnn_attention_backward
        _scaled_dot_product_flash_attention_backward _scaled_dot_product_fused_attention_overrideable_backward""",
        OpInfo(constraint=recorded_numbers),
    ),
    # MindSpore's.
    ("flash_attention_score", OpInfo(constraint=values.packed_attention(ends_at=9))),
    # Recurrent layers.
    (
        "lstm gru rnn_tanh rnn_relu",
        OpInfo(
            constraint=values.packed,
            random=unverifiable.recurrent,
            switch=probability_switch.between_layers,
            recurrent=True,
            # The batch sizes of a packed sequence; else states are there, which are floats.
            on_cpu=frozenset({"args.1"}),
        ),
    ),
    ("LSTM", OpInfo(recurrent=True)),
    # Losses of classes, and of elements.
    (
        "cross_entropy",
        OpInfo(
            constraint=indices.class_target,
            class_targets=True,
            # Its log_softmax is asked for in the dtype of the logits, which the autocast of accelerators leaves as it
            # is.
            narrow_inside=True,
            blocks=Blocks(cuts.loss_of_classes, f"{_LOSS} label_smoothing"),
            terms="class_loss",
            gradient_terms="class_loss",
        ),
    ),
    (
        "nll_loss",
        OpInfo(
            constraint=indices.class_target,
            class_targets=True,
            blocks=Blocks(cuts.loss_of_classes, _LOSS),
            terms="class_loss",
        ),
    ),
    (
        "nll_loss2d multi_margin_loss nll_loss_forward nll_loss2d_forward nll_loss_nd",
        OpInfo(constraint=indices.class_target),
    ),
    ("nll_loss_backward nll_loss2d_backward", OpInfo(constraint=indices.class_target_of(1, ignored_at=5))),
    ("multi_margin_loss_backward", OpInfo(constraint=indices.class_target_of(1, ignored_at=None))),
    (
        "multilabel_margin_loss multilabel_margin_loss_forward",
        OpInfo(constraint=indices.several_class_targets(0)),
    ),
    ("multilabel_margin_loss_backward", OpInfo(constraint=indices.several_class_targets(1))),
    ("ctc_loss _ctc_loss", OpInfo(constraint=values.ctc_loss())),
    ("_ctc_loss_backward", OpInfo(constraint=values.ctc_loss(1, blank_at=7))),
    ("mse_loss", _difference("size_average reduce reduction weight")),
    ("smooth_l1_loss", _difference("size_average reduce reduction beta", apart(Argument(5, "beta", 1.0)))),
    ("huber_loss", _difference("reduction delta weight", apart(Argument(3, "delta", 1.0)))),
    (
        "l1_loss",
        OpInfo(
            points=at(Argument(1, "target")), blocks=_by_element("size_average reduce reduction weight"), terms="loss"
        ),
    ),
    (
        "binary_cross_entropy_with_logits",
        OpInfo(
            blocks=_by_element("weight size_average reduce reduction pos_weight"), gradient_terms="probability_loss"
        ),
    ),
    ("cosine_embedding_loss", OpInfo(terms="cosine_loss", gradient_terms="cosine")),
    ("kl_div", OpInfo(terms="divergence")),
    ("SoftmaxCrossEntropyWithLogits", OpInfo(constraint=values.distributions(1, "labels"))),
)
