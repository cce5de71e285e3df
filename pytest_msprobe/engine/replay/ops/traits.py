"""Traits of operations, and operations whose arguments index memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import torch

from pytest_msprobe.engine.replay.inputs import sparse_reads
from pytest_msprobe.engine.replay.inputs.constraints import indices, placed, segments, values
from pytest_msprobe.engine.replay.inputs.constraints.drawn import Constraint, recorded_numbers
from pytest_msprobe.engine.replay.linalg.canonical_factors import Alignment, Undifferentiable
from pytest_msprobe.engine.replay.linalg.reconstruction import Products
from pytest_msprobe.engine.replay.ops import open_elements, several_writers
from pytest_msprobe.engine.replay.ops.open_elements import OpenElements
from pytest_msprobe.engine.replay.ops.quantized_results import QuantizedResults
from pytest_msprobe.engine.replay.ops.ranked_positions import RankedPositions
from pytest_msprobe.engine.replay.ops.running_results import Running
from pytest_msprobe.engine.replay.ops.several_writers import Writers
from pytest_msprobe.engine.replay.random_apis.attention_dropout import Readable
from pytest_msprobe.engine.replay.random_apis.probability_switch import SwitchOf
from pytest_msprobe.engine.replay.random_apis.sampled_indices import PropertyOf


@dataclass(frozen=True, slots=True)
class Selection:
    """Positions of the input among the results, where ties leave the choice to the implementation.

    ``outputs`` is how many results there are, the positions last. ``dim`` is the argument's default and ``dim_at`` its
    position; a dim of None selects from the flattened input. ``orders`` says that no position is selected twice,
    ``counts`` that the value is the most frequent one, of which there may be several.
    """

    outputs: int = 2
    dim: int | None = -1
    dim_at: int = 1
    orders: bool = False
    counts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OpInfo:
    """What is special about an operation; the defaults say that nothing is.

    Inputs: ``constraint`` mends drawn inputs for which the operation promises nothing; ``reads`` says which elements
    of a large one are read, so that the others need not be drawn; ``class_targets`` are widened to the 64 bits that
    torch's CPU asks for; ``index`` says that argument 1 is an index as between brackets;
    ``bare_sizes`` that whole numbers among the arguments themselves are sizes.

    Results: ``random`` gives what results must be like that are drawn, ``switch`` the argument with which nothing is,
    ``readable`` inputs from whose results a mask that is drawn inside can be read;
    ``selection`` finds positions in the input;
    ``writers`` finds the places that are written to, of which some may be several times;
    ``running`` says along which dimension each is made of the one before;
    ``leaves_open`` finds elements that torch and the language leave open;
    ``alignment`` brings factors of matrices into golden's form, and ``products`` gives what they multiply to;
    ``undifferentiable`` finds in golden's results where there is no gradient;
    those of a dtype in ``quantizes`` are rounded, and ``quantized`` says so of the numbers that the call asks for;
    which are not defined at all says `msprobe_hooks.dump.effects`;
    ``of_dtype`` says that results are about the dtype itself, so that golden is computed in the recorded one.

    Changes: ``in_place`` says that an argument is written to, though the name does not end in an underscore;
    ``running_statistics`` is the position of the running mean, behind which the variance is, that are changed without
    torch's counting it.

    Autocast: ``narrow_inside`` says that accelerators compute it in the narrow dtype though its result is float32,
    where the CPU's autocast widens its inputs.

    Math modes: ``recurrent`` says that products are those of a recurrent layer, for which devices have a switch of
    their own.
    """

    constraint: Constraint | None = None
    reads: sparse_reads.Reads | None = None
    class_targets: bool = False
    index: bool = False
    bare_sizes: bool = False
    random: PropertyOf | None = None
    switch: SwitchOf | None = None
    readable: Readable | None = None
    selection: Selection | RankedPositions | None = None
    writers: Writers | None = None
    leaves_open: OpenElements | None = None
    running: Running | None = None
    alignment: Alignment | None = None
    products: Products | None = None
    undifferentiable: Undifferentiable | None = None
    quantizes: frozenset[torch.dtype] = frozenset()
    quantized: QuantizedResults | None = None
    of_dtype: bool = False
    in_place: bool = False
    running_statistics: int | None = None
    narrow_inside: bool = False
    recurrent: bool = False


#: Rows of a table of operations: their names, separated by blanks, and what is special about them.
Rows: TypeAlias = tuple[tuple[str, OpInfo], ...]


INDEX_ROWS: Rows = (
    # Indices: within the dimension that they count in, and distinct where places are written to.
    ("embedding", OpInfo(constraint=indices.embedding, reads=sparse_reads.embedding)),
    ("embedding_renorm embedding_renorm_", OpInfo(constraint=indices.of_rows)),
    (
        "embedding_bag _embedding_bag _embedding_bag_forward_only",
        OpInfo(constraint=indices.embedding_bag, reads=sparse_reads.embedding),
    ),
    ("_gather_sparse_backward", OpInfo(constraint=indices.along_dim)),
    ("gather", OpInfo(constraint=indices.along_dim, reads=sparse_reads.gathered)),
    ("index_select", OpInfo(constraint=indices.along_dim, reads=sparse_reads.selected)),
    ("take_along_dim", OpInfo(constraint=indices.take_along_dim)),
    (
        "scatter_add scatter_add_ scatter_reduce scatter_reduce_ index_add index_add_ index_reduce index_reduce_",
        OpInfo(constraint=indices.along_dim),
    ),
    ("scatter scatter_", OpInfo(constraint=indices.written_along_dim, writers=several_writers.SCATTERED)),
    ("index_copy index_copy_", OpInfo(constraint=indices.written_along_dim, writers=several_writers.COPIED_ALONG_DIM)),
    ("index_fill index_fill_", OpInfo(constraint=indices.written_along_dim)),
    ("take", OpInfo(constraint=indices.take)),
    ("put put_", OpInfo(constraint=indices.put, writers=several_writers.PUT)),
    ("_unsafe_index", OpInfo(constraint=indices.indexing)),
    ("index", OpInfo(constraint=indices.indexing, reads=sparse_reads.indexed)),
    (
        "index_put index_put_ _index_put_impl _index_put_impl_ _unsafe_index_put",
        OpInfo(constraint=indices.written_indexing, writers=several_writers.BETWEEN_BRACKETS),
    ),
    ("__getitem__", OpInfo(constraint=indices.indexing, reads=sparse_reads.indexed, index=True)),
    (
        "__setitem__",
        OpInfo(
            constraint=indices.written_indexing,
            index=True,
            in_place=True,
            writers=several_writers.BETWEEN_BRACKETS,
            leaves_open=open_elements.BETWEEN_BRACKETS,
        ),
    ),
    ("masked_scatter masked_scatter_", OpInfo(constraint=values.masked_scatter)),
    ("max_unpool1d", OpInfo(constraint=values.unpool(1), writers=several_writers.unpooled(1))),
    ("max_unpool2d", OpInfo(constraint=values.unpool(2), writers=several_writers.unpooled(2))),
    ("max_unpool3d", OpInfo(constraint=values.unpool(3), writers=several_writers.unpooled(3))),
    # Classes, lengths and counts.
    # Its log_softmax is asked for in the dtype of the logits, which the autocast of accelerators leaves as it is.
    ("cross_entropy", OpInfo(constraint=indices.class_target, class_targets=True, narrow_inside=True)),
    ("nll_loss", OpInfo(constraint=indices.class_target, class_targets=True)),
    (
        "nll_loss2d multi_margin_loss nll_loss_forward nll_loss2d_forward nll_loss_nd",
        OpInfo(constraint=indices.class_target),
    ),
    ("one_hot bincount", OpInfo(constraint=indices.one_hot)),
    ("repeat_interleave", OpInfo(constraint=values.repeats)),
    ("ctc_loss _ctc_loss", OpInfo(constraint=values.ctc_loss())),
    ("_ctc_loss_backward", OpInfo(constraint=values.ctc_loss(1, blank_at=7))),
    ("nll_loss_backward nll_loss2d_backward", OpInfo(constraint=indices.class_target_of(1, ignored_at=5))),
    ("multi_margin_loss_backward", OpInfo(constraint=indices.class_target_of(1, ignored_at=None))),
    (
        "multilabel_margin_loss multilabel_margin_loss_forward",
        OpInfo(constraint=indices.several_class_targets(0)),
    ),
    ("multilabel_margin_loss_backward", OpInfo(constraint=indices.several_class_targets(1))),
    # Gradients, which are written to the places that the forward call read.
    (
        "embedding_backward embedding_dense_backward embedding_sparse_backward",
        OpInfo(constraint=indices.of_embedding_gradient),
    ),
    (
        "_embedding_bag_backward",
        OpInfo(constraint=segments.embedding_bag_gradient(1, 3, 6, offsets=2, sizes=4, maxima=5)),
    ),
    (
        "_embedding_bag_dense_backward",
        OpInfo(constraint=segments.embedding_bag_gradient(1, 2, 5, sizes=3, maxima=4)),
    ),
    (
        "_embedding_bag_sparse_backward",
        OpInfo(constraint=segments.embedding_bag_gradient(1, 3, 5, offsets=2, sizes=4)),
    ),
    (
        "_embedding_bag_per_sample_weights_backward",
        OpInfo(constraint=segments.embedding_bag_gradient(2, 4, 1, offsets=3)),
    ),
    ("gather_backward", OpInfo(constraint=indices.along_dim_of(1, 2, 3))),
    ("cummaxmin_backward", OpInfo(constraint=indices.along_dim_of(1, 3, 2))),
    ("index_select_backward", OpInfo(constraint=placed.within(3, "index", 1, "self_sizes", 2))),
    ("value_selecting_reduction_backward", OpInfo(constraint=placed.within(2, "indices", 3, "sizes", 1))),
    ("max_pool2d_with_indices_backward", OpInfo(constraint=indices.of_pooling_gradient(2, 7))),
    ("max_pool3d_with_indices_backward", OpInfo(constraint=indices.of_pooling_gradient(3, 7))),
    ("adaptive_max_pool2d_backward", OpInfo(constraint=indices.of_pooling_gradient(2, 2))),
    ("adaptive_max_pool3d_backward", OpInfo(constraint=indices.of_pooling_gradient(3, 2))),
    ("fractional_max_pool2d_backward", OpInfo(constraint=indices.of_pooling_gradient(2, 4))),
    ("fractional_max_pool3d_backward", OpInfo(constraint=indices.of_pooling_gradient(3, 4))),
    # Numbers that divide data into parts.
    ("segment_reduce", OpInfo(constraint=segments.segment_reduce(0))),
    ("_segment_reduce_backward", OpInfo(constraint=segments.segment_reduce(2))),
    ("_pack_padded_sequence", OpInfo(constraint=segments.padded_lengths)),
    ("_pad_packed_sequence", OpInfo(constraint=segments.batch_sizes(0, 1))),
    ("_pack_padded_sequence_backward", OpInfo(constraint=segments.batch_sizes(0, 2))),
    ("_jagged_to_padded_dense_forward", OpInfo(constraint=segments.jagged)),
    ("_padded_dense_to_jagged_forward", OpInfo(constraint=segments.jagged_of_padded)),
    ("_nested_view_from_jagged _nested_view_from_jagged_copy", OpInfo(constraint=segments.jagged_view)),
    ("grouped_mm _grouped_mm", OpInfo(constraint=segments.grouped_products(2))),
    ("_scaled_grouped_mm", OpInfo(constraint=segments.grouped_products(4))),
    ("_scaled_grouped_mm_v2", OpInfo(constraint=segments.grouped_products(8))),
    ("scaled_grouped_mm", OpInfo(constraint=segments.grouped_products(9))),
    ("_flash_attention_forward", OpInfo(constraint=segments.cumulative_lengths(0, 3, dim=0))),
    ("_flash_attention_forward_no_dropout_inplace", OpInfo(constraint=segments.cumulative_lengths(1, 4, dim=0))),
    ("_flash_attention_backward", OpInfo(constraint=segments.cumulative_lengths(1, 6, dim=0))),
    ("_efficient_attention_forward", OpInfo(constraint=segments.cumulative_lengths(0, 4, dim=1))),
    ("_efficient_attention_backward", OpInfo(constraint=segments.cumulative_lengths(1, 6, dim=1))),
    # MindSpore's.
    ("flash_attention_score", OpInfo(constraint=values.packed_attention(ends_at=9))),
    # Sparse and factored matrices.
    (
        """sparse_csr_tensor sparse_csc_tensor sparse_bsr_tensor sparse_bsc_tensor sparse_compressed_tensor
        _sparse_csr_tensor_unsafe _sparse_csc_tensor_unsafe _sparse_bsr_tensor_unsafe _sparse_bsc_tensor_unsafe
        _sparse_compressed_tensor_unsafe _validate_sparse_csr_tensor_args _validate_sparse_csc_tensor_args
        _validate_sparse_bsr_tensor_args _validate_sparse_bsc_tensor_args _validate_sparse_compressed_tensor_args
        _convert_indices_from_csr_to_coo""",
        OpInfo(constraint=segments.compressed_sparse(0, 1)),
    ),
    ("_validate_compressed_sparse_indices", OpInfo(constraint=segments.compressed_sparse(1, 2))),
    ("_convert_indices_from_coo_to_csr", OpInfo(constraint=segments.sorted_rows)),
    (
        "sparse_coo_tensor _sparse_coo_tensor_unsafe _validate_sparse_coo_tensor_args",
        OpInfo(constraint=segments.coordinates(0, 2)),
    ),
    ("_sparse_coo_tensor_with_dims_and_tensors", OpInfo(constraint=segments.coordinates(3, 2))),
    ("ldl_solve linalg_ldl_solve lu_solve linalg_lu_solve lu_unpack", OpInfo(constraint=segments.pivots)),
    # What no drawn numbers fit: how memory lies, what another kernel packed, sequences of which only that knows.
    (
        """_nested_view_from_buffer _nested_view_from_buffer_copy _pack_sequence _cudnn_attention_forward
        _cudnn_attention_backward _scaled_dot_product_cudnn_attention_backward
        _scaled_dot_product_flash_attention_backward _scaled_dot_product_fused_attention_overrideable_backward
        _cslt_sparse_mm _sparse_semi_structured_addmm _sparse_semi_structured_linear _sparse_semi_structured_mm""",
        OpInfo(constraint=recorded_numbers),
    ),
)
