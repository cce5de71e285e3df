"""A call computed block by block gives what it gives as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.engine.replay.calls.arguments import Arguments, Subject
from pytest_msprobe.engine.replay.partition import cuts_of
from pytest_msprobe.engine.replay.trials.trial import Trial
from tests.engine.replay.blockwise.whole import assert_blocks_are_the_whole, laid_side_by_side

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
F = torch.nn.functional

# By operation: the function, shapes of its tensors for sizes a, b and c, and what else it takes.
CALLS: dict[str, tuple[Callable[..., Any], Callable[[int, int, int], list[tuple[int, ...]]], dict[str, Any]]] = {
    "linear": (F.linear, lambda a, b, c: [(a, b), (c, b), (c,)], {}),
    "matmul": (torch.matmul, lambda a, b, c: [(2, a, b), (2, b, c)], {}),
    "__matmul__": (torch.Tensor.__matmul__, lambda a, b, c: [(3, a, b), (b, c)], {}),
    "mm": (torch.mm, lambda a, b, c: [(a, b), (b, c)], {}),
    "bmm": (torch.bmm, lambda a, b, c: [(3, a, b), (3, b, c)], {}),
    "addmm": (torch.addmm, lambda a, b, c: [(c,), (a, b), (b, c)], {"beta": 0.5, "alpha": -3}),
    "baddbmm": (torch.baddbmm, lambda a, b, c: [(2, a, c), (2, a, b), (2, b, c)], {}),
    "softmax": (torch.softmax, lambda a, b, c: [(a, b, c)], {"dim": 1}),
    "log_softmax": (F.log_softmax, lambda a, b, c: [(a, b)], {"dim": -1}),
    "layer_norm": (F.layer_norm, lambda a, b, c: [(a, b, c)], {"normalized_shape": [0]}),
    "rms_norm": (F.rms_norm, lambda a, b, c: [(a, b, c)], {"normalized_shape": [0]}),
    "add": (torch.add, lambda a, b, c: [(a, 1, c), (b, c)], {"alpha": 2}),
    "__mul__": (torch.Tensor.__mul__, lambda a, b, c: [(a, b, c), (c,)], {}),
    "gelu": (F.gelu, lambda a, b, c: [(a, b, c)], {"approximate": "tanh"}),
    "exp": (torch.exp, lambda a, b, c: [(b, c)], {}),
    "mse_loss": (F.mse_loss, lambda a, b, c: [(a, b, c), (a, b, c)], {}),
    "l1_loss": (F.l1_loss, lambda a, b, c: [(a, b), (a, b)], {"reduction": "sum"}),
    "smooth_l1_loss": (F.smooth_l1_loss, lambda a, b, c: [(a, b), (a, b)], {"beta": 0.5}),
    "huber_loss": (F.huber_loss, lambda a, b, c: [(a, b), (a, b)], {"reduction": "none"}),
    "binary_cross_entropy_with_logits": (F.binary_cross_entropy_with_logits, lambda a, b, c: [(a, b), (a, b)], {}),
}
# Products are summed in another order for other shapes; the CPU's GELU, and its softmax over a dimension that is not
# the last, have another formula for the last few elements, which fill no vector: how many, depends on the threads.
ROUNDED_OTHERWISE = frozenset({"linear", "matmul", "__matmul__", "mm", "bmm", "addmm", "baddbmm", "gelu", "softmax"})
LOSSES = frozenset(name for name in CALLS if name.endswith(("_loss", "_logits")))


def trial_of(name: str, sizes: tuple[int, int, int], dtype: torch.dtype, seed: int) -> Trial:
    function, shapes, kwargs = CALLS[name]
    if "normalized_shape" in kwargs:
        kwargs = {"normalized_shape": [sizes[2]]}
    generator = torch.Generator().manual_seed(seed)
    args = tuple(torch.randn(shape, generator=generator).to(dtype) for shape in shapes(*sizes))
    arguments = Arguments(args, kwargs, frozenset(f"args.{i}" for i in range(len(args))))

    def arriving(output: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"": torch.randn(output.shape, generator=generator).to(output.dtype)}

    return Trial(Subject(f"Torch.{name}.0", name, function, function, arguments, arriving), CpuDevice())


@given(
    st.sampled_from(sorted(CALLS)),
    st.tuples(*[st.integers(2, 12)] * 3),
    st.sampled_from(DTYPES),
    st.integers(0, 2**20),
    st.integers(1, 6),
)
@settings(max_examples=80, deadline=None)
def test_blocks_of_every_cut_are_the_whole(
    name: str, sizes: tuple[int, int, int], dtype: torch.dtype, seed: int, size: int
) -> None:
    assert_blocks_are_the_whole(trial_of(name, sizes, dtype, seed), size)


@given(
    st.sampled_from(["cross_entropy", "nll_loss"]),
    st.tuples(*[st.integers(2, 12)] * 3),
    st.sampled_from(DTYPES),
    st.integers(0, 2**20),
    st.integers(1, 6),
    st.sampled_from(["mean", "sum", "none"]),
    st.booleans(),
    st.sampled_from([0.0, 0.2]),
)
@settings(max_examples=60, deadline=None)
def test_blocks_of_a_loss_of_classes_are_the_whole_with_ignored_rows_and_weights(
    name: str,
    sizes: tuple[int, int, int],
    dtype: torch.dtype,
    seed: int,
    size: int,
    reduction: str,
    weighted: bool,
    smoothing: float,
) -> None:
    rows, classes, more = sizes
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, classes, more, generator=generator).to(dtype)
    target = torch.randint(0, classes, (rows, more), generator=generator)
    # The first stays, so that there is one to take the mean of.
    target.view(-1)[1:][torch.rand(rows * more - 1, generator=generator) < 0.4] = 1
    target[0, 0] = 0
    weight = {"weight": torch.rand(classes, generator=generator).to(dtype) + 0.5} if weighted else {}
    smooth = {"label_smoothing": smoothing} if name == "cross_entropy" else {}
    kwargs = {"ignore_index": 1, "reduction": reduction, **weight, **smooth}
    arguments = Arguments((x, target), kwargs, frozenset({"args.0"}))
    function = getattr(F, name)
    arriving = lambda output: {"": torch.full(output.shape, 0.7, dtype=output.dtype)}  # noqa: E731
    subject = Subject(f"Functional.{name}.0", name, function, function, arguments, arriving)
    assert_blocks_are_the_whole(Trial(subject, CpuDevice()), size)


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def around_one(*shape: int) -> torch.Tensor:
    return normal(*shape).abs() + 0.5


i, plane, heads = slice(None), normal(5, 6, 7, 4), normal(2, 4, 5, 6)
OTHERS: dict[str, tuple[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "a product": ("einsum", torch.einsum, ("bij,bjk->kbi", normal(3, 4, 5), normal(3, 5, 6)), {}),
    "an outer product": ("einsum", torch.einsum, ("i,j->ij", normal(4), normal(5)), {}),
    "sums": ("einsum", torch.einsum, ("ijk,kl", normal(3, 4, 5), normal(5, 2)), {}),
    "three operands": ("einsum", torch.einsum, ("bi,bijk,bj->bk", normal(3, 4), normal(3, 4, 5, 2), normal(3, 5)), {}),
    "a transposed matrix": ("einsum", torch.einsum, ("ijk->ki", normal(3, 4, 5)), {}),
    "groups": ("group_norm", F.group_norm, (plane, 3, around_one(6), normal(6)), {}),
    "groups without weights": ("group_norm", F.group_norm, (plane, 2), {"eps": 0.1}),
    "planes": ("instance_norm", F.instance_norm, (plane, None, None, around_one(6), normal(6), True), {}),
    "channels": ("batch_norm", F.batch_norm, (plane, None, None, around_one(6), normal(6), True), {}),
    "channels of rows": ("batch_norm", F.batch_norm, (normal(5, 6), None, None), {"training": True}),
    "running statistics": (
        "batch_norm",
        F.batch_norm,
        (plane, normal(6), around_one(6), around_one(6), normal(6), True, 0.3),
        {},
    ),
    "given statistics": ("batch_norm", F.batch_norm, (plane, normal(6), around_one(6)), {"eps": 0.1}),
    "running statistics of planes": ("instance_norm", F.instance_norm, (plane, normal(6), around_one(6)), {}),
    "given statistics of planes": (
        "instance_norm",
        F.instance_norm,
        (plane, normal(6), around_one(6)),
        {"use_input_stats": False},
    ),
    "ReLU in place": ("relu", F.relu, (plane, True), {}),
    "a sum in place": ("add_", torch.Tensor.add_, (plane, normal(4)), {"alpha": 2}),
    "a quotient in place": ("__itruediv__", torch.Tensor.__itruediv__, (plane, around_one(7, 1)), {}),
    "heads": ("scaled_dot_product_attention", F.scaled_dot_product_attention, (heads, heads, heads), {}),
    "causal heads": (
        "scaled_dot_product_attention",
        F.scaled_dot_product_attention,
        (heads, heads, heads, None, 0.0, True),
        {"scale": 0.3},
    ),
    "masked heads": (
        "scaled_dot_product_attention",
        F.scaled_dot_product_attention,
        (heads, normal(2, 4, 7, 6), normal(2, 4, 7, 3), normal(4, 5, 7)),
        {},
    ),
    "shared heads": (
        "scaled_dot_product_attention",
        F.scaled_dot_product_attention,
        (heads, heads[:, :2], heads[:, :2]),
        {"enable_gqa": True},
    ),
    "a cast to half": ("half", torch.Tensor.half, (plane,), {}),
    "a cast to float": ("float", torch.Tensor.float, (plane,), {}),
    "a cast by dtype": ("to", torch.Tensor.to, (plane, torch.bfloat16), {"copy": True}),
    "a cast to another's dtype": ("type_as", torch.Tensor.type_as, (plane, plane.half()), {}),
    "a cast to a small one's dtype": ("to", torch.Tensor.to, (plane, normal(1)), {}),
    "a copy": ("clone", torch.clone, (plane.mT,), {"memory_format": torch.contiguous_format}),
    "a plane of each": ("__getitem__", torch.Tensor.__getitem__, (plane, (i, 1)), {}),
    "rows of a plane": ("__getitem__", torch.Tensor.__getitem__, (plane, (-1, ..., slice(1, None, 2), i)), {}),
    "a new dimension": ("__getitem__", torch.Tensor.__getitem__, (plane, (None, slice(0, -1), None, i)), {}),
    "one of all": ("__getitem__", torch.Tensor.__getitem__, (plane, 2), {}),
    "all of all": ("__getitem__", torch.Tensor.__getitem__, (plane, ...), {}),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("what", OTHERS)
def test_blocks_of_norms_casts_indexings_and_einsums_are_the_whole(what: str, dtype: torch.dtype) -> None:
    name, function, given, kwargs = OTHERS[what]
    # What only gives its dtype keeps it.
    args = tuple(
        value.to(dtype) if isinstance(value, torch.Tensor) and (not at or name not in ("to", "type_as")) else value
        for at, value in enumerate(given)
    )
    kwargs = {key: value.to(dtype) if isinstance(value, torch.Tensor) else value for key, value in kwargs.items()}
    wanted = {path for path, _ in Arguments(args, kwargs, frozenset()).tensors()}
    wanted &= {"args.0"} if name in ("to", "type_as") else wanted
    wanted -= {"args.1", "args.2"} if "statistics" in what else set()
    arguments = Arguments(args, kwargs, frozenset(wanted))

    def arriving(output: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"": torch.sin(torch.arange(output.numel()).reshape(output.shape)).to(output.dtype)}

    subject = Subject(f"Torch.{name}.0", name, function, function, arguments, arriving)
    for size in (1, 2, 3):
        assert_blocks_are_the_whole(Trial(subject, CpuDevice()), size)


@given(
    st.sampled_from(sorted(CALLS.keys() - ROUNDED_OTHERWISE - LOSSES)),
    st.tuples(*[st.integers(2, 40)] * 3),
    st.sampled_from(DTYPES),
    st.integers(0, 2**20),
    st.integers(1, 6),
)
@settings(max_examples=60, deadline=None)
def test_elementwise_and_row_operations_keep_every_bit_where_rows_stay_whole(
    name: str, sizes: tuple[int, int, int], dtype: torch.dtype, seed: int, size: int
) -> None:
    trial = trial_of(name, sizes, dtype, seed)
    cut = next(cut for cut in cuts_of(name, trial.subject.arguments) if cut.dim == 0)
    assert torch.equal(laid_side_by_side(trial, cut, size)["output.0"], trial.golden.output)


def test_an_embedding_keeps_every_bit_of_result_and_gradient() -> None:
    index, weight = torch.randint(0, 9, (4, 30)), torch.randn(9, 33)
    arguments = Arguments((index, weight), {"padding_idx": 3}, frozenset({"args.1"}))
    subject = Subject(
        "Functional.embedding.0",
        "embedding",
        F.embedding,
        F.embedding,
        arguments,
        lambda output: {"": torch.sin(torch.arange(output.numel()).view_as(output))},
    )
    trial = Trial(subject, CpuDevice())
    (cut,) = cuts_of("embedding", arguments)
    found = laid_side_by_side(trial, cut, 4)
    assert torch.equal(found["output.0"], trial.golden.output)
    assert torch.equal(found["grad.args.1"], trial.golden_gradients["args.1"])


x, classes = torch.ones(4, 4), torch.tensor([0, 3, -100, 2])
NOT_CUT: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    "an operation that is not known": ("sum", (x,), {}),
    "one that writes to its argument and has no name for it": ("softmax", (x, 1), {"inplace": True}),
    "an output of its own": ("add", (x, x), {"out": x}),
    "one in place with an output of its own": ("relu", (x, True), {"out": x}),
    "one in place that has no room": ("add_", (x[:, :1], x), {}),
    "an embedding that renormalises rows": ("embedding", (torch.ones(2, dtype=torch.int64), x), {"max_norm": 1.0}),
    "an embedding with sparse gradients": ("embedding", (torch.ones(2, dtype=torch.int64), x), {"sparse": True}),
    "integers": ("mm", (x.int(), x.int()), {}),
    "complex numbers": ("mm", (x.cfloat(), x.cfloat()), {}),
    "a sparse tensor": ("mm", (x.to_sparse(), x), {}),
    "a softmax over an unknown dimension": ("softmax", (x,), {}),
    "a softmax of one dimension": ("softmax", (x[0], 0), {}),
    "factors that do not fit": ("mm", (x, x[:2]), {}),
    "a vector": ("matmul", (x, x[0]), {}),
    "shapes that do not broadcast": ("add", (x, x[:3]), {}),
    "scalars": ("add", (torch.tensor(1.0), 2), {}),
    "a tensor in a list": ("add", ([x], x), {}),
    "a class that there is not": ("cross_entropy", (x, classes + 1), {}),
    "a loss of one row": ("cross_entropy", (x[0], classes[0]), {}),
    "a loss against shares of classes": ("cross_entropy", (x, x), {}),
    "an index of indices": ("__getitem__", (x, torch.tensor([1])), {}),
    "an index of lists": ("__getitem__", (x, ([1, 2], slice(None))), {}),
    "an index of all dimensions": ("__getitem__", (x, (1, slice(0, 2))), {}),
    "too many indices": ("__getitem__", (x, (1, 1, 1)), {}),
    "statistics of another number of channels": ("batch_norm", (x, x[0, :3], x[0, :3]), {}),
    "weights of another number of channels": ("batch_norm", (x, None, None, x[0, :3], None, True), {}),
    "rows without heads": ("scaled_dot_product_attention", (x, x, x), {}),
    "a diagonal": ("einsum", ("ii->i", x), {}),
    "an ellipsis": ("einsum", ("...i,ij->...j", x, x), {}),
    "letters without an operand": ("einsum", ("ij,jk,kl->il", x, x), {}),
    "operands in a list": ("einsum", ("ij,jk->ik", [x, x]), {}),
    "letters of other sizes": ("einsum", ("ij,jk->ik", x, x[:2]), {}),
    "a reduction by an older name": ("mse_loss", (x, x), {"size_average": False}),
    "a reduction by its place": ("mse_loss", (x, x, None, None, "mean"), {}),
    "a reduction of its own": ("cross_entropy", (x, classes), {"reduction": "batchmean"}),
    "a loss with weights of elements": ("binary_cross_entropy_with_logits", (x, x), {"weight": x}),
}


@pytest.mark.parametrize("what", NOT_CUT)
def test_other_calls_are_not_cut(what: str) -> None:
    name, args, kwargs = NOT_CUT[what]
    assert not cuts_of(name, Arguments(args, kwargs, frozenset()))
