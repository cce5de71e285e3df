"""One run: what a call changes is found, gradients arrive, recorded values are left alone."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves

from pytest_msprobe.engine.replay.calls.arguments import Arguments, DeviceArgument
from pytest_msprobe.engine.replay.calls.golden import baseline_side, golden_side
from pytest_msprobe.engine.replay.calls.side import Run, run_backward, run_forward

X = torch.linspace(-1, 2, 12).view(3, 4)


def run(function: Any, *args: Any, wanted: frozenset[str] = frozenset(), operation: str = "", **kwargs: Any) -> Run:
    arguments = Arguments(args, kwargs, wanted)
    name = operation or function.__name__
    side = baseline_side(None)
    return run_forward(function, arguments, side, operation=name, record="r", differentiate=bool(wanted))


def gradients(found: Run, *arriving: torch.Tensor) -> dict[str, torch.Tensor | None]:
    paths = [""] if isinstance(found.output, torch.Tensor) else [str(place) for place in range(len(arriving))]
    return run_backward(found, dict(zip(paths, arriving, strict=True)), baseline_side(None), record="r")


def test_a_pure_call_changes_nothing() -> None:
    found = run(torch.add, X, X)
    assert torch.equal(found.output, X + X)
    assert not found.changed


@pytest.mark.parametrize(
    ("function", "tensors", "flags"),
    [
        (torch.mean, (X,), {"dim": -1, "keepdim": True}),
        (F.scaled_dot_product_attention, (X[None], X[None], X[None]), {"is_causal": True}),
    ],
)
def test_a_flag_that_is_not_of_working_in_place_has_no_argument_copied(
    function: Any, tensors: tuple[torch.Tensor, ...], flags: dict[str, Any]
) -> None:
    found = run(function, *tensors, wanted=frozenset({"args.0"}), **flags)
    graph = [found.output.grad_fn]
    for node in graph:
        graph += [before for before, _ in node.next_functions if before is not None]
    assert not {node.name() for node in graph} & {"CloneBackward0", "CopyBackwards"}


def test_an_argument_that_may_be_written_to_is_a_copy_of_what_gradients_are_taken_of() -> None:
    found = run(F.relu, X, inplace=True, wanted=frozenset({"args.0"}))
    assert found.arguments["args.0"] is not found.leaves["args.0"]
    assert torch.equal(found.leaves["args.0"], X)


@pytest.mark.parametrize(
    ("function", "rest", "derivative"),
    [
        (torch.Tensor.mul_, (3.0,), torch.full_like(X, 3.0)),
        (torch.Tensor.__imul__, (3.0,), torch.full_like(X, 3.0)),
        (torch.Tensor.exp_, (), X.exp()),
        (torch.Tensor.clamp_, (0.0, 1.0), ((X >= 0) & (X <= 1)).float()),
        (torch.Tensor.zero_, (), torch.zeros_like(X)),
        (F.relu_, (), (X > 0).float()),
        (torch.Tensor.masked_fill_, (X > 1, 0.0), (X <= 1).float()),
    ],
)
def test_gradients_pass_through_an_api_that_works_in_place(
    function: Any, rest: tuple[Any, ...], derivative: torch.Tensor
) -> None:
    before = X.clone()
    found = run(function, X, *rest, wanted=frozenset({"args.0"}))
    assert not found.changed
    assert torch.equal(found.output, function(X.clone(), *rest))
    torch.testing.assert_close(gradients(found, X)["args.0"], derivative * X)
    assert torch.equal(X, before)


def test_an_output_that_is_not_kept_has_its_shape_and_the_same_gradients() -> None:
    kept, dropped = (run(torch.Tensor.exp, X, wanted=frozenset({"args.0"})) for _ in range(2))
    place = weakref.ref(dropped.output)
    found = run_backward(dropped, {"": X}, baseline_side(None), record="r", keeps_output=False)["args.0"]
    assert torch.equal(found, gradients(kept, X)["args.0"])
    assert (dropped.output.shape, dropped.output.dtype, dropped.output.is_meta) == (X.shape, X.dtype, True)
    assert place() is None


@pytest.mark.parametrize("options", [{"inplace": True}, {}])
def test_inplace_may_be_switched_on_by_name_or_position(options: dict[str, bool]) -> None:
    args = (X,) if options else (X, True)
    found = run(F.relu, *args, wanted=frozenset({"args.0"}), **options)
    torch.testing.assert_close(gradients(found, X)["args.0"], (X > 0) * X)


def test_an_aten_overload_that_works_in_place_is_known_by_its_operation() -> None:
    found = run(torch.ops.aten.add_.Tensor, X, X, wanted=frozenset({"args.0", "args.1"}), operation="add_")
    for path, gradient in gradients(found, X).items():
        assert gradient is not None, path
        assert torch.equal(gradient, X), path


def test_what_setitem_writes_to_is_a_result() -> None:
    found = run(torch.Tensor.__setitem__, X, 1, 5.0)
    assert found.output is None
    wanted = X.clone()
    wanted[1] = 5.0
    assert torch.equal(found.changed["args.0"], wanted)


def test_an_out_argument_is_the_output_and_nothing_else_changed() -> None:
    found = run(torch.add, X, X, out=torch.zeros(3, 4))
    assert torch.equal(found.output, X + X)
    assert not found.changed


def test_outputs_of_a_pair_may_be_out_arguments() -> None:
    out = (torch.zeros(3), torch.zeros(3, dtype=torch.int64))
    found = run(torch.max, X, 1, out=out)
    assert torch.equal(found.output[0], X.max(1).values)
    assert not found.changed


@pytest.mark.parametrize(
    ("function", "operation", "args", "kwargs", "paths"),
    [
        (F.batch_norm, "batch_norm", (X, torch.zeros(4), torch.ones(4), None, None, True), {}, {"args.1", "args.2"}),
        (
            F.batch_norm,
            "batch_norm",
            (X,),
            {"running_mean": torch.zeros(4), "running_var": torch.ones(4), "training": True},
            {"kwargs.running_mean", "kwargs.running_var"},
        ),
        (
            torch.batch_norm,
            "batch_norm",
            (X, None, None, torch.zeros(4), torch.ones(4), True, 0.1, 1e-5, False),
            {},
            {"args.3", "args.4"},
        ),
        (
            F.instance_norm,
            "instance_norm",
            (X.view(1, 3, 4), torch.zeros(3), torch.ones(3)),
            {},
            {"args.1", "args.2"},
        ),
        (
            torch.instance_norm,
            "instance_norm",
            (X.view(1, 3, 4), None, None, torch.zeros(3), torch.ones(3), True, 0.1, 1e-5, False),
            {},
            {"args.3", "args.4"},
        ),
        (
            torch.native_batch_norm,
            "native_batch_norm",
            (X, None, None, torch.zeros(4), torch.ones(4), True, 0.1, 1e-5),
            {},
            {"args.3", "args.4"},
        ),
        (
            torch.ops.aten._native_batch_norm_legit.default,
            "_native_batch_norm_legit",
            (X, None, None, torch.zeros(4), torch.ones(4), True, 0.1, 1e-5),
            {},
            {"args.3", "args.4"},
        ),
    ],
)
def test_running_statistics_are_results(
    function: Any, operation: str, args: tuple[Any, ...], kwargs: dict[str, Any], paths: set[str]
) -> None:
    found = run(function, *args, operation=operation, **kwargs)
    assert paths <= set(found.changed)
    # The running mean moved from 0, or the running variance from 1.
    assert all(not torch.equal(found.changed[path], torch.zeros(())) for path in paths)
    mean, variance = sorted(paths)
    assert bool(found.changed[mean].any())
    assert not torch.equal(found.changed[variance], torch.ones_like(found.changed[variance]))


def test_statistics_that_are_only_read_are_judged_harmlessly() -> None:
    found = run(F.batch_norm, X, torch.zeros(4), torch.ones(4))
    assert torch.equal(found.changed.get("args.1", torch.zeros(4)), torch.zeros(4))


def test_a_leaf_that_nothing_depends_on_has_no_gradient() -> None:
    found = run(torch.where, X > 0, X, X, wanted=frozenset({"args.1", "args.2"}))
    assert set(gradients(found, X)) == {"args.1", "args.2"}
    unused = run(torch.Tensor.expand_as, X, X, wanted=frozenset({"args.0", "args.1"}))
    assert gradients(unused, X)["args.1"] is None


def test_gradients_of_several_outputs_and_of_keywords_arrive_together() -> None:
    found = run(torch.addcmul, X, tensor1=X, tensor2=X, wanted=frozenset({"kwargs.tensor1"}))
    torch.testing.assert_close(gradients(found, X)["kwargs.tensor1"], X * X)
    several = run(torch.split, X, 2, 1, wanted=frozenset({"args.0"}))
    expected = torch.cat([torch.ones(3, 2), torch.full((3, 2), 2.0)], 1)
    torch.testing.assert_close(gradients(several, torch.ones(3, 2), torch.full((3, 2), 2.0))["args.0"], expected)


def test_an_output_that_depends_on_no_leaf_takes_no_part_and_nothing_but_such_is_refused() -> None:
    def halves(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 2, y * 3

    found = run(halves, X, X, wanted=frozenset({"args.0"}))
    expected = torch.full_like(X, 2.0)
    both = gradients(found, torch.ones_like(X), torch.full_like(X, torch.nan))
    assert both["args.0"] is not None
    assert torch.equal(both["args.0"], expected)
    apart = run(torch.Tensor.detach, X, wanted=frozenset({"args.0"}))
    with pytest.raises(RuntimeError, match="does not require grad"):
        gradients(apart, X)


def test_large_inputs_are_let_go_of_once_their_gradients_are_computed() -> None:
    large = torch.linspace(-1, 1, 2**19).reshape(2, -1)
    found = run(torch.split, large, 1, wanted=frozenset({"args.0"}))
    values = [part.detach().clone() for part in found.output]
    leaf = weakref.ref(found.leaves["args.0"])
    expected = torch.stack([torch.zeros(2**18), torch.ones(2**18)])
    gradient = gradients(found, *expected.split(1))["args.0"]
    assert gradient is not None
    assert torch.equal(gradient, expected)
    assert leaf() is None
    assert list(found.leaves) == ["args.0"]
    assert all(map(torch.equal, found.output, values))


def test_integers_are_never_leaves() -> None:
    found = run(torch.add, torch.arange(3), 1, wanted=frozenset({"args.0"}))
    assert not found.leaves


def test_devices_and_dtypes_become_those_of_the_side() -> None:
    arguments = Arguments((X,), {"device": DeviceArgument(), "dtype": torch.float32}, frozenset())
    side = golden_side("to", arguments)
    assert run_forward(torch.Tensor.to, arguments, side, operation="to", record="r", differentiate=False).output.dtype


def test_autocast_chooses_the_dtypes_that_it_does() -> None:
    arguments = Arguments((X, X.T.contiguous()), {}, frozenset())
    side = baseline_side(torch.bfloat16)
    found = run_forward(torch.mm, arguments, side, operation="mm", record="r", differentiate=False)
    assert found.output.dtype is torch.bfloat16
    assert not torch.is_autocast_enabled("cpu")


def test_a_refusal_without_an_exception_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="__mul__"):
        run(torch.Tensor.__mul__, X, "two", operation="__mul__")


def test_settings_are_put_back_after_an_error() -> None:
    with pytest.raises(RuntimeError):
        run_forward(
            torch.mm,
            Arguments((X, X), {}, frozenset()),
            golden_side("mm", Arguments((X, X), {}, frozenset())),
            operation="mm",
            record="r",
            differentiate=False,
        )
    assert torch.get_default_dtype() is torch.float32


LENGTHS = torch.tensor([4, 2, 1])


@pytest.mark.parametrize(
    ("operation", "args", "kwargs", "places"),
    [
        ("tensor_split", (X, torch.tensor([1])), {}, "meta cpu"),
        ("tensor_split", (X,), {"tensor_indices_or_sections": torch.tensor(2)}, "meta cpu"),
        ("_pack_padded_sequence", (X, LENGTHS, True), {}, "meta cpu"),
        ("_pad_packed_sequence", (X, LENGTHS, True, 0.0, 4), {}, "meta cpu"),
        ("_pack_padded_sequence_backward", (X, [3, 4], LENGTHS, True), {}, "meta cpu"),
        ("gru", (X, LENGTHS, X, [X], True, 1, 0.0, False, False), {}, "meta cpu meta meta"),
        ("gru", (X, X, [X], True, 1, 0.0, False, False, True), {}, "meta meta meta"),
        ("index_select", (X, 0, torch.tensor([1])), {}, "meta meta"),
    ],
)
def test_whole_numbers_that_torch_wants_on_the_cpu_stay_there(
    operation: str, args: tuple[Any, ...], kwargs: dict[str, Any], places: str
) -> None:
    elsewhere = replace(baseline_side(None), put=lambda tensor: tensor.to("meta"), location=torch.device("meta"))
    seen: list[str] = []

    def note(*args: Any, **kwargs: Any) -> None:
        seen.extend(leaf.device.type for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor))

    run_forward(
        note, Arguments(args, kwargs, frozenset()), elsewhere, operation=operation, record="r", differentiate=False
    )
    assert " ".join(seen) == places
