"""Recording MindSpore: what is recorded, and what of the program stays as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

from mindspore import Tensor, mint, nn  # noqa: E402

from msprobe_hooks import ConfigError, RecordingError, record  # noqa: E402
from msprobe_hooks.extensions.mindspore.cells import CellHooks  # noqa: E402
from tests.corpus.mindspore_step import build  # noqa: E402
from tests.mindspore.recordings import read, recorded, tensor  # noqa: E402

pytestmark = pytest.mark.usefixtures("pynative")


def test_a_dump_says_that_it_is_of_mindspore(tmp_path: Path) -> None:
    recorded(tmp_path, lambda: mint.abs(tensor(2)))
    assert read(tmp_path)["framework"] == "mindspore"


def test_sums_of_gradients_are_no_calls_of_the_program(tmp_path: Path) -> None:
    x = tensor(3)
    data = recorded(tmp_path, lambda: ms.grad(lambda x: (x * x).sum())(x))
    assert list(data) == [
        "Tensor.__mul__.0.forward",
        "Tensor.sum.0.forward",
        "Tensor.sum.0.backward",
        "Tensor.__mul__.0.backward",
    ]


def test_functions_methods_and_operators_get_msprobes_names(tmp_path: Path) -> None:
    x = tensor(2, 3)

    def program() -> None:
        mint.tanh(x)
        mint.nn.functional.relu(x)
        ms.ops.abs(x)
        (x + 1.0).mean()

    assert list(recorded(tmp_path, program)) == [
        "Mint.tanh.0.forward",
        "MintFunctional.relu.0.forward",
        "Functional.abs.0.forward",
        "Tensor.__add__.0.forward",
        "Tensor.mean.0.forward",
    ]


def test_what_a_recorded_call_calls_is_not_recorded_again(tmp_path: Path) -> None:
    x = tensor(3, 4)
    assert list(recorded(tmp_path, lambda: mint.nn.functional.softmax(x, dim=-1))) == [
        "MintFunctional.softmax.0.forward"
    ]


def test_a_cast_without_effect_passes_on_what_arrived(tmp_path: Path) -> None:
    gradient = ms.grad(lambda x: mint.sum(mint.exp(mint.tanh(x).astype(ms.float32))))
    data = recorded(tmp_path, lambda: gradient(tensor(3, 4)))
    cast, arriving = data["Tensor.astype.0.backward"], data["Mint.exp.0.backward"]["output"]
    assert cast["input"] == cast["output"] == arriving == data["Mint.tanh.0.backward"]["input"]


def test_recording_changes_no_bit(tmp_path: Path) -> None:
    net, step, x = build()
    plain = step(x)
    with record(tmp_path, level="mix", model=net, framework="mindspore", task="tensor"):
        watched = step(x)
    for before, after in zip([plain[0], *plain[1]], [watched[0], *watched[1]], strict=True):
        np.testing.assert_array_equal(before.asnumpy(), after.asnumpy())


def test_nothing_of_it_stays_when_recording_ends(tmp_path: Path) -> None:
    before = (mint.tanh, dict(vars(Tensor)))
    recorded(tmp_path, lambda: mint.tanh(tensor(2)))
    assert (mint.tanh, dict(vars(Tensor))) == before


class Failing(nn.Cell):
    def construct(self, x: Tensor) -> Tensor:
        raise ValueError("of no use")


class Catching(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.failing = Failing()

    def construct(self, x: Tensor) -> Tensor:
        try:
            return self.failing(x)
        except ValueError:
            return mint.abs(x)


def test_a_cell_that_raised_is_recorded_where_no_hook_ran_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MindSpore before 2.10 has no hooks that run after an error."""
    monkeypatch.setattr(CellHooks, "end_options", {"with_kwargs": True})
    model = nn.SequentialCell(Catching(), nn.ReLU())
    data = recorded(tmp_path, lambda: model(tensor(2)), level="L0", model=model)
    assert data["Cell.0.failing.Failing.forward.0"]["exception"] == "RuntimeError: the module raised"
    assert [*data][-2:] == ["Cell.0.Catching.forward.0", "Cell.1.ReLU.forward.0"]


