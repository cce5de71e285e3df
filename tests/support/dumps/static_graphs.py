"""Dumps of static graphs as MindSpore lays them out, small ones that a test writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

TITLES = (
    "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max Value,Min Value,Avg Value,"
    "L2Norm Value"
)


@dataclass
class GraphFolder:
    """Writes iterations below a folder; each tensor is a microsecond later than the one before."""

    folder: Path
    _clock: count[int] = field(default_factory=lambda: count(1_795_373_695_478_909))

    def iteration(self, number: int = 0, *, rank: int = 0, graph: int = 0) -> Path:
        """Return the folder of an iteration, made."""
        path = self.folder / f"rank_{rank}" / "Net" / str(graph) / str(number)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def kernel(
        self,
        iteration: Path,
        name: str,
        inputs: Mapping[int, NDArray[Any]] | Sequence[NDArray[Any]],
        outputs: Sequence[NDArray[Any]],
    ) -> list[Path]:
        """Write the tensors of a kernel named ``Type.Op``, and return their files."""
        slots = inputs if isinstance(inputs, Mapping) else dict(enumerate(inputs))
        sides = [("input", slots), ("output", dict(enumerate(outputs)))]
        return [self._tensor(iteration, name, side, slot, x) for side, own in sides for slot, x in own.items()]

    def _tensor(self, iteration: Path, name: str, side: str, slot: int, array: NDArray[Any]) -> Path:
        dtype = array.dtype.name.capitalize()
        path = iteration / f"{name}.0.0.{next(self._clock)}.{side}.{slot}.DefaultFormat.{dtype}.npy"
        np.save(path, array)
        return path


def dense_step(run: GraphFolder, iteration: Path, weight: NDArray[np.float32]) -> None:
    """Write what a dense layer with a ReLU and its gradient leave, computed by numpy."""
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    product = x @ weight
    positive = np.maximum(product, 0)
    gradient = np.where(product > 0, np.float32(1), np.float32(0))
    run.kernel(iteration, "ReLU.Default_act-ReLU_ReLU-op0", [x], [np.maximum(x, 0)])
    run.kernel(iteration, "MatMul.Default_f-Dense_MatMul-op0", [x, weight], [product])
    run.kernel(iteration, "ReLU.Default_act-ReLU_ReLU-op1", [product], [positive])
    run.kernel(iteration, "ReluGrad.Gradients_Default_act-ReLU_ReluGrad-op0", [positive], [gradient])
    run.kernel(iteration, "MatMul.Gradients_Default_f-Dense_MatMul-op1", [x, gradient], [x.T @ gradient])
    run.kernel(iteration, "Parameter.f_weight", [], [weight])


#: The text of such a graph, with what MindSpore writes next to scopes and lines.
GRAPH_TEXT = """\
# IR entry: @kernel_graph0
# Total params: 1
%para1_f.weight: <Ref[Tensor[Float32]], (4, 2)>  :  has_default

subgraph @kernel_graph0() {
  %0(CNode_1) = Load(%para1_f.weight, UMonad[U]) cnode_primal_attrs: {unique_id: "9"}
      : (<Ref[Tensor[Float32]], (4, 2)>) -> (<Tensor[Float32], (4, 2)>)
  %1(equiv_y) = MatMul(%0, %0) {instance name: matmul} cnode_primal_attrs: {unique_id: "17"}
      : (<Tensor[Float32], (3, 4)>, <Tensor[Float32], (4, 2)>) -> (<Tensor[Float32], (3, 2)>)
      # Fullname with scope: (Default/f-Dense/MatMul-op0)
      # In file /home/me/net.py:10~12, 4~29/    def construct(self, x):/
      # In file /home/me/net.py:11, 12~21/        y = self.f(x)/
      # In file /lib/site-packages/mindspore/nn/layer/basic.py:70~80, 4~16/    def construct(self, x):/
      # In file /lib/site-packages/mindspore/nn/layer/basic.py:77, 8~30/        x = self.matmul(x)/
  %2(CNode_3) = PrimFunc_ReLU(%1) {instance name: relu} cnode_primal_attrs: {unique_id: "18"}
      : (<Tensor[Float32], (3, 2)>) -> (<Tensor[Float32], (3, 2)>)
      # Fullname with scope: (Default/act-ReLU/ReLU-op0)
      # In file /home/me/net.py:10~12, 4~29/    def construct(self, x):/
      # In file /home/me/net.py:12, 15~29/        return self.act(y)/
  %3(CNode_4) = MatMul(%2, %1) cnode_primal_attrs: {forward_unique_id: "17", unique_id: "30"}
      : (<Tensor[Float32], (3, 2)>) -> (<Tensor[Float32], (3, 2)>)
      # Fullname with scope: (Gradients/Default/f-Dense/MatMul-op1)
  Return(%3) cnode_attrs: {checkpoint: Bool(1)}
      : (<Tensor[Float32], (3, 2)>)
      # Fullname with scope: (Default/Return-op0)
}
"""


def write_graph_text(run: GraphFolder, rank: int = 0) -> Path:
    """Write the text where MindSpore does."""
    folder = run.folder / f"rank_{rank}" / "graphs"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "ms_output_trace_code_graph_0.ir"
    path.write_text(GRAPH_TEXT)
    return path


def drawn(*shape: int, seed: int = 0) -> NDArray[Any]:
    """Return normal numbers in float32, the same for a seed."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def wide(x: NDArray[Any]) -> NDArray[Any]:
    """Return numbers in float64."""
    return x.astype(np.float64)


def narrow(x: NDArray[Any]) -> NDArray[Any]:
    """Return numbers in float32."""
    return np.asarray(x, np.float32)
