"""Table of operations with special traits, and results that they leave open: to add an operation, start here.

An operation without a row has the defaults of ``OpInfo``. ``docs/operations.md`` says what each trait does, and which
few tables are with the algorithm that reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch

from msprobe_hooks.dump.effects import UNDEFINED_RESULTS
from pytest_msprobe.engine.replay.call import operation
from pytest_msprobe.engine.replay.inputs import sparse_reads
from pytest_msprobe.engine.replay.inputs.constraints import indices, values
from pytest_msprobe.engine.replay.inputs.constraints.drawn import recorded_numbers
from pytest_msprobe.engine.replay.linalg import canonical_factors, reconstruction
from pytest_msprobe.engine.replay.linalg.canonical_factors import (
    equal_eigenvalues,
    equal_singular_values,
    singular_matrix,
)
from pytest_msprobe.engine.replay.ops import open_elements
from pytest_msprobe.engine.replay.ops.operators import declared
from pytest_msprobe.engine.replay.ops.quantized_results import (
    Arguments,
    accept_quantized,
    accept_quantized_argument,
    are_neighbours,
)
from pytest_msprobe.engine.replay.ops.running_results import Running
from pytest_msprobe.engine.replay.ops.traits import INDEX_ROWS, OpInfo, Rows, Selection
from pytest_msprobe.engine.replay.random_apis import (
    attention_dropout,
    distributions,
    dropout,
    factories,
    probability_switch,
    sampling,
    unverifiable,
)
from pytest_msprobe.engine.replay.random_apis.sampled_indices import REQUIRED, RandomProperty


@cache
def op_info(api: str) -> OpInfo:
    """Return what is special about an API: ``norm``, ``linalg.norm`` or, with an overload of ATen, ``norm.out``."""
    name = operation(api)
    is_of_a_library = api.startswith("ops.") and "." in name
    row = TABLE.get(name)
    if row is None and (known := declared(name)) is not None:
        return known.info
    return row or (_OF_A_LIBRARY if is_of_a_library else _NOTHING_SPECIAL)


_ROWS: Rows = (
    # Values for which alone a result is defined, or for which right results agree.
    ("searchsorted", OpInfo(constraint=values.sorted_boundaries(0, "sorted_sequence"))),
    ("bucketize", OpInfo(constraint=values.sorted_boundaries(1, "boundaries"))),
    ("softmax log_softmax logsumexp _softmax _log_softmax", OpInfo(constraint=values.masked_scores)),
    # ... a division of whole numbers by none that is zero,
    (
        """div div_ divide divide_ true_divide true_divide_ floor_divide floor_divide_ __div__ __truediv__
        __floordiv__""",
        OpInfo(constraint=values.divisor(1, "other"), leaves_open=open_elements.DIVIDED),
    ),
    ("remainder remainder_ fmod fmod_ __mod__", OpInfo(constraint=values.divisor(1, "other"))),
    (
        "__rdiv__ __rtruediv__ __rfloordiv__",
        OpInfo(constraint=values.divisor(0), leaves_open=open_elements.DIVIDED_BY_FIRST),
    ),
    ("__rmod__", OpInfo(constraint=values.divisor(0))),
    (
        "cholesky cholesky_ex",
        OpInfo(constraint=values.positive_definite, products=reconstruction.of_cholesky_factor),
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
    # Elements that are made of the one before.
    ("cumsum cumsum_", OpInfo(running=Running())),
    ("cumprod cumprod_", OpInfo(running=Running(product=True))),
    ("logcumsumexp _logcumsumexp", OpInfo(running=Running(of_gradient=False))),
    ("cumulative_trapezoid", OpInfo(running=Running(dim_at=2, default=-1, of_gradient=False))),
    # Positions of equal values.
    ("max min median nanmedian cummax cummin", OpInfo(selection=Selection())),
    ("mode", OpInfo(selection=Selection(counts=True))),
    ("kthvalue", OpInfo(selection=Selection(dim_at=2))),
    ("topk", OpInfo(selection=Selection(dim_at=2, orders=True))),
    ("sort", OpInfo(selection=Selection(orders=True))),
    ("argsort", OpInfo(selection=Selection(outputs=1, orders=True))),
    ("argmax argmin", OpInfo(selection=Selection(outputs=1, dim=None))),
    # Factors of matrices, of which several forms are right; rank and singular values, which some drivers do not report.
    (
        "svd linalg_svd _linalg_svd",
        OpInfo(
            alignment=canonical_factors.singular_vectors,
            products=reconstruction.of_singular_vectors,
            undifferentiable=equal_singular_values,
        ),
    ),
    (
        "eigh linalg_eigh _linalg_eigh",
        OpInfo(
            alignment=canonical_factors.eigenvectors,
            products=reconstruction.of_eigenvectors,
            undifferentiable=equal_eigenvalues,
        ),
    ),
    (
        "eig eigvals linalg_eig linalg_eigvals",
        OpInfo(alignment=canonical_factors.eigenvalues_in_any_order, undifferentiable=equal_eigenvalues),
    ),
    (
        "qr linalg_qr",
        OpInfo(alignment=canonical_factors.orthogonal_factor, products=reconstruction.of_orthogonal_factor),
    ),
    # Results that are drawn: dropout and its like.
    (
        "dropout dropout_ native_dropout feature_dropout feature_dropout_ dropout1d dropout2d dropout3d",
        OpInfo(random=dropout.dropout, switch=probability_switch.probability("p", 1)),
    ),
    (
        "_fused_dropout",
        OpInfo(random=dropout.unconditional_dropout, switch=probability_switch.probability("p", 1, 1.0)),
    ),
    (
        "alpha_dropout alpha_dropout_ feature_alpha_dropout feature_alpha_dropout_",
        OpInfo(random=dropout.alpha_dropout, switch=probability_switch.probability("p", 1)),
    ),
    ("rrelu rrelu_", OpInfo(random=dropout.rrelu, switch=probability_switch.one_slope(1))),
    ("rrelu_with_noise rrelu_with_noise_", OpInfo(random=dropout.rrelu, switch=probability_switch.one_slope(2))),
    # ... by the values of the input,
    ("bernoulli", OpInfo(constraint=values.unit_interval, random=sampling.bernoulli)),
    ("bernoulli_", OpInfo(random=sampling.bernoulli)),
    ("multinomial", OpInfo(constraint=values.probabilities, random=sampling.multinomial)),
    ("poisson", OpInfo(constraint=values.probabilities, random=sampling.poisson)),
    ("gumbel_softmax", OpInfo(random=sampling.gumbel_softmax)),
    ("randperm", OpInfo(random=sampling.randperm)),
    # ... from a distribution,
    ("rand rand_like", OpInfo(random=factories.rand)),
    ("randn randn_like", OpInfo(random=factories.randn)),
    ("uniform uniform_", OpInfo(random=factories.uniform)),
    ("normal", OpInfo(random=factories.normal)),
    ("normal_ normal_functional", OpInfo(random=factories.normal_in_place)),
    ("randint", OpInfo(random=factories.randint)),
    ("randint_like", OpInfo(random=factories.randint_like)),
    ("random random_", OpInfo(random=factories.random)),
    (
        "exponential exponential_",
        OpInfo(random=factories.one_parameter(distributions.exponential, 1.0)),
    ),
    ("geometric geometric_", OpInfo(random=factories.one_parameter(distributions.geometric, REQUIRED))),
    (
        "cauchy cauchy_",
        OpInfo(random=factories.two_parameters(distributions.cauchy, ("median", "sigma"), (0.0, 1.0))),
    ),
    (
        "log_normal log_normal_",
        OpInfo(random=factories.two_parameters(distributions.log_normal, ("mean", "std"), (1.0, 2.0))),
    ),
    # ... within something larger,
    (
        """scaled_dot_product_attention _scaled_dot_product_attention_math
        _scaled_dot_product_fused_attention_overrideable""",
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
    (
        "lstm gru rnn_tanh rnn_relu",
        OpInfo(
            constraint=values.packed,
            random=unverifiable.recurrent,
            switch=probability_switch.between_layers,
            recurrent=True,
        ),
    ),
    (
        """fractional_max_pool2d fractional_max_pool2d_with_indices fractional_max_pool3d
        fractional_max_pool3d_with_indices""",
        OpInfo(random=unverifiable.fractional_pooling),
    ),
    # ... or whatever was in memory.
    (" ".join(sorted(UNDEFINED_RESULTS - {"new_empty"})), OpInfo(random=unverifiable.undefined)),
    ("new_empty", OpInfo(random=unverifiable.undefined, bare_sizes=True)),
    # Sizes given one by one.
    ("expand new_full new_ones new_zeros reshape view view_copy", OpInfo(bare_sizes=True)),
    # The next float16 after x, the largest float16.
    ("nextafter nan_to_num nan_to_num_", OpInfo(of_dtype=True)),
    # Numbers that the result's dtype does not hold.
    (
        """to type type_as byte char short int long _to_copy tensor as_tensor asarray""",
        OpInfo(leaves_open=open_elements.CAST),
    ),
    ("copy_ copy new_tensor", OpInfo(leaves_open=open_elements.COPIED)),
    (
        """bitwise_left_shift bitwise_left_shift_ bitwise_right_shift bitwise_right_shift_ __lshift__ __rshift__""",
        OpInfo(leaves_open=open_elements.SHIFTED),
    ),
    ("__rlshift__ __rrshift__", OpInfo(leaves_open=open_elements.SHIFTED_BY_FIRST)),
    # What is changed besides what the name says.
    ("__iadd__ __isub__ __imul__ __ipow__ __iand__ __ior__ __ixor__", OpInfo(in_place=True)),
    ("__ilshift__ __irshift__", OpInfo(in_place=True, leaves_open=open_elements.SHIFTED)),
    (
        "__idiv__ __itruediv__ __ifloordiv__",
        OpInfo(in_place=True, constraint=values.divisor(1), leaves_open=open_elements.DIVIDED),
    ),
    ("__imod__", OpInfo(in_place=True, constraint=values.divisor(1))),
    ("batch_norm instance_norm", OpInfo(running_statistics=1)),
    (
        "_batch_norm_impl_index _native_batch_norm_legit cudnn_batch_norm miopen_batch_norm native_batch_norm",
        OpInfo(running_statistics=3),
    ),
    ("BatchNorm", OpInfo(running_statistics=3)),
    ("LSTM", OpInfo(recurrent=True)),
    ("Gather", OpInfo(constraint=indices.slices, reads=sparse_reads.slices)),
    ("DType", OpInfo(of_dtype=True)),
    ("SoftmaxCrossEntropyWithLogits", OpInfo(constraint=values.distributions(1, "labels"))),
)


def _table(rows: Rows) -> dict[str, OpInfo]:
    table: dict[str, OpInfo] = {}
    for names, traits in rows:
        for name in names.split():
            if name in table:
                raise ValueError(f"{name} has two rows: put all that is special about it into one")
            table[name] = traits
    return table


#: The operations that have a row, by name without namespace and overload.
TABLE: Mapping[str, OpInfo] = _table((*INDEX_ROWS, *_ROWS))
_NOTHING_SPECIAL = OpInfo()
# What the whole numbers of another library's operator are for, its schema does not say.
_OF_A_LIBRARY = OpInfo(constraint=recorded_numbers)


def random_property(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Return what the result of this call must be like, or None where it is not random.

    ``api`` is the API's name without its type, such as ``dropout`` or ``bernoulli_``; a namespace before it and
    an overload after it may stay (``nn.dropout2d``, ``bernoulli.p``). ``args`` and ``kwargs`` are the call's
    inputs before the call, tensors on the CPU. A call that happens not to be random, such as dropout outside of
    training, gives None too.

    Raises TypeError where the call's arguments do not fit the API.
    """
    property_of = op_info(api).random
    if property_of is None:
        return None
    try:
        return property_of(operation(api), args, kwargs)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, ValueError) as error:
        # A tensor of several elements for a probability, words for a shape: the call itself could not use them.
        raise TypeError(f"the recorded arguments of {api} do not fit it: {error}") from error


