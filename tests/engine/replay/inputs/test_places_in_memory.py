"""Drawn numbers that a kernel takes for places in memory are valid: it reads and writes nothing beyond the data."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from msprobe_hooks.dump.names import parse_api_name
from msprobe_hooks.dump.schema import forward_record
from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.engine.replay.calls.arguments import Arguments, build_arguments, constrain
from pytest_msprobe.engine.replay.ops.op_info import op_info
from pytest_msprobe.results.outcomes import Skip, SkipReason

aten = torch.ops.aten


def mended(api: str, *args: Any, seed: int = 0, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return constrain(api, args, kwargs, seed)


def wild(*shape: int, low: int = -1000, high: int = 1000, seed: int = 0) -> torch.Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed))


def floats(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def divides(ends: torch.Tensor, total: int) -> bool:
    """Return whether each row begins at 0, does not fall and ends with the data."""
    rows = ends.reshape(-1, ends.shape[-1]).tolist()
    return all(row[0] == 0 and row[-1] == total and row == sorted(row) for row in rows)


@given(st.integers(0, 2**40), st.integers(1, 7), st.integers(1, 5), st.sampled_from([0, 1]), st.booleans())
def test_segments_divide_the_data(seed: int, rows: int, segments: int, axis: int, unsafe: bool) -> None:
    data = floats(*(3, rows)[1 - axis :], 2)
    lead = data.shape[:axis]
    _, offsets = mended("segment_reduce", data, "sum", offsets=wild(*lead, segments + 1), axis=axis, seed=seed)
    assert divides(offsets["offsets"], rows)
    _, lengths = mended("segment_reduce", data, "sum", lengths=wild(*lead, segments), axis=axis, seed=seed)
    assert bool((lengths["lengths"] >= 0).all())
    assert bool((lengths["lengths"].sum(-1) == rows).all())
    reduced = torch.segment_reduce(data, "sum", unsafe=unsafe, **offsets)
    torch.testing.assert_close(reduced.sum(axis), data.sum(axis))


def test_segments_of_a_gradient_divide_the_data() -> None:
    data, offsets = floats(9, 2), wild(5)
    _, kwargs = mended("_segment_reduce_backward", floats(4, 2), floats(4, 2), data, "sum", offsets=offsets, axis=0)
    assert divides(kwargs["offsets"], 9)


@pytest.mark.parametrize(
    ("api", "function", "args", "kwargs"),
    [
        ("_embedding_bag_forward_only", aten._embedding_bag_forward_only, (floats(10, 6), wild(12), wild(4)), {}),
        ("embedding_renorm_", aten.embedding_renorm_, (floats(10, 6), wild(4), 1.0, 2.0), {}),
        ("embedding_dense_backward", aten.embedding_dense_backward, (floats(5, 6), wild(5), 10, -1, False), {}),
        ("gather_backward", aten.gather_backward, (floats(3, 2), floats(3, 5), 1, wild(3, 2), False), {}),
        ("index_select_backward", aten.index_select_backward, (floats(3, 2), [3, 5], 1, wild(2)), {}),
        ("_unsafe_index", aten._unsafe_index, (floats(3, 5), [wild(4), wild(4)]), {}),
        ("_unsafe_index_put", aten._unsafe_index_put, (floats(3, 5), [wild(4), wild(4)], floats(4)), {}),
        (
            "max_pool2d_with_indices_backward",
            aten.max_pool2d_with_indices_backward,
            (floats(2, 3, 2, 2), floats(2, 3, 4, 4), [2, 2], [2, 2], [0, 0], [1, 1], False, wild(2, 3, 2, 2)),
            {},
        ),
        ("nll_loss_backward", aten.nll_loss_backward, (floats(), floats(4, 5), wild(4), None, 1, -100, floats()), {}),
        ("multilabel_margin_loss", torch.nn.functional.multilabel_margin_loss, (floats(4, 5), wild(4, 5)), {}),
        ("linalg.lu_solve", torch.linalg.lu_solve, (floats(4, 4), wild(4).int(), floats(4, 2)), {}),
        ("linalg.ldl_solve", torch.linalg.ldl_solve, (floats(4, 4), wild(4).int(), floats(4, 2)), {}),
        ("lu_unpack", torch.lu_unpack, (floats(4, 6), wild(4).int()), {}),
        ("sparse_csr_tensor", torch.sparse_csr_tensor, (wild(5), wild(7, low=0, high=6), floats(7), (4, 6)), {}),
        ("sparse_csc_tensor", torch.sparse_csc_tensor, (wild(5), wild(7, low=0, high=6), floats(7), (6, 4)), {}),
        ("sparse_coo_tensor", torch.sparse_coo_tensor, (wild(2, 7), floats(7), (4, 6)), {}),
        ("_pack_padded_sequence", torch._pack_padded_sequence, (floats(6, 4, 3), wild(4), False), {}),
        ("_pad_packed_sequence", torch._pad_packed_sequence, (floats(9, 3), wild(4, low=1, high=4), False, 0.0, 4), {}),
        ("grouped_mm", torch.nn.functional.grouped_mm, (floats(9, 8), floats(3, 8, 4)), {"offs": wild(3).int()}),
        ("repeat_interleave.Tensor", aten.repeat_interleave.Tensor, (wild(3),), {"output_size": 8}),
        ("_ctc_loss", torch._ctc_loss, (floats(9, 2, 5), wild(2, 3), wild(2), wild(2)), {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.filterwarnings("ignore:Sparse CS. tensor support is in beta:UserWarning")
def test_torch_accepts_what_was_drawn(
    api: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    args, kwargs = torch.utils._pytree.tree_map_only(torch.Tensor, torch.clone, (args, kwargs))
    args, kwargs = mended(api, *args, **kwargs)
    with torch.sparse.check_sparse_tensor_invariants():
        function(*args, **kwargs)


def test_the_bags_of_a_gradient_agree_on_where_they_start_and_what_they_hold() -> None:
    arguments = (floats(4, 6), wild(10), wild(4), wild(10), wild(4), wild(4, 6), 8)
    (_, places, starts, owners, sizes, maxima, _), _ = mended("_embedding_bag_backward", *arguments)
    assert owners.bincount(minlength=4).tolist() == sizes.tolist()
    assert starts.tolist() == [0, *sizes.cumsum(0).tolist()[:-1]]
    assert owners.tolist() == sorted(owners.tolist())
    for within in (places, maxima):
        assert 0 <= int(within.min()) <= int(within.max()) < 8


def test_the_levels_of_jagged_data_divide_what_is_below() -> None:
    (_, [outer, inner], _), _ = mended("_jagged_to_padded_dense_forward", floats(9, 2), [wild(3), wild(6)], [3, 2])
    assert divides(outer, 5)
    assert divides(inner, 9)
    (_, [ends], _), _ = mended("_padded_dense_to_jagged_forward", floats(3, 4, 2), [wild(4)], 10)
    assert divides(ends, 10)


@pytest.mark.parametrize(("api", "before"), [("_flash_attention_forward", 3), ("_efficient_attention_forward", 4)])
def test_cumulative_lengths_divide_the_tokens(api: str, before: int) -> None:
    tokens = [floats(10, 2, 4), floats(7, 2, 4), floats(7, 2, 4)]
    if api.startswith("_eff"):
        tokens = [each[None] for each in tokens]
    args, _ = mended(api, *tokens, *[None] * (before - 3), wild(4).int(), wild(4).int())
    assert divides(args[before], 10)
    assert divides(args[before + 1], 7)


def test_ends_of_packed_sequences_grow_to_the_number_of_tokens() -> None:
    tokens = (floats(10, 2, 4), floats(7, 2, 4), floats(7, 2, 4))
    _, kwargs = mended("flash_attention_score", *tokens, actual_seq_qlen=wild(4), actual_seq_kvlen=wild(4))
    assert (kwargs["actual_seq_qlen"].tolist(), kwargs["actual_seq_kvlen"].tolist()) == ([3, 6, 8, 10], [2, 4, 6, 7])


def test_ends_given_by_position_grow_too() -> None:
    args, _ = mended("flash_attention_score", *[floats(6, 2, 4)] * 3, 2, *[None] * 5, wild(2), wild(3))
    assert (args[9].tolist(), args[10].tolist()) == ([3, 6], [2, 4, 6])


# Names of arguments that are places, and those that are numbers under such a name: losses compare with a target.
_PLACES = re.compile(r"ind(ex|ices)|idx|offs|length|seqlen|seq_[qk]|batch_sizes|pivots|repeats|block_table|offset2bag")
_NUMBERS = frozenset("philox_offset col_offsets max_seqlen min_seqlen".split())
# They return the indices, look at each before they use it, or make shapes of them.
_HARMLESS = frozenset(
    """_cummax_helper _cummin_helper _set_item _spdiags _unsafe_masked_index _unsafe_masked_index_put_accumulate
    _nested_from_padded_tensor tensor_split""".split()
)
# Libraries of other devices, which no CPU computes.
_ELSEWHERE = (
    "miopen_",
    "cudnn_",
    "_cudnn_",
    "_use_",
    "quantized_",
    "fbgemm_",
    "mkldnn_",
    "_thnn_",
    "_mps_",
    "_lstm_mps",
)


def _arguments_that_are_places() -> Iterator[str]:
    for schema in torch._C._jit_get_all_schemas():
        library, _, operation = schema.name.partition("::")
        if library == "aten" and operation not in _HARMLESS and not operation.startswith(_ELSEWHERE):
            tensors = (each.name for each in schema.arguments if "Tensor" in str(each.type) and not each.is_out)
            if any(_PLACES.search(name) and name not in _NUMBERS for name in tensors):
                yield operation


@pytest.mark.parametrize("operation", sorted(set(_arguments_that_are_places())))
def test_each_operation_of_torch_that_takes_places_has_a_constraint(operation: str) -> None:
    assert op_info(operation).constraint is not None


def element(dtype: str, shape: list[int], low: float, high: float, **more: Any) -> dict[str, Any]:
    kind = {"type": "torch.Tensor", "requires_grad": False}
    return {**kind, "dtype": f"torch.{dtype}", "shape": shape, "Max": high, "Min": low, **more}


DATA = element("float32", [9], -1.0, 1.0)


def built(api: str, *args: Any, folder: Path = Path("none"), real: bool = False, **kwargs: Any) -> Arguments:
    name = parse_api_name(f"{api}.0.forward")
    record = forward_record(str(name), {"input_args": [*args], "input_kwargs": kwargs, "output": [DATA]})
    return build_arguments(Call(name, record, None, folder), seed=0, real_data=real)


@pytest.mark.parametrize(
    ("api", "args"),
    [
        ("torch.ops.mine.attend", (DATA, element("int32", [4], 0, 9))),
        ("torch.ops.mine.attend.default", (DATA, [element("int64", [4], 0, 9)])),
        ("Aten._nested_view_from_buffer", (DATA, element("int64", [2, 1], 4, 5))),
    ],
)
def test_whole_numbers_of_which_nothing_is_known_have_to_be_recorded(api: str, args: tuple[Any, ...]) -> None:
    with pytest.raises(Skip, match=r"record this API's tensors: args\.1") as skip:
        built(api, *args)
    assert skip.value.reason is SkipReason.UNBOUNDED_NUMBERS


@pytest.mark.parametrize(
    "number",
    [
        DATA,
        element("int64", [4], 3, 3),
        element("int64", [1], 0, 9),
        element("uint8", [4], 0, 255),
        element("bool", [4], 0, 1),
    ],
)
def test_a_library_s_operator_is_checked_where_no_place_is_drawn(number: dict[str, Any]) -> None:
    assert len(built("torch.ops.mine.attend", DATA, number).args) == 2


@pytest.mark.parametrize("api", ["Torch.add", "Torch.where", "Tensor.__eq__", "torch.ops.aten.add.Tensor"])
def test_whole_numbers_that_torch_computes_with_are_drawn(api: str) -> None:
    number = element("int64", [4], 0, 9)
    assert len(built(api, number, number).args) == 2


def test_an_operator_of_torch_is_known_by_its_full_name() -> None:
    assert op_info("ops.aten.gather.default") is op_info("gather")
    assert op_info("ops.npu.npu_scatter") is op_info("npu_scatter")


def test_places_are_mended_where_only_other_tensors_have_files(tmp_path: Path) -> None:
    torch.save(floats(9), tmp_path / "data.pt")
    data = {**DATA, "data_name": "data.pt"}
    offsets = element("int64", [6], 0, 9)
    reduce = {"type": "str", "value": "sum"}
    arguments = built("Torch.segment_reduce", data, reduce, offsets=offsets, folder=tmp_path, real=True)
    assert torch.equal(arguments.args[0], floats(9))
    assert divides(arguments.kwargs["offsets"], 9)
