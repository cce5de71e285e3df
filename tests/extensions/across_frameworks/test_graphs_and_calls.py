"""A static graph compared with a run of calls: kernels and cells meet calls and modules by the text of the graph."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.dumps.dump_files import Json, write_dump
from tests.support.dumps.static_graphs import GraphFolder

Compare = Callable[..., pytest.RunResult]
Array = NDArray[np.float32]

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(2, 2, 3)
WEIGHT = np.linspace(-0.7, 0.9, 12, dtype=np.float32).reshape(4, 3)
BIAS = np.float32([0.5, -0.25, 0.125, 1])

# A dense layer that flattens what it is given, and an activation, in the layers of loss and training step.
TEXT = """\
  %0(x) = PrimFunc_Reshape(%para1_inputs0, (I64(-1), I64(3)))
      : (<Tensor[Float32], (2, 2, 3)>, <Tuple[Int64*2], NoShape>) -> (<Tensor[Float32], (4, 3)>)
      # Fullname with scope: (Default/network-Training/net-Net/f-Dense/Reshape-op0)
  %1(w) = Load(%para2_net.f.weight, UMonad[U])
      : (<Ref[Tensor[Float32]], (4, 3), ref_key=net.f.weight>, <UMonad, NoShape>) -> (<Tensor[Float32], (4, 3)>)
      # Fullname with scope: (Default/network-Training/Load-op0)
  %2(y) = PrimFunc_MatMul(%0, %1, Bool(0), Bool(1)) {instance name: matmul}
      : (<Tensor[Float32], (4, 3)>, <Tensor[Float32], (4, 3)>, <Bool, NoShape>, <Bool, NoShape>) -> \
(<Tensor[Float32], (4, 4)>)
      # Fullname with scope: (Default/network-Training/net-Net/f-Dense/MatMul-op0)
  %3(y) = PrimFunc_BiasAdd(%2, %para3_net.f.bias, I64(0)) {instance name: bias_add}
      : (<Tensor[Float32], (4, 4)>, <Ref[Tensor[Float32]], (4), ref_key=net.f.bias>, <Int64, NoShape>) -> \
(<Tensor[Float32], (4, 4)>)
      # Fullname with scope: (Default/network-Training/net-Net/f-Dense/BiasAdd-op0)
  %4(y) = PrimFunc_Reshape(%3, (I64(2), I64(2), I64(4)))
      : (<Tensor[Float32], (4, 4)>, <Tuple[Int64*3], NoShape>) -> (<Tensor[Float32], (2, 2, 4)>)
      # Fullname with scope: (Default/network-Training/net-Net/f-Dense/Reshape-op1)
  %5(z) = PrimFunc_ReLU(%4) {instance name: relu}
      : (<Tensor[Float32], (2, 2, 4)>) -> (<Tensor[Float32], (2, 2, 4)>)
      # Fullname with scope: (Default/network-Training/net-Net/ReLU-op0)
  %6(g) = PrimFunc_MatMul(%5, %0, Bool(1), Bool(0))
      : (<Tensor[Float32], (4, 4)>, <Tensor[Float32], (4, 3)>, <Bool, NoShape>, <Bool, NoShape>) -> \
(<Tensor[Float32], (4, 3)>)
      # Fullname with scope: (Gradients/Default/network-Training/net-Net/f-Dense/Grad_MatMul/MatMul-op0)
  %7(s) = PrimFunc_SGD(%para2_net.f.weight, %6)
      : (<Ref[Tensor[Float32]], (4, 3), ref_key=net.f.weight>, <Tensor[Float32], (4, 3)>) -> \
(<Tensor[Float32], (4, 3)>)
      # Fullname with scope: (Default/optimizer-SGD/SGD-op0)
"""
NET = "Default_network-Training_net-Net_"


def results(weight: Array) -> tuple[Array, Array, Array]:
    """Return the dense layer's result, that of the activation, and a gradient of the weight."""
    y = X.reshape(4, 3) @ weight.T + BIAS
    z = np.maximum(y, 0)
    return y, z, z.T @ X.reshape(4, 3)


def graph(folder: Path, weight: Array = WEIGHT, text: str = TEXT) -> Path:
    """Write the dump of a graph; the files behind a reshape have the shape from before it, as MindSpore's have."""
    run = GraphFolder(folder)
    place = run.iteration()
    y, z, gradient = results(weight)
    product, flags = X.reshape(4, 3) @ weight.T, [np.array(False), np.array(True)]
    run.kernel(place, f"MatMul.{NET}f-Dense_MatMul-op0", [X, weight, *flags], [product])
    run.kernel(place, f"BiasAdd.{NET}f-Dense_BiasAdd-op0", [product, BIAS, np.array(0)], [y])
    run.kernel(place, f"ReLU.{NET}ReLU-op0", [y], [z])
    run.kernel(place, f"MatMul.Gradients_{NET}f-Dense_Grad_MatMul_MatMul-op0", [z, X, *flags[::-1]], [gradient])
    run.kernel(place, "SGD.Default_optimizer-SGD_SGD-op0", [weight - gradient, gradient], [weight - gradient])
    run.kernel(place, "Parameter.net_f_weight", [], [weight - gradient])
    if text:
        (run.folder / "rank_0" / "graphs").mkdir()
        (run.folder / "rank_0" / "graphs" / "ms_output_trace_code_graph_0.ir").write_text(text)
    return run.folder