def accept_implementation_defined(
    operation: str, arguments: Arguments, target: dict[str, Any], golden: dict[str, Any]
) -> None:
    """Write golden's values into the target's results, in place, where the operation leaves them open.

    Both are trees of CPU tensors: the ``output``, a single one in a list, and the ``changed`` arguments by path. Golden
    has None for a result that was not asked for. The arguments are those of the call, by position and by name.
    """
    traits = op_info(operation)
    is_optional = declared(operation) is not None
    if not (traits.quantizes or traits.quantized or is_optional):
        return
    output, right = target["output"], golden["output"]
    if len(output) == len(right):
        pairs = zip(output, right, strict=True)
        found = [None if is_optional and each is None else _accepted(result, each, traits) for result, each in pairs]
        if traits.quantized is not None:
            accept_quantized(traits.quantized, arguments, found, list(right))
        target["output"] = type(output)(found)
    kept = golden.get("changed", {})
    for path, changed in target.get("changed", {}).items():
        if path in kept:
            found = _accepted(changed, kept[path], traits)
            if traits.quantized is not None:
                found = accept_quantized_argument(traits.quantized, arguments, found, kept[path])
            target["changed"][path] = found


def _accepted(found: Any, right: Any, traits: OpInfo) -> Any:
    if not (isinstance(found, torch.Tensor) and isinstance(right, torch.Tensor)):
        return found
    if found.shape != right.shape or found.dtype != right.dtype or found.dtype not in traits.quantizes:
        return found
    return right if are_neighbours(found.long(), right.long()) else found
