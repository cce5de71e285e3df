"""Operators of torch_npu: what is drawn, goes step by step, is routed to experts, or is picked and written."""

from __future__ import annotations

import torch

from pytest_msprobe.engine.replay.inputs.constraints import placed, values
from pytest_msprobe.engine.replay.ops import several_writers
from pytest_msprobe.engine.replay.ops.traits import OpInfo, Rows, Selection
from pytest_msprobe.engine.replay.random_apis import (
    mask_bits,
    sampled_indices,
    token_sampling,
)
from pytest_msprobe.extensions.npu_operators.inputs import boxes, matmul_operands, sequences
from pytest_msprobe.extensions.npu_operators.inputs import moe_routing as routing

_EIGHT_BITS = frozenset({torch.int8, torch.uint8})

ROUTING_ROWS: Rows = (
    # masks, places and tokens that are drawn,
    ("npu_dropout_gen_mask", OpInfo(random=mask_bits.generated_mask)),
    ("_npu_dropout_gen_mask", OpInfo(random=mask_bits.seeded_mask)),
    ("npu_random_choice_with_mask", OpInfo(random=sampled_indices.random_choice)),
    ("npu_sub_sample", OpInfo(random=sampled_indices.subsample)),
    ("npu_top_k_top_p", OpInfo(random=token_sampling.top_k_top_p)),
    ("npu_top_k_top_p_sample", OpInfo(random=token_sampling.top_k_top_p_sample)),
    # sequences that go step by step, and hyper-connections,
    ("npu_lstm", OpInfo(constraint=sequences.padded, recurrent=True)),
    ("npu_lstm_data", OpInfo(constraint=sequences.padded_by_sizes, recurrent=True)),
    ("npu_lstm_backward", OpInfo(constraint=sequences.saved_lstm_results, recurrent=True)),
    ("npu_lstm_data_backward", OpInfo(constraint=sequences.saved_lstm_data_results, recurrent=True)),
    ("npu_gru_backward", OpInfo(constraint=sequences.saved_gru_results, recurrent=True)),
    ("_lstm_npu_backward", OpInfo(constraint=sequences.saved_stack_results, recurrent=True)),
    ("_lstm_npu npu_lstm_cell npu_lstm_cell_backward npu_gru", OpInfo(recurrent=True)),
    ("npu_recurrent_gated_delta_rule", OpInfo(constraint=sequences.delta_rule, in_place=True)),
    ("npu_recurrent_gated_delta_rule_functional", OpInfo(constraint=sequences.delta_rule)),
    ("npu_chunk_gated_delta_rule", OpInfo(constraint=sequences.lengths)),
    ("npu_fused_causal_conv1d npu_fused_causal_conv1d_v2", OpInfo(constraint=sequences.cached, in_place=True)),
    ("npu_ifmr", OpInfo(constraint=sequences.histogram)),
    # tokens on their way to experts and back,
    ("npu_iou npu_ptiou", OpInfo(constraint=boxes.in_order((0, "bboxes"), (1, "gtboxes")))),
    (
        "npu_bounding_box_encode npu_yolo_boxes_encode",
        OpInfo(constraint=boxes.in_order((0, "self"), (0, "anchor_box"), (1, "ground_truth_box"), (1, "gt_bboxes"))),
    ),
    ("npu_bounding_box_decode", OpInfo(constraint=boxes.in_order((0, "rois")))),
    ("npu_rotated_box_encode", OpInfo(constraint=boxes.in_order((0, "self"), (1, "gt_bboxes"), dim=1))),
    ("npu_rotated_box_decode", OpInfo(constraint=boxes.in_order((0, "self"), dim=1))),
    ("npu_nms_v4", OpInfo(constraint=boxes.in_order((0, "self")))),
    ("npu_nms_with_mask", OpInfo(constraint=boxes.in_order((0, "input")))),
    ("npu_batch_nms", OpInfo(constraint=boxes.in_order((0, "self")))),
    ("npu_roi_align npu_ps_roi_pooling", OpInfo(constraint=boxes.regions)),
    ("npu_roi_alignbk", OpInfo(constraint=boxes.regions_of_gradient)),
    ("npu_rotated_iou npu_rotated_overlaps", OpInfo(constraint=boxes.turned((0, "self"), (1, "query_boxes")))),
    ("npu_nms_rotated", OpInfo(constraint=boxes.turned((0, "self")))),
    ("npu_moe_gating_top_k_softmax npu_moe_gating_top_k_softmax_v2", OpInfo(constraint=values.moe_gating)),
    ("npu_moe_gating_top_k_backward", OpInfo(constraint=routing.gating)),
    ("npu_moe_update_expert", OpInfo(constraint=routing.copies_of_experts)),
    ("npu_moe_token_unpermute", OpInfo(constraint=routing.token_unpermute)),
    ("_npu_moe_token_unpermute", OpInfo(constraint=routing.token_unpermute)),
    ("_npu_moe_token_unpermute_with_routing_map", OpInfo(constraint=routing.routed_back)),
    ("npu_moe_token_permute_grad", OpInfo(constraint=routing.places_at(3))),
    ("npu_moe_token_permute_grad_v2", OpInfo(constraint=routing.places_at(1))),
    ("npu_moe_token_unpermute_grad", OpInfo(constraint=routing.places_at(2))),
    ("npu_moe_token_unpermute_grad_v2", OpInfo(constraint=routing.places_at(1))),
    (
        "npu_moe_token_permute_with_routing_map_grad",
        OpInfo(constraint=routing.permuted_by_map),
    ),
    (
        "npu_moe_token_unpermute_with_routing_map_grad",
        OpInfo(constraint=routing.unpermuted_by_map),
    ),
    ("npu_moe_token_permute_with_routing_map", OpInfo(constraint=routing.routing_map)),
    ("npu_moe_token_unpermute_with_routing_map", OpInfo(constraint=routing.routed_back)),
    ("npu_moe_init_routing_v2", OpInfo(quantizes=_EIGHT_BITS)),
    ("npu_moe_init_routing", OpInfo(constraint=routing.init_routing)),
    ("npu_moe_finalize_routing", OpInfo(constraint=routing.finalize_routing)),
    ("npu_moe_compute_expert_tokens", OpInfo(constraint=routing.expert_tokens)),
    ("npu_moe_re_routing", OpInfo(constraint=routing.re_routing)),
    ("npu_grouped_matmul", OpInfo(constraint=matmul_operands.grouped_matmul, quantizes=_EIGHT_BITS)),
    ("npu_grouped_matmul_add npu_grouped_matmul_add_", OpInfo(constraint=matmul_operands.accumulated_groups(3))),
    ("npu_add_quant_gmm npu_add_quant_gmm_", OpInfo(constraint=matmul_operands.accumulated_groups(4))),
    ("npu_grouped_matmul_finalize_routing", OpInfo(constraint=matmul_operands.finalize_routing)),
    (
        "npu_grouped_matmul_swiglu_quant",
        OpInfo(constraint=matmul_operands.groups_at(2), quantizes=_EIGHT_BITS),
    ),
    (
        "npu_grouped_matmul_swiglu_quant_v2",
        OpInfo(constraint=matmul_operands.groups_at(4, "group_list_type"), quantizes=_EIGHT_BITS),
    ),
    ("npu_quant_grouped_matmul_dequant", OpInfo(constraint=matmul_operands.groups_at(3))),
    ("npu_batch_gather_matmul npu_batch_gather_matmul_", OpInfo(constraint=matmul_operands.gathered_weights)),
    (
        "npu_fused_linear_cross_entropy_loss_with_max_sum_backward",
        OpInfo(constraint=matmul_operands.vocabulary_targets),
    ),
    # places that are picked and written to,
    ("npu_masked_fill_range", OpInfo(constraint=placed.ranges)),
    ("npu_scatter", OpInfo(constraint=placed.placed_along_dim)),
    ("npu_scatter_list npu_scatter_list_", OpInfo(constraint=placed.listed)),
    ("_npu_index_add _npu_index_add_", OpInfo(constraint=placed.rows_to_add)),
    ("npu_gather_backward", OpInfo(constraint=placed.within(3, "index", 1, "self_size", 2))),
    ("npu_gather_sparse_index_backward", OpInfo(constraint=placed.within(2, "index", 1, "self_sizes"))),
    ("npu_max_backward npu_min_backward", OpInfo(constraint=placed.within(2, "indices", 3, "sizes", 1))),
    ("npu_max npu_min", OpInfo(selection=Selection())),
    ("npu_view_copy", OpInfo(in_place=True)),
    # rows that are written to,
    ("npu_gather_sparse_index", OpInfo(constraint=routing.rows_of(0, "input", 1, "index"))),
    (
        "npu_scatter_nd_update npu_scatter_nd_update_",
        OpInfo(constraint=routing.scatter_nd, writers=several_writers.SCATTERED_SLICES),
    ),
    ("scatter_update scatter_update_", OpInfo(constraint=routing.scatter_update)),
)