def calls(folder: Path, framework: str, weight: Array = WEIGHT) -> Path:
    """Write the dump of the same step, recorded call by call."""
    y, z, gradient = (x.reshape(2, 2, -1) if x.shape == (4, 4) else x for x in results(weight))
    tensors = folder / "dump_tensor_data"
    tensors.mkdir(parents=True)

    def leaf(name: str, x: NDArray[Any]) -> Json:
        np.save(tensors / f"{name}.npy", x)
        dtype = "Float32" if framework == "mindspore" else "torch.float32"
        statistics = {"Max": float(x.max()), "Min": float(x.min()), "Mean": float(x.mean()), "Norm": 1.0}
        return {
            "type": f"{framework}.Tensor",
            "dtype": dtype,
            "shape": [*x.shape],
            "data_name": f"{name}.npy",
        } | statistics

    def call(inputs: list[Json], output: Json, **more: Any) -> Json:
        return {"input_args": inputs, "input_kwargs": {}, "output": [output]} | more

    x, w, b, made, active = (leaf(name, each) for name, each in zip("xwbyz", (X, weight, BIAS, y, z), strict=True))
    module = "Cell.f.Dense" if framework == "mindspore" else "Module.f.Linear"
    if framework == "mindspore":
        flat, product = leaf("flat", X.reshape(4, 3)), leaf("p", X.reshape(4, 3) @ weight.T)
        inner = {
            "Primitive.matmul.MatMul.0.forward": call([flat, w], product),
            "Primitive.bias_add.BiasAdd.0.forward": call([product, b], leaf("s", results(weight)[0])),
        }
    else:
        inner = {"Functional.linear.0.forward": call([x, w, b], made)}
    records = inner | {
        f"{module}.forward.0": call([x], made, parameters={"weight": w, "bias": b}),
        "Functional.relu.0.forward": call([made], active),
        f"{module}.parameters_grad.0": {"weight": [leaf("g", gradient)]},
    }
    parents = dict.fromkeys(inner, f"{module}.forward.0") | {f"{module}.forward.0": None}
    return write_dump(folder, records, parents=parents, framework=framework, level="mix", task="tensor")


FRAMEWORKS = pytest.mark.parametrize("framework", ["mindspore", "pytorch"])


@FRAMEWORKS
def test_an_equal_graph_has_no_call_that_differs(compare: Compare, tmp_path: Path, framework: str) -> None:
    sides = graph(tmp_path / "graph"), calls(tmp_path / "calls", framework)
    for target, golden in (sides, sides[::-1]):
        result = compare(target, golden)
        result.assert_outcomes(passed=5 if framework == "mindspore" else 4)
        result.stdout.fnmatch_lines(["no compared call differs*"])


@FRAMEWORKS
def test_a_changed_weight_is_named_where_it_goes_in(compare: Compare, tmp_path: Path, framework: str) -> None:
    changed = WEIGHT + np.float32([[0, 0.125, 0]] + 3 * [[0, 0, 0]])
    result = compare(graph(tmp_path / "graph", changed), calls(tmp_path / "calls", framework))
    result.stdout.fnmatch_lines(
        [f"*first forward culprit: weight f.weight differs (*); first read by Kernel.{NET}f-Dense_MatMul-op0.0.forward"]
    )


def test_a_graph_without_its_text_is_one_clear_error(compare: Compare, tmp_path: Path) -> None:
    result = compare(graph(tmp_path / "graph", text=""), calls(tmp_path / "calls", "pytorch"))
    result.stderr.fnmatch_lines(["*no text of the graph, so the cells of kernels are unknown; copy *"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            re.sub(r".*scope.*", "", TEXT),
            "the text of the graph has no scopes, so the cells of kernels are unknown; copy ",
        ),
        (f"subgraph @g() {{\n{TEXT}", "the text of the graph is cut off; copy the file again"),
    ],
)
def test_a_text_that_shows_no_cells_or_ends_early_is_one_clear_error(
    compare: Compare, tmp_path: Path, text: str, message: str
) -> None:
    result = compare(graph(tmp_path / "graph", text=text), calls(tmp_path / "calls", "pytorch"))
    result.stderr.fnmatch_lines([f"*{message}*"])


def test_a_run_without_modules_is_one_clear_error(compare: Compare, tmp_path: Path) -> None:
    target, golden = graph(tmp_path / "graph"), calls(tmp_path / "calls", "pytorch")
    golden.write_text(golden.read_text().replace("Module.f.Linear.forward.0", "Torch.cos.0.forward"))
    compare(target, golden).stderr.fnmatch_lines(["*no modules recorded, *; record at level mix or L0"])


def test_a_graph_of_another_model_is_one_clear_error(compare: Compare, tmp_path: Path) -> None:
    target = graph(tmp_path / "graph", text=TEXT.replace("f-Dense", "other-Dense"))
    golden = calls(tmp_path / "calls", "pytorch")
    compare(target, golden).stderr.fnmatch_lines(["*no cell has the name of a module of *"])
