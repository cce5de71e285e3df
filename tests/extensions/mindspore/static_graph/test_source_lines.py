"""The text of a graph: scopes, lines of the program, and what the gradient was derived from."""

from __future__ import annotations

from pathlib import Path

import pytest

from msprobe_hooks.extensions.mindspore.static_graph.anf_ir import SourceLines, frames, read_ir
from tests.support.dumps.static_graphs import GRAPH_TEXT


@pytest.fixture
def lines(tmp_path: Path) -> SourceLines:
    path = tmp_path / "graph_0.ir"
    path.write_text(GRAPH_TEXT)
    return SourceLines(read_ir(path))


def test_a_kernel_has_the_lines_of_its_own_scope(lines: SourceLines) -> None:
    node = lines.of_op("Default_act-ReLU_ReLU-op0")
    assert node is not None
    assert node.scope == "Default/act-ReLU/ReLU-op0"
    assert node.lines[-1] == "In file /home/me/net.py:12, 15~29/        return self.act(y)"


def test_a_kernel_of_the_gradient_has_the_lines_of_what_it_was_derived_from(lines: SourceLines) -> None:
    gradient, forward = map(lines.of_op, ("Gradients_Default_f-Dense_MatMul-op1", "Default_f-Dense_MatMul-op0"))
    assert gradient is not None
    assert forward is not None
    assert gradient.lines == forward.lines != ()


def test_a_kernel_that_was_numbered_anew_has_the_lines_of_its_kind(lines: SourceLines) -> None:
    assert lines.of_op("Default_act-ReLU_ReLU-op7") == lines.of_op("Default_act-ReLU_ReLU-op0")
    assert lines.of_op("Default_other_ReLU-op0") is None


def test_lines_are_frames_of_a_call_stack_innermost_first(lines: SourceLines) -> None:
    node = lines.of_op("Default_f-Dense_MatMul-op0")
    assert node is not None
    assert [*frames(node.lines)] == [
        "File /lib/site-packages/mindspore/nn/layer/basic.py, line 77, in construct, \n x = self.matmul(x)",
        "File /home/me/net.py, line 11, in construct, \n y = self.f(x)",
    ]


@pytest.mark.parametrize("text", ["", "%0(a) = Load(%1)\n  : (x)\n", "root:x:0:0\n"])
def test_a_text_without_scopes_has_no_nodes(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.ir"
    path.write_text(text)
    assert read_ir(path) == []
