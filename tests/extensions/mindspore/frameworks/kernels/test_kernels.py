"""Kernels of a static graph, computed by numpy and laid out as MindSpore dumps them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.dumps.static_graphs import TITLES, GraphFolder, drawn, narrow, wide
from tests.support.runs import Checked, check

Array = NDArray[Any]
Run = Callable[..., Checked]
NO, YES = np.array(False), np.array(True)


def matmul(x: Array, y: Array) -> Array:
    return narrow(wide(x) @ wide(y))


X, W = drawn(24, 32), drawn(16, 32, seed=1)


def dense(graph: GraphFolder, result: Array, x: Array = X, flags: tuple[Array, Array] = (NO, YES)) -> None:
    graph.kernel(graph.iteration(), "MatMul.Default_f-Dense_MatMul-op0", [x, W, *flags], [result])


def test_a_right_product_passes(graph: GraphFolder, run: Run) -> None:
    dense(graph, matmul(X, W.T))
    assert run().outcomes == {"Kernel.Default_f-Dense_MatMul-op0.0.forward": "passed"}


def _one_element(right: Array) -> Array:
    right[3, 5] += 0.01
    return right


def _a_tile(right: Array) -> Array:
    right[8:16, 8:16] *= 1.001
    return right


def _accumulated_in_half(right: Array) -> Array:
    total = np.zeros(right.shape, np.float16)
    for k in range(X.shape[1]):
        total += np.outer(X[:, k], W[:, k]).astype(np.float16)
    return total.astype(np.float32)


@pytest.mark.parametrize("fault", [_one_element, _a_tile, _accumulated_in_half])
def test_a_faulty_product_fails(graph: GraphFolder, run: Run, fault: Callable[[Array], Array]) -> None:
    dense(graph, fault(matmul(X, W.T)))
    assert len(run().wrong) == 1


def test_a_product_with_the_wrong_operand_transposed_fails(graph: GraphFolder, run: Run) -> None:
    x, y = drawn(8, 8), drawn(8, 8, seed=1)
    graph.kernel(graph.iteration(), "MatMul.Default_MatMul-op0", [x, y, NO, NO], [matmul(x, y.T)])
    assert len(run().wrong) == 1


def test_an_input_has_the_elements_that_it_needs_whatever_shape_a_reshape_left_in_its_file(
    graph: GraphFolder, run: Run
) -> None:
    dense(graph, matmul(X, W.T), x=X.reshape(4, 6, 32))
    assert set(run().outcomes.values()) == {"passed"}


def test_an_operand_that_could_lie_along_several_axes_is_skipped(graph: GraphFolder, run: Run) -> None:
    x, y = drawn(4, 4), drawn(4, seed=1)
    graph.kernel(graph.iteration(), "Add.Default_Add-op0", [x, y], [x + y])
    checked = run()
    assert set(checked.outcomes.values()) == {"skipped"}
    assert "Add needs the shape of input.1" in next(iter(checked.cases.values())).text


@pytest.mark.parametrize(
    ("name", "inputs", "reason"),
    [
        ("MatMul.Default_MatMul-op0", [X, W], "MatMul needs transpose_a"),
        ("Transpose.Default_Transpose-op0", [drawn(4, 4, 2)], "Transpose needs input_perm"),
        ("Mystery.Default_Mystery-op0", [X], "no golden definition for kernels of this type: Mystery"),
    ],
)
def test_a_skip_names_the_setting_or_the_kernel_that_is_not_known(
    graph: GraphFolder, run: Run, name: str, inputs: list[Array], reason: str
) -> None:
    graph.kernel(graph.iteration(), name, inputs, [drawn(24, 16) if "MatMul" in name else inputs[0]])
    assert reason in next(iter(run().cases.values())).text


def _windows(x: Array, width: int, stride: int) -> Array:
    return np.lib.stride_tricks.sliding_window_view(x, (width, width), (2, 3))[:, :, ::stride, ::stride]


def convolved(x: Array, w: Array, stride: int, pad: int) -> Array:
    padded = np.pad(wide(x), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    return narrow(np.einsum("nchwij,ocij->nohw", _windows(padded, w.shape[2], stride), wide(w)))


IMAGE, FILTERS = drawn(2, 3, 9, 9), drawn(4, 3, 3, 3, seed=1)


@pytest.mark.parametrize(("stride", "pad"), [(1, 0), (1, 1), (2, 1), (3, 0)])
def test_strides_and_padding_of_a_convolution_are_reported_by_its_numbers(
    graph: GraphFolder, run: Run, stride: int, pad: int
) -> None:
    right = convolved(IMAGE, FILTERS, stride, pad)
    wrong = right.copy()
    wrong[1, 2, 0, 1] += 0.01
    for number, result in enumerate((right, wrong)):
        graph.kernel(graph.iteration(), f"Conv2D.Default_Conv2D-op{number}", [IMAGE, FILTERS], [result])
    assert list(run().outcomes.values()) == ["passed", "failed"]


def test_a_convolution_that_no_setting_comes_near_is_skipped(graph: GraphFolder, run: Run) -> None:
    graph.kernel(graph.iteration(), "Conv2D.Default_Conv2D-op0", [IMAGE, FILTERS], [drawn(2, 4, 7, 7, seed=2)])
    assert "Conv2D needs strides and padding" in next(iter(run().cases.values())).text


def test_kernels_of_the_gradient_are_judged(graph: GraphFolder, run: Run) -> None:
    y, dy = np.maximum(X, 0), drawn(24, 32, seed=2)
    iteration = graph.iteration()
    graph.kernel(iteration, "ReluGrad.Gradients_Default_ReluGrad-op0", [dy, y], [np.where(y > 0, dy, 0)])
    graph.kernel(iteration, "ReluGrad.Gradients_Default_ReluGrad-op1", [dy, y], [dy])
    bias = [dy, np.array(0)]
    graph.kernel(iteration, "BiasAddGrad.Gradients_Default_BiasAddGrad-op0", bias, [narrow(wide(dy).sum(0))])
    assert list(run().outcomes.values()) == ["passed", "failed", "passed"]


def _normalised(x: Array, epsilon: float) -> tuple[Array, Array, Array]:
    mean, variance = wide(x).mean(-1, keepdims=True), wide(x).var(-1, keepdims=True)
    return narrow((x - mean) / np.sqrt(variance + epsilon)), narrow(mean), narrow(variance)


@pytest.mark.parametrize(("epsilon", "outcome"), [(1e-3, "passed"), (1e-5, "failed")])
def test_a_layer_norm_with_another_epsilon_than_it_was_given_fails(
    graph: GraphFolder, run: Run, epsilon: float, outcome: str
) -> None:
    given = [X, np.ones(32, np.float32), np.zeros(32, np.float32), np.array(-1), np.array(-1), np.float32(1e-3)]
    slots = {slot: np.asarray(value) for slot, value in enumerate(given)}
    graph.kernel(graph.iteration(), "LayerNorm.Default_LayerNorm-op0", slots, _normalised(X, epsilon))
    assert list(run().outcomes.values()) == [outcome]


def momentum_step(graph: GraphFolder, iteration: Path, state: Mapping[str, Array], gradient: Array) -> dict[str, Array]:
    """Write what a step leaves: its inputs as they are behind it, and the parameters at the end."""
    velocity = narrow(0.9 * wide(state["v"]) + wide(gradient))
    after = {"w": narrow(wide(state["w"]) - 0.1 * wide(velocity)), "v": velocity}
    inputs = [after["w"], after["v"], np.float32(0.1), gradient, np.float32(0.9)]
    graph.kernel(iteration, "ApplyMomentum.Default_ApplyMomentum-op0", list(map(np.asarray, inputs)), [after["w"]])
    for name, value in after.items():
        graph.kernel(iteration, f"Parameter.{name}", [], [value])
    return after


def test_a_step_of_an_optimizer_is_judged_by_the_parameters_that_the_iteration_before_left(
    graph: GraphFolder, run: Run
) -> None:
    state: dict[str, Array] = {"w": drawn(5, 6), "v": drawn(5, 6, seed=1)}
    for number in range(2):
        state = momentum_step(graph, graph.iteration(number), state, drawn(5, 6, seed=2 + number))
    checked = run()
    checked.result.assert_outcomes(skipped=1, passed=1)
    assert "1 skipped: the kernel changed its inputs, and no dump of the iteration before holds" in checked.output


def test_a_parameter_that_the_iteration_before_left_damaged_is_a_skip(graph: GraphFolder, run: Run) -> None:
    state: dict[str, Array] = {"w": drawn(5, 6), "v": drawn(5, 6, seed=1)}
    for number in range(2):
        state = momentum_step(graph, graph.iteration(number), state, drawn(5, 6, seed=2 + number))
    for file in graph.iteration(0).glob("Parameter.w*"):
        file.write_bytes(file.read_bytes()[:-8])
    run().result.assert_outcomes(skipped=2)


def test_a_wrong_step_of_an_optimizer_fails(graph: GraphFolder, run: Run) -> None:
    state: dict[str, Array] = {"w": drawn(5, 6), "v": drawn(5, 6, seed=1)}
    state = momentum_step(graph, graph.iteration(0), state, drawn(5, 6, seed=2))
    state["w"][2, 3] += 0.01
    momentum_step(graph, graph.iteration(1), state, drawn(5, 6, seed=3))
    run().result.assert_outcomes(skipped=1, failed=1)


def sgd_step(
    graph: GraphFolder, iteration: Path, state: dict[str, Array], gradient: Array, decay: float, fault: float
) -> dict[str, Array]:
    """Write what a step of SGD leaves, as `momentum_step`; the fault is in one element of the accumulation."""
    velocity = 0.9 * wide(state["v"]) + wide(gradient) + decay * wide(state["w"])
    velocity[2, 3] += fault
    after = {
        "w": narrow(wide(state["w"]) - 0.1 * velocity),
        "v": narrow(velocity),
        "first": np.zeros((5, 6), np.float32),
    }
    inputs = [after["w"], gradient, np.float32(0.1), after["v"], np.float32(0.9), after["first"]]
    graph.kernel(iteration, "SGD.Default_SGD-op0", list(map(np.asarray, inputs)), [after["w"]])
    for name, value in after.items():
        graph.kernel(iteration, f"Parameter.{name}", [], [value])
    return after


@pytest.mark.parametrize("decay", [0.0, 1e-4, 0.0125])
@pytest.mark.parametrize("fault", [0.0, 0.01])
def test_the_weight_decay_of_sgd_is_reported_by_its_numbers(
    graph: GraphFolder, run: Run, decay: float, fault: float
) -> None:
    state: dict[str, Array] = {"w": drawn(5, 6), "v": drawn(5, 6, seed=1)}
    for number in range(2):
        state = sgd_step(graph, graph.iteration(number), state, drawn(5, 6, seed=2 + number), decay, fault)
    run().result.assert_outcomes(skipped=1, passed=int(not fault), failed=int(bool(fault)))


def test_what_takes_floats_of_two_widths_on_the_cpu_is_skipped(graph: GraphFolder, run: Run) -> None:
    narrowed = matmul(X, W.T).astype(np.float16)
    dense(graph, narrowed)
    assert "under the name of a narrow one" in next(iter(run().cases.values())).text


def test_what_takes_a_view_is_skipped(graph: GraphFolder, run: Run) -> None:
    memory = X.reshape(32, 24)
    graph.kernel(graph.iteration(), "TransposeExtView.Default_TransposeExtView-op0", [X], [memory])
    graph.kernel(graph.iteration(), "Neg.Default_Neg-op0", [memory], [-X.T])
    assert "memory of a view" in run().cases["Kernel.Default_Neg-op0.0.forward"].text


@pytest.mark.parametrize(
    "left", [b"", b"\x93NUMPY\x01\x00\x76\x00" + b"{'descr': (".ljust(0x76)], ids=["empty", "damaged"]
)
def test_a_view_that_was_cut_off_costs_no_other_kernel(graph: GraphFolder, run: Run, left: bytes) -> None:
    dense(graph, matmul(X, W.T))
    *_, last = graph.kernel(graph.iteration(), "TransposeView.Default_TransposeView-op0", [X], [X.T])
    last.write_bytes(left)
    outcomes = run().outcomes
    assert outcomes["Kernel.Default_f-Dense_MatMul-op0.0.forward"] == "passed"
    assert outcomes["Kernel.Default_TransposeView-op0.0.forward"] == "failed"


def _transposed(graph: GraphFolder, text_of: str) -> None:
    x = drawn(3, 4, 4)
    graph.kernel(graph.iteration(), "Transpose.Default_f_Transpose-op0", [x], [x.transpose(0, 2, 1)])
    folder = graph.folder / "rank_0" / "graphs"
    folder.mkdir()
    (folder / "graph.ir").write_text(
        f"  %2(y) = PrimFunc_{text_of}(%1, (I64(0), I64(2), I64(1)))\n"
        "      : (<Tensor[Float32], (3, 4, 4)>, <Tuple[Int64*3], NoShape>) -> (<Tensor[Float32], (3, 4, 4)>)\n"
        "      # Fullname with scope: (Default/f/Transpose-op0)\n"
    )


def test_settings_that_no_file_holds_are_those_of_the_text_of_the_graph(graph: GraphFolder, run: Run) -> None:
    _transposed(graph, "Transpose")
    assert run().outcomes == {"Kernel.Default_f_Transpose-op0.0.forward": "passed"}


def test_what_the_text_says_of_another_kernel_of_that_name_is_not_believed(graph: GraphFolder, run: Run) -> None:
    _transposed(graph, "TransposeExt")
    assert run().outcomes == {"Kernel.Default_f_Transpose-op0.0.forward": "skipped"}


def test_one_kernel_is_chosen_by_its_name(graph: GraphFolder, pytester: pytest.Pytester) -> None:
    dense(graph, matmul(X, W.T))
    graph.kernel(graph.iteration(), "Neg.Default_Neg-op0", [X], [-X])
    name = "Kernel.Default_Neg-op0.0.forward"
    assert check(pytester, f"--msprobe-dump={graph.iteration()}::{name}").outcomes == {name: "passed"}


def test_a_dump_of_statistics_is_refused(graph: GraphFolder, run: Run) -> None:
    row = "Neg,Default/Neg-op0,0,0,1,input,0,4,float32,(1),1,1,1,1"
    (graph.iteration() / "statistic.csv").write_text(f"{TITLES}\n{row}\n")
    assert '"saved_data": "tensor"' in run().errors


def test_options_that_run_calls_again_are_refused(graph: GraphFolder, run: Run) -> None:
    dense(graph, matmul(X, W.T))
    assert "judged as recorded and not run" in run("--msprobe-repeat", "3").errors


def test_a_file_that_was_cut_off_costs_its_kernel_alone(graph: GraphFolder, run: Run) -> None:
    dense(graph, matmul(X, W.T))
    files = graph.kernel(graph.iteration(), "Neg.Default_Neg-op0", [X], [-X])
    files[1].write_bytes(files[1].read_bytes()[:-7])
    assert list(run().outcomes.values()) == ["passed", "failed"]


def test_tables_of_each_iteration_have_its_place(graph: GraphFolder, run: Run, tmp_path: Path) -> None:
    for number in range(2):
        graph.kernel(graph.iteration(number), "Neg.Default_Neg-op0", [X], [-X])
    run("--msprobe-csv", str(tmp_path / "tables"))
    assert {file.parent.name for file in (tmp_path / "tables").rglob("*.csv")} == {"0", "1"}
