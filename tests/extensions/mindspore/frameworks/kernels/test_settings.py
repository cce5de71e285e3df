"""What kernels were made with is in the text of the graph, which MindSpore may number otherwise than its files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.dumps.static_graphs import GraphFolder, drawn, narrow, wide
from tests.support.runs import Checked

Array = NDArray[Any]
Run = Callable[..., Checked]


def tell(graph: GraphFolder, *statements: str) -> None:
    """Write the text of a graph, of each node its statement, shapes and scope."""
    folder = graph.folder / "rank_0" / "graphs"
    folder.mkdir(parents=True)
    (folder / "graph.ir").write_text("".join(f"  %{i}(y) = {each}" for i, each in enumerate(statements)))


def reported(kind: str, attributes: str, shapes: tuple[list[tuple[int, ...]], tuple[int, ...]], scope: str) -> str:
    inputs = ", ".join(f"<Tensor[Float32], {shape}>" for shape in shapes[0])
    return (
        f"{kind}(%x) primitive_attrs: {{{attributes}}}\n"
        f"      : ({inputs}) -> (<Tensor[Float32], {shapes[1]}>)\n"
        f"      # Fullname with scope: ({scope})\n"
    )


IMAGE, FILTERS = drawn(2, 3, 9, 9), drawn(4, 3, 3, 3, seed=1)


def convolved(dilation: int) -> Array:
    """With as much padding as gives the image's size."""
    padded = np.pad(wide(IMAGE), ((0, 0), (0, 0), (dilation, dilation), (dilation, dilation)))
    reach = 2 * dilation + 1
    windows = np.lib.stride_tricks.sliding_window_view(padded, (reach, reach), (2, 3))[..., ::dilation, ::dilation]
    return narrow(np.einsum("nchwij,ocij->nohw", windows, wide(FILTERS)))


def a_convolution(graph: GraphFolder, result: Array, told_dilation: int | None) -> None:
    graph.kernel(graph.iteration(), "Conv2D.Default_Conv2D-op0", [IMAGE, FILTERS], [result])
    if told_dilation is not None:
        pads = ", ".join([str(told_dilation)] * 4)
        attributes = f'pad_mode: "pad", pad_list: ({pads}), stride: (1, 1, 1, 1), group: I64(1), format: "NCHW", '
        attributes += f"dilation: (1, 1, {told_dilation}, {told_dilation})"
        shapes = [IMAGE.shape, FILTERS.shape], result.shape
        tell(graph, reported("Conv2D", attributes, shapes, "Default/Conv2D-op0"))


@pytest.mark.parametrize(
    ("told_dilation", "outcome"), [(None, "passed"), (2, "passed"), (1, "failed")], ids=["no text", "same", "another"]
)
def test_a_convolution_with_another_setting_than_the_text_shows_fails(
    graph: GraphFolder, run: Run, told_dilation: int | None, outcome: str
) -> None:
    a_convolution(graph, convolved(2), told_dilation)
    assert run().outcomes == {"Kernel.Default_Conv2D-op0.0.forward": outcome}


def test_a_convolution_whose_settings_are_reported_is_judged_however_wrong_it_is(graph: GraphFolder, run: Run) -> None:
    a_convolution(graph, drawn(2, 4, 9, 9, seed=2), 1)
    assert run().outcomes == {"Kernel.Default_Conv2D-op0.0.forward": "failed"}


def slice_gradients(graph: GraphFolder, masks: list[int]) -> None:
    """Of x[:, i], for each mask that the text has, under numbers that no file has."""
    for i in range(2):
        dy, whole = drawn(4, 7, seed=i), np.zeros((4, 5, 7), np.float32)
        whole[:, i] = dy
        bounds = [np.array(each) for each in ([4, 5, 7], [0, i], [0, i + 1], [1, 1])]
        graph.kernel(graph.iteration(), f"StridedSliceGrad.Gradients_f_StridedSliceGrad-op{i}", [dy, *bounds], [whole])
    attributes = "begin_mask: I64(1), end_mask: I64(1), ellipsis_mask: I64(0), new_axis_mask: I64(0)"
    nodes = [
        reported(
            "StridedSliceGrad",
            f"{attributes}, shrink_axis_mask: I64({mask})",
            ([(4, 7), (3,), (2,), (2,), (2,)], (4, 5, 7)),
            f"Gradients/f/StridedSliceGrad-op{7 + number}",
        )
        for number, mask in enumerate(masks)
    ]
    tell(graph, *nodes)


def test_what_the_text_says_of_all_kernels_of_one_place_is_said_of_each(graph: GraphFolder, run: Run) -> None:
    slice_gradients(graph, [2, 2])
    assert set(run().outcomes.values()) == {"passed"}


def test_kernels_of_one_place_of_which_the_text_says_different_things_are_not_distinguished(
    graph: GraphFolder, run: Run
) -> None:
    slice_gradients(graph, [2, 0])
    checked = run()
    assert set(checked.outcomes.values()) == {"skipped"}
    assert all("StridedSliceGrad needs begin_mask" in case.text for case in checked.cases.values())


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


@pytest.mark.parametrize(("fault", "outcome"), [(0.0, "passed"), (0.001, "failed")])
def test_the_shapes_of_an_lstm_show_what_it_was_made_with(
    graph: GraphFolder, run: Run, fault: float, outcome: str
) -> None:
    x, state, weights = drawn(4, 3, 5), drawn(2, 3, 7, seed=1), drawn(28 * (5 + 7 + 1), seed=2)
    w_ih, w_hh, bias = np.split(wide(weights), [28 * 5, 28 * 12])
    h, c = wide(state)
    outputs = []
    for step in wide(x):
        i, f, g, o = np.split(step @ w_ih.reshape(28, 5).T + h @ w_hh.reshape(28, 7).T + bias, 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        outputs.append(h)
    results = list(map(narrow, (np.stack(outputs), h[None], c[None])))
    results[0][2, 1, 3] += fault
    memory = [drawn(64, 1), drawn(1, 1)]
    inputs = [x, state[0], state[1], weights[:, None, None]]
    graph.kernel(graph.iteration(), "LSTM.Default_LSTM-op0", inputs, [*results, *memory])
    assert run().outcomes == {"Kernel.Default_LSTM-op0.0.forward": outcome}


def test_sgd_without_momentum_leaves_its_accumulation_as_it_was(graph: GraphFolder, run: Run) -> None:
    parameter, still = drawn(5, 6), np.ones((5, 6), np.float32)
    settings = "dampening: F32(0), weight_decay: F32(0), nesterov: Bool(0)"
    tell(graph, reported("SGD", settings, ([(5, 6), (5, 6)], (5, 6)), "Default/SGD-op0"))
    for number in range(2):
        iteration, gradient = graph.iteration(number), drawn(5, 6, seed=number)
        parameter = narrow(wide(parameter) - 0.1 * wide(gradient))
        inputs = [parameter, gradient, np.float32(0.1), 2 * still, np.float32(0), still]
        graph.kernel(iteration, "SGD.Default_SGD-op0", list(map(np.asarray, inputs)), [parameter])
        for name, value in (("w", parameter), ("moment", 2 * still), ("first", still)):
            graph.kernel(iteration, f"Parameter.{name}", [], [value])
    run().result.assert_outcomes(skipped=1, passed=1)