def test_a_mindspore_that_is_too_old_is_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ms, "__version__", "2.8.0")
    with pytest.raises(RecordingError, match=r"MindSpore 2\.8\.0 cannot be recorded, .*install MindSpore 2\.9"):
        recorded(tmp_path, lambda: mint.abs(tensor(2)))


def test_a_call_that_raises_is_recorded_with_its_error_and_raises(tmp_path: Path) -> None:
    def program() -> None:
        with pytest.raises(Exception, match="shape"):
            mint.matmul(tensor(2, 2), tensor(3, 2))
        mint.abs(tensor(2))

    data = recorded(tmp_path, program)
    assert "shape" in data["Mint.matmul.0.forward"]["exception"]
    assert "Mint.abs.0.forward" in data


def test_a_compiled_function_is_one_record_with_gradients(tmp_path: Path) -> None:
    @ms.jit
    def double(x: Tensor) -> Tensor:
        return mint.tanh(x) * 2

    gradient = ms.grad(lambda x: mint.sum(double(x)))
    data = recorded(tmp_path, lambda: gradient(tensor(2, 2)))
    assert [name for name in data if name.startswith("Jit")] == ["Jit.double.1.forward", "Jit.double.1.backward"]


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_cells_need_a_model(tmp_path: Path, level: str) -> None:
    with pytest.raises(ConfigError, match=r"mindspore\.nn\.Cell"), record(tmp_path, level, framework="mindspore"):
        pass


def test_a_folder_that_holds_a_dump_is_not_overwritten(tmp_path: Path) -> None:
    recorded(tmp_path, lambda: mint.abs(tensor(2)))
    with pytest.raises(RecordingError, match="the folder already has a dump"):
        recorded(tmp_path, lambda: mint.abs(tensor(2)))


def test_a_function_that_is_registered_is_recorded_until_it_is_restored(tmp_path: Path) -> None:
    from types import SimpleNamespace

    library = SimpleNamespace(__name__="kernels", double=lambda x: x * 2)
    with record(tmp_path, framework="mindspore") as session:
        session.register_custom_api(library, "double")
        library.double(tensor(2))
        session.restore_custom_api(library, "double")
        library.double(tensor(2))
    assert list(read(tmp_path)["data"]) == ["kernels.double.0.forward", "Tensor.__mul__.0.forward"]


def test_what_only_pytorch_offers_is_refused_in_words(tmp_path: Path) -> None:
    with record(tmp_path, framework="mindspore") as session:
        mint.abs(tensor(2))
        with pytest.raises(ConfigError, match="framework is 'mindspore'; allowed: pytorch for module_dump"):
            session.dump_module(nn.Dense(2, 2), "x")


def test_the_primitive_that_is_a_recurrent_layer_is_recorded_where_a_cell_makes_it_for_a_call(tmp_path: Path) -> None:
    layer = nn.LSTM(3, 4)
    x = tensor(5, 2, 3)
    data = recorded(tmp_path, lambda: layer(x), list=["LSTM"])
    body = data["Primitive.LSTM.LSTM.0.forward"]
    assert body["details"]["settings"]["hidden_size"] == 4
    # The other two are memory for the gradient's kernel.
    assert [each["shape"] for each in body["output"]] == [[5, 2, 4], [1, 2, 4], [1, 2, 4]]


def test_a_recurrent_layer_learns_the_same_while_it_is_recorded(tmp_path: Path) -> None:
    layer = nn.LSTM(3, 4)
    x = tensor(5, 2, 3)

    def gradients() -> list[Tensor]:
        found = ms.grad(lambda: layer(x)[0].square().sum(), None, layer.trainable_params())()
        return [each.asnumpy() for each in found]

    expected = gradients()
    found: list[Any] = []
    recorded(tmp_path, lambda: found.extend(gradients()), model=layer)
    assert all(map(np.array_equal, found, expected))
    assert "__call__" not in vars(ms.ops.LSTM)
