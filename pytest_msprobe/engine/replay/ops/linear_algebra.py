"""Rows of products, of solvers and factors of matrices, and of sparse ones."""

from __future__ import annotations

from typing import Final

from pytest_msprobe.engine.replay.inputs.constraints import segments, values
from pytest_msprobe.engine.replay.inputs.constraints.drawn import recorded_numbers
from pytest_msprobe.engine.replay.ops import canonical_factors
from pytest_msprobe.engine.replay.ops.canonical_factors import (
    equal_eigenvalues,
    equal_singular_values,
    singular_matrix,
)
from pytest_msprobe.engine.replay.ops.cuts import Blocks, einsum, product
from pytest_msprobe.engine.replay.ops.traits import Home, OpInfo, Rows


def _product(blocks: Blocks, found_in: Home | None = None) -> OpInfo:
    return OpInfo(blocks=blocks, terms="product", gradient_terms="product", found_in=found_in)


def _sum(blocks: Blocks, found_in: Home | None = None) -> OpInfo:
    terms: Final = "addend_and_product"
    return OpInfo(blocks=blocks, terms=terms, gradient_terms=terms, found_in=found_in)


ROWS: Rows = (
    ("matmul __matmul__", _product(Blocks(product("input", "other"), "input other", is_product=True))),
    ("mm", _product(Blocks(product("input", "mat2"), "input mat2", is_product=True), "torch.sparse")),
    ("bmm", _product(Blocks(product("input", "mat2"), "input mat2", is_product=True))),
    ("addmm", _sum(Blocks(product("mat1", "mat2", "input"), "input mat1 mat2", is_product=True), "torch.sparse")),
    ("baddbmm", _sum(Blocks(product("batch1", "batch2", "input"), "input batch1 batch2", is_product=True))),
    ("addmv addbmm", OpInfo(terms="addend_and_product")),
    (
        "einsum",
        OpInfo(blocks=Blocks(einsum, "equation first second third fourth", is_product=True), terms="product"),
    ),
    ("__rmatmul__ dot vdot inner mv tensordot", OpInfo(terms="product")),
    ("scaled_mm", OpInfo(found_in="torch.nn.functional")),
    ("grouped_mm", OpInfo(constraint=segments.grouped_products(2), found_in="torch.nn.functional")),
    ("_grouped_mm", OpInfo(constraint=segments.grouped_products(2))),
    ("_scaled_grouped_mm", OpInfo(constraint=segments.grouped_products(4))),
    ("_scaled_grouped_mm_v2", OpInfo(constraint=segments.grouped_products(8))),
    ("scaled_grouped_mm", OpInfo(constraint=segments.grouped_products(9), found_in="torch.nn.functional")),
    # Matrices for which alone a result is defined, or for which right results agree.
    (
        "cholesky cholesky_ex",
        OpInfo(constraint=values.positive_definite, products=canonical_factors.product_of_cholesky_factor),
    ),
    ("cholesky_inverse", OpInfo(constraint=values.positive_definite)),
    (
        "logdet slogdet linalg_slogdet _linalg_slogdet",
        OpInfo(constraint=values.positive_definite, undifferentiable=singular_matrix),
    ),
    (
        "inv inv_ex inverse solve solve_ex solve_triangular",
        OpInfo(constraint=values.well_conditioned(0, "input", "A")),
    ),
    ("triangular_solve cholesky_solve", OpInfo(constraint=values.well_conditioned(1, "A", "input2", "L"))),
    ("ldl_solve linalg_ldl_solve lu_solve linalg_lu_solve lu_unpack", OpInfo(constraint=segments.pivots)),
    # Factors, of which several forms are right.
    (
        "svd linalg_svd _linalg_svd",
        OpInfo(
            alignment=canonical_factors.singular_vectors,
            products=canonical_factors.product_of_singular_vectors,
            undifferentiable=equal_singular_values,
        ),
    ),
    (
        "eigh linalg_eigh _linalg_eigh",
        OpInfo(
            alignment=canonical_factors.eigenvectors,
            products=canonical_factors.product_of_eigenvectors,
            undifferentiable=equal_eigenvalues,
        ),
    ),
    (
        "eig eigvals linalg_eig linalg_eigvals",
        OpInfo(alignment=canonical_factors.eigenvalues_in_any_order, undifferentiable=equal_eigenvalues),
    ),
    (
        "qr linalg_qr",
        OpInfo(alignment=canonical_factors.orthogonal_factor, products=canonical_factors.product_of_orthogonal_factor),
    ),
    # Sparse matrices, and tensors of rows that differ in length.
    ("sampled_addmm", OpInfo(found_in="torch.sparse")),
    ("to_sparse_bsc to_sparse_bsr to_sparse_coo to_sparse_csc to_sparse_csr", OpInfo(found_in="torch.Tensor")),
    ("to_padded_tensor", OpInfo(found_in="torch.nested")),
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
    # What another kernel packed.
    (
        "_cslt_sparse_mm _sparse_semi_structured_addmm _sparse_semi_structured_linear _sparse_semi_structured_mm",
        OpInfo(constraint=recorded_numbers),
    ),
)
