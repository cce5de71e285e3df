"""Rows of operations whose arguments index memory: indices, offsets, lengths and pointers."""

from __future__ import annotations

from pytest_msprobe.engine.replay.inputs import sparse_reads
from pytest_msprobe.engine.replay.inputs.constraints import indices, segments, values
from pytest_msprobe.engine.replay.inputs.constraints.drawn import recorded_numbers
from pytest_msprobe.engine.replay.ops import open_elements, several_writers
from pytest_msprobe.engine.replay.ops.cuts import Blocks, basic_index, columns_of_weights
from pytest_msprobe.engine.replay.ops.traits import OpInfo, Rows

ROWS: Rows = (
    # Indices: within the dimension that they count in, and distinct where places are written to.
    (
        "embedding",
        OpInfo(
            constraint=indices.embedding,
            reads=sparse_reads.embedding,
            blocks=Blocks(columns_of_weights, "input weight padding_idx max_norm norm_type scale_grad_by_freq sparse"),
        ),
    ),
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
    (
        "__getitem__",
        OpInfo(
            constraint=indices.indexing,
            reads=sparse_reads.indexed,
            index=True,
            blocks=Blocks(basic_index, "input index"),
        ),
    ),
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
    ("Gather", OpInfo(constraint=indices.slices, reads=sparse_reads.slices)),
    ("one_hot bincount", OpInfo(constraint=indices.one_hot)),
    ("repeat_interleave", OpInfo(constraint=values.repeats)),
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
    ("index_select_backward", OpInfo(constraint=indices.within(3, "index", 1, "self_sizes", 2))),
    ("value_selecting_reduction_backward", OpInfo(constraint=indices.within(2, "indices", 3, "sizes", 1))),
    ("max_pool2d_with_indices_backward", OpInfo(constraint=indices.of_pooling_gradient(2, 7))),
    ("max_pool3d_with_indices_backward", OpInfo(constraint=indices.of_pooling_gradient(3, 7))),
    ("adaptive_max_pool2d_backward", OpInfo(constraint=indices.of_pooling_gradient(2, 2))),
    ("adaptive_max_pool3d_backward", OpInfo(constraint=indices.of_pooling_gradient(3, 2))),
    ("fractional_max_pool2d_backward", OpInfo(constraint=indices.of_pooling_gradient(2, 4))),
    ("fractional_max_pool3d_backward", OpInfo(constraint=indices.of_pooling_gradient(3, 4))),
    # Numbers that divide data into parts.
    ("tensor_split", OpInfo(on_cpu=frozenset({"args.1", "kwargs.tensor_indices_or_sections"}))),
    ("_pack_padded_sequence", OpInfo(constraint=segments.padded_lengths, on_cpu=frozenset({"args.1"}))),
    ("_pad_packed_sequence", OpInfo(constraint=segments.batch_sizes(0, 1), on_cpu=frozenset({"args.1"}))),
    ("_pack_padded_sequence_backward", OpInfo(constraint=segments.batch_sizes(0, 2), on_cpu=frozenset({"args.2"}))),
    ("_jagged_to_padded_dense_forward", OpInfo(constraint=segments.jagged)),
    ("_padded_dense_to_jagged_forward", OpInfo(constraint=segments.jagged_of_padded)),
    ("_nested_view_from_jagged _nested_view_from_jagged_copy", OpInfo(constraint=segments.jagged_view)),
    # How memory lies, and sequences of which only another kernel knows: no drawn numbers fit.
    (
        "_nested_view_from_buffer _nested_view_from_buffer_copy _pack_sequence",
        OpInfo(constraint=recorded_numbers),
    ),
)
