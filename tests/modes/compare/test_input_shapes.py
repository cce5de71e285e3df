"""Runs of other input shapes: said once, and what differs after that is no culprit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.dumps.dump_files import value

Compare = Callable[..., pytest.RunResult]


def step(call: Any, tensor: Any, batch: int, weight: float = 1.0, loss: float = 1.0) -> Any:
    """Return two layers and their loss; the first weight and the loss differ with what is given."""
    x, w = tensor(batch, 4, Max=float(batch)), tensor(4, 4)
    return {
        "Functional.linear.0.forward": call(x, w, out=x),
        "Functional.linear.1.forward": call(x, tensor(4, 4, Max=weight), out=x),
        "Functional.mse_loss.0.forward": call(x, x, out=tensor(Max=loss)),
        "Functional.mse_loss.0.backward": {"input": [tensor()], "output": [x]},
    }


def test_another_batch_size_is_one_sentence(compare: Compare, runs: Any, call: Any, tensor: Any) -> None:
    result = compare(*runs.both(step(call, tensor, 3, loss=2.0), step(call, tensor, 2)))
    result.stdout.fnmatch_lines(
        [
            "the runs had different input shapes: Functional.linear.0.forward input.0 is [[]3, 4[]] in place of *",
            "4 calls: 1 wrong, 3 not compared",
            "3 not compared: the runs had different input shapes; later differences may follow from it",
        ],
        consecutive=True,
    )
    result.assert_outcomes(failed=1, skipped=3)


def test_a_policy_may_have_each_call_after_another_batch_size_fail(
    compare: Compare, runs: Any, call: Any, tensor: Any
) -> None:
    result = compare(*runs.both(step(call, tensor, 3), step(call, tensor, 2)), "--msprobe-policy", "msprobe-26")
    result.assert_outcomes(failed=4)


def test_another_length_is_one_sentence_where_the_first_call_makes_a_tensor_of_it(
    compare: Compare, runs: Any, call: Any, tensor: Any
) -> None:
    steps = [{"Torch.arange.0.forward": call(value(n), out=tensor(n)), **step(call, tensor, n)} for n in (3, 2)]
    result = compare(*runs.both(*steps))
    result.stdout.fnmatch_lines(
        ["the runs had different input shapes: Torch.arange.0.forward output.0 is [[]3[]] in place of *"]
    )
    result.stdout.no_fnmatch_line("first * culprit*")


def test_another_batch_size_is_one_sentence_where_the_first_call_cuts_the_data(
    compare: Compare, runs: Any, call: Any, tensor: Any
) -> None:
    steps = [
        {"Tensor.split.0.forward": call(tensor(8, 4), value(n), out=tensor(n, 4)), **step(call, tensor, n)}
        for n in (4, 2)
    ]
    result = compare(*runs.both(*steps))
    result.stdout.fnmatch_lines(
        ["the runs had different input shapes: Tensor.split.0.forward output.0 is [[]4, 4[]] in place of *"]
    )
    result.stdout.no_fnmatch_line("first * culprit*")


def test_another_setting_that_changes_a_shape_is_no_other_batch_size(
    compare: Compare, runs: Any, call: Any, tensor: Any
) -> None:
    steps = [{"Functional.avg_pool1d.0.forward": call(tensor(8, 4), value(n), out=tensor(8, n))} for n in (4, 2)]
    result = compare(*runs.both(*steps))
    result.stdout.fnmatch_lines(["first forward culprit: Functional.avg_pool1d.0.forward *"])
    result.stdout.no_fnmatch_line("*different input shapes*")


def test_next_to_another_batch_size_a_culprit_is_named(compare: Compare, runs: Any, call: Any, tensor: Any) -> None:
    extra = {"Torch.exp.0.forward": call(tensor(4), out=tensor(4, Max=3.0))}
    result = compare(
        *runs.both(step(call, tensor, 3) | extra, step(call, tensor, 2) | {"Torch.exp.0.forward": call(tensor(4))})
    )
    result.stdout.fnmatch_lines(
        ["the runs had different input shapes: *", "first forward culprit: Torch.exp.0.forward *"]
    )


def test_next_to_another_batch_size_another_shape_made_of_the_same_is_a_culprit(
    compare: Compare, runs: Any, call: Any, tensor: Any
) -> None:
    steps = [step(call, tensor, n) | {"Torch.exp.0.forward": call(tensor(4), out=tensor(n + 2))} for n in (3, 2)]
    result = compare(*runs.both(*steps))
    result.stdout.fnmatch_lines(
        ["the runs had different input shapes: *", "first forward culprit: Torch.exp.0.forward *"]
    )
    result.assert_outcomes(failed=2, skipped=3)


def test_next_to_another_batch_size_what_its_arguments_ask_for_is_not_compared(
    compare: Compare, runs: Any, call: Any, tensor: Any
) -> None:
    steps = [
        step(call, tensor, n) | {"Tensor.expand.0.forward": call(tensor(1), value(n), out=tensor(n))} for n in (3, 2)
    ]
    compare(*runs.both(*steps)).assert_outcomes(failed=1, skipped=4)


def test_a_transposition_is_no_other_batch_size(compare: Compare, runs: Any, call: Any, tensor: Any) -> None:
    target, golden = ({"Torch.exp.0.forward": call(tensor(*shape))} for shape in ((4, 3), (3, 4)))
    wrong = {"Torch.tanh.0.forward": call(tensor(4, Max=2.0))}, {"Torch.tanh.0.forward": call(tensor(4))}
    result = compare(*runs.both(target | wrong[0], golden | wrong[1]))
    result.stdout.fnmatch_lines(["first forward culprit: Torch.exp.0.forward *"])
    result.stdout.no_fnmatch_line("*different input shapes*")
    result.assert_outcomes(failed=2)


def test_one_length_that_makes_tensors_of_two_shapes_is_a_fault(
    compare: Compare, runs: Any, call: Any, tensor: Any
) -> None:
    steps = [{"Torch.arange.0.forward": call(value(4), out=tensor(n)), **step(call, tensor, n)} for n in (5, 4)]
    result = compare(*runs.both(*steps))
    result.stdout.fnmatch_lines(["first forward culprit: Torch.arange.0.forward *"])
    result.stdout.no_fnmatch_line("*different input shapes*")


def test_shapes_that_do_not_fit_suggest_fuzzy_matching(compare: Compare, runs: Any, call: Any, tensor: Any) -> None:
    sizes = [3, 5, 7]
    golden = {f"Torch.mm.{i}.forward": call(tensor(size)) for i, size in enumerate(sizes)}
    target = {f"Torch.mm.{i}.forward": call(tensor(size)) for i, size in enumerate([4, *sizes])}
    paths = runs.both(target, golden)
    hint = (
        "calls of different shapes were compared, such as Torch.mm.0.forward, and 1 call has no partner: "
        "pair calls by order and shapes with -o msprobe_fuzzy=true"
    )
    compare(*paths).stdout.fnmatch_lines(["first forward culprit: Torch.mm.0.forward *", hint])
    compare(*paths, "-omsprobe_fuzzy=true").stdout.no_fnmatch_line("*pair calls by order*")


def test_runs_that_share_little_are_said_to_be_of_two_models(
    compare: Compare, runs: Any, call: Any, tensor: Any
) -> None:
    target = {"Functional.linear.0.forward": call(tensor(2, 3), tensor(4, 3), out=tensor(2, 4))}
    golden = {"Functional.linear.0.forward": call(tensor(2, 7), tensor(5, 7), out=tensor(2, 5))}
    target |= {f"Functional.gelu.{i}.forward": call(tensor(2, 4)) for i in range(2)}
    golden |= {f"Functional.silu.{i}.forward": call(tensor(2, 5)) for i in range(3)}
    compare(*runs.both(target, golden)).stdout.fnmatch_lines(
        [
            "these do not look like two runs of one model: 1 of 6 calls have a partner, of which 1 have other shapes",
            "first forward culprit: Functional.linear.0.forward *",
        ],
        consecutive=True,
    )


def test_a_model_with_new_functions_is_still_the_same(compare: Compare, runs: Any, call: Any, tensor: Any) -> None:
    target, golden = (step(call, tensor, 2, weight=weight) for weight in (1.0, 2.0))
    target |= {f"Functional.gelu.{i}.forward": call(tensor(2, 4)) for i in range(9)}
    golden |= {f"Functional.silu.{i}.forward": call(tensor(2, 4)) for i in range(9)}
    compare(*runs.both(target, golden)).stdout.no_fnmatch_line("*do not look like two runs*")
