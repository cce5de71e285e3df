"""Recording MindSpore: every value is computed again by numpy, or was recorded by msprobe 26.2.0."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

from mindspore import Tensor, mint, nn  # noqa: E402

from msprobe_hooks import ConfigError, RecordingError, record  # noqa: E402
from tests.corpus.mindspore_step import build  # noqa: E402

ROOT = Path(__file__).parents[2]
Json = dict[str, Any]


@pytest.fixture(autouse=True)
def pynative() -> None:
    ms.set_context(mode=ms.PYNATIVE_MODE)


def read(folder: Path, name: str = "dump.json") -> Json:
    (path,) = folder.glob(f"step0/rank*/{name}")
    content: Json = json.loads(path.read_text())
    return content


def recorded(folder: Path, program: Callable[[], Any], **options: Any) -> Json:
    with record(folder, framework="mindspore", **options):
        program()
    data: Json = read(folder)["data"]
    return data


def tensor(*shape: int, seed: int = 0) -> Tensor:
    return Tensor(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


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


@pytest.mark.parametrize("name", ["Float32", "Float16", "Float64", "Int32", "Int64", "UInt8"])
def test_statistics_are_those_that_numpy_computes(tmp_path: Path, name: str) -> None:
    values = (np.random.default_rng(1).uniform(0, 50, size=(5, 7))).astype(name.lower())
    (entry,) = recorded(tmp_path, lambda: mint.reshape(Tensor(values), (35,)))["Mint.reshape.0.forward"]["input_args"][
        :1
    ]
    wide = values.astype(np.float64)
    assert (entry["Max"], entry["Min"]) == (values.max(), values.min())
    assert entry["Mean"] == pytest.approx(wide.mean(), rel=1e-6)
    assert entry["Norm"] == pytest.approx(np.sqrt((wide * wide).sum()), rel=1e-6)
    assert (entry["type"], entry["dtype"], entry["shape"]) == ("mindspore.Tensor", name, [5, 7])


def test_bool_and_bfloat16_are_described(tmp_path: Path) -> None:
    x = Tensor(np.array([[True, False]]))
    half = Tensor(np.array([1.5, -2.5], dtype=np.float32)).astype(ms.bfloat16)

    def program() -> None:
        mint.reshape(x, (2,))
        mint.reshape(half, (1, 2))

    data = recorded(tmp_path, program)
    mask, number = (data[f"Mint.reshape.{place}.forward"]["input_args"][0] for place in (0, 1))
    assert (mask["dtype"], mask["Max"], mask["Min"], mask["Mean"]) == ("Bool", True, False, None)
    assert (number["dtype"], number["Max"], number["Min"]) == ("BFloat16", 1.5, -2.5)


def test_extrema_without_inf_and_nan_stand_beside_those_with(tmp_path: Path) -> None:
    values = np.array([1.0, np.inf, -3.0, np.nan], dtype=np.float32)
    entry = recorded(tmp_path, lambda: mint.reshape(Tensor(values), (2, 2)))["Mint.reshape.0.forward"]["input_args"][0]
    assert (entry["Max_except_inf_nan"], entry["Min_except_inf_nan"]) == (1.0, -3.0)


def test_checksums_are_those_of_the_bytes(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float32)
    data = recorded(tmp_path, lambda: mint.reshape(Tensor(values), (2, 3)), summary_mode="md5")
    assert data["Mint.reshape.0.forward"]["input_args"][0]["md5"] == f"{zlib.crc32(values.tobytes()):08x}"


def test_tensors_are_written_as_npy_files(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float32)
    data = recorded(tmp_path, lambda: mint.square(Tensor(values)), task="tensor")
    body = data["Mint.square.0.forward"]
    folder = tmp_path / "step0" / "rank" / "dump_tensor_data"
    assert body["output"][0]["data_name"] == "Mint.square.0.forward.output.0.npy"
    np.testing.assert_array_equal(np.load(folder / body["input_args"][0]["data_name"]), values)
    np.testing.assert_array_equal(np.load(folder / body["output"][0]["data_name"]), values * values)


def test_gradients_are_those_of_this_call_alone(tmp_path: Path) -> None:
    x, y = tensor(3, 4), tensor(4, 2, seed=1)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        # Both inputs are used elsewhere too; what comes from there is not this call's.
        return mint.sum(mint.matmul(x, y)) + mint.sum(x) * 3.0 + mint.sum(y) * 5.0

    gradient = ms.grad(loss, (0, 1))
    data = recorded(tmp_path, lambda: gradient(x, y), task="tensor")
    body = data["Mint.matmul.0.backward"]
    folder = tmp_path / "step0" / "rank" / "dump_tensor_data"
    arriving, of_x, of_y = (np.load(folder / entry["data_name"]) for entry in [*body["input"], *body["output"]])
    np.testing.assert_array_equal(arriving, np.ones((3, 2), np.float32))
    np.testing.assert_allclose(of_x, arriving @ y.asnumpy().T, rtol=1e-6)
    np.testing.assert_allclose(of_y, x.asnumpy().T @ arriving, rtol=1e-6)


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
    with pytest.raises(RecordingError, match="there is a dump already"):
        recorded(tmp_path, lambda: mint.abs(tensor(2)))


def test_the_debugger_writes_a_folder_for_each_step(tmp_path: Path) -> None:
    from msprobe_hooks.mindspore import PrecisionDebugger

    debugger = PrecisionDebugger(dump_path=tmp_path, level="L1")
    try:
        for _ in range(2):
            debugger.start()
            mint.abs(tensor(2))
            debugger.stop()
            debugger.step()
    finally:
        debugger._finish()
    assert [json.loads((tmp_path / f"step{step}/rank/dump.json").read_text())["data"].keys() for step in (0, 1)] == [
        {"Mint.abs.0.forward"},
        {"Mint.abs.0.forward"},
    ]


def test_a_function_that_is_registered_is_recorded_until_it_is_restored(tmp_path: Path) -> None:
    from types import SimpleNamespace

    library = SimpleNamespace(__name__="kernels", double=lambda x: x * 2)
    with record(tmp_path, framework="mindspore") as session:
        session.register_custom_api(library, "double")
        library.double(tensor(2))
        session.restore_custom_api(library, "double")
        library.double(tensor(2))
    assert list(read(tmp_path)["data"]) == ["kernels.double.0.forward", "Tensor.__mul__.0.forward"]


def test_the_callback_records_each_step_of_a_training(tmp_path: Path) -> None:
    from mindspore.dataset import NumpySlicesDataset
    from mindspore.train import Model

    from msprobe_hooks.mindspore import MsprobeStep, PrecisionDebugger

    net = nn.Dense(3, 1)
    model = Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.01))
    data = NumpySlicesDataset((np.ones((4, 3), np.float32), np.ones((4, 1), np.float32))).batch(2)
    debugger = PrecisionDebugger(dump_path=tmp_path, level="L1")
    try:
        model.train(1, data, callbacks=[MsprobeStep(debugger)], dataset_sink_mode=False)
    finally:
        debugger._finish()
    for step in (0, 1):
        names = json.loads((tmp_path / f"step{step}/rank/dump.json").read_text())["data"]
        assert any(name.startswith("Primitive.matmul.MatMul") for name in names)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    ms.set_context(mode=ms.PYNATIVE_MODE)
    folder = tmp_path_factory.mktemp("dump")
    net, step, x = build()
    with record(folder, level="mix", model=net, framework="mindspore"):
        step(x)
    return folder / "step0" / "rank", ROOT / "tests" / "data" / "round_trip" / "mindspore-26.2.0"


def load(folder: Path, name: str = "dump.json") -> Json:
    content: Json = json.loads((folder / name).read_text())
    return content


def test_msprobes_records_are_all_there_and_no_others(both: tuple[Path, Path]) -> None:
    ours, theirs = (load(folder)["data"] for folder in both)
    assert ours.keys() == theirs.keys()


def test_msprobes_records_come_in_its_order(both: tuple[Path, Path]) -> None:
    # A cell's own gradients and those of its parameters come by together; which is first is no one's to say.
    ours, theirs = (
        [name for name in load(folder)["data"] if not (name.startswith("Cell") and ".forward" not in name)]
        for folder in both
    )
    assert ours == theirs


def test_msprobes_parents_are_the_same(both: tuple[Path, Path]) -> None:
    ours, theirs = (load(folder, "construct.json") for folder in both)
    assert {name: ours.get(name) for name in theirs} == theirs


def tensors(body: Any) -> Iterator[Json]:
    if isinstance(body, dict) and "shape" in body:
        yield body
    elif isinstance(body, (dict, list)):
        for value in body.values() if isinstance(body, dict) else body:
            yield from tensors(value)


# msprobe lists the gradients of a primitive from the last input to the first, and one for an input that takes none.
OTHER_GRADIENTS = ("Primitive.", "Tensor.__add__.0.backward", "Tensor.__mul__.0.backward")


def test_msprobes_numbers_are_the_same(both: tuple[Path, Path]) -> None:
    ours, theirs = (load(folder)["data"] for folder in both)
    for name, body in theirs.items():
        if "backward" in name and name.startswith(OTHER_GRADIENTS):
            continue
        same_groups = {group: ours[name][group] for group in body}
        for mine, their in zip(tensors(same_groups), tensors(body), strict=True):
            assert (mine["dtype"], mine["shape"]) == (their["dtype"], their["shape"]), name
            for key in ("Max", "Min", "Mean", "Norm"):
                assert mine[key] == pytest.approx(their[key], rel=1e-5, abs=1e-6), (name, key)


def test_what_only_pytorch_offers_is_refused_in_words(tmp_path: Path) -> None:
    with record(tmp_path, framework="mindspore") as session:
        mint.abs(tensor(2))
        with pytest.raises(ConfigError, match="framework is 'mindspore'; allowed: pytorch, for module_dump"):
            session.dump_module(nn.Dense(2, 2), "x")


def test_what_ran_before_a_pause_has_its_backward_records(tmp_path: Path) -> None:
    def paused(x: Tensor) -> Tensor:
        y = mint.tanh(x)
        session.stop()
        return mint.abs(y).sum()

    with record(tmp_path, framework="mindspore") as session:
        ms.value_and_grad(paused)(tensor(3))
    assert list(read(tmp_path)["data"]) == ["Mint.tanh.0.forward", "Mint.tanh.0.backward"]


def test_the_gradients_of_a_cell_that_ran_before_a_pause_are_recorded(tmp_path: Path) -> None:
    net = nn.SequentialCell(nn.Dense(3, 2))

    def paused(x: Tensor) -> Tensor:
        y = net(x)
        session.stop()
        return y.sum()

    with record(tmp_path, level="L0", model=net, framework="mindspore") as session:
        ms.value_and_grad(paused, None, net.trainable_params())(tensor(1, 3))
    names = [".".join(name.split(".")[3:]) for name in read(tmp_path)["data"]]
    assert sorted(names) == ["backward.0", "forward.0", "parameters_grad.0"]


def test_saved_variables_and_their_gradients_are_recorded(tmp_path: Path) -> None:
    x = tensor(2, 3)

    def program(x: Tensor) -> Tensor:
        y = mint.tanh(x)
        session.save({"y": y, "n": 4, "also": [y, Tensor([1.0])]}, "mine")
        session.save(y, "mine", save_backward=False)
        return (y * y).sum()

    with record(tmp_path, level="debug", task="tensor", framework="mindspore") as session:
        ms.grad(program)(x)
    data = read(tmp_path, "debug.json")["data"]
    assert list(data) == ["mine.0.debug", "mine.1.debug", "mine_grad.0.debug"]
    y = np.tanh(x.asnumpy())
    assert data["mine.0.debug"]["n"] == {"type": "int", "value": 4}
    assert data["mine.0.debug"]["y"]["Norm"] == pytest.approx(np.linalg.norm(y), rel=1e-3)
    gradients = data["mine_grad.0.debug"]
    assert gradients["y"]["Max"] == gradients["also"][0]["Max"] == pytest.approx(2 * y.max(), rel=1e-3)
    assert gradients["also"][1] is None
    stored = tmp_path / "step0/rank/dump_tensor_data" / gradients["y"]["data_name"]
    np.testing.assert_allclose(np.load(stored), 2 * y, rtol=1e-3)


def test_saving_changes_no_bit_of_the_gradients(tmp_path: Path) -> None:
    x = tensor(5, 7)

    def program(x: Tensor) -> Tensor:
        y = mint.exp(x)
        session.save(y, "y")
        return (y * x).sum()

    with record(tmp_path, level="debug", framework="mindspore") as session:
        watched = ms.grad(program)(x)
        session.stop()
        alone = ms.grad(program)(x)
    assert list(read(tmp_path, "debug.json")["data"]) == ["y.0.debug", "y_grad.0.debug"]
    assert np.array_equal(alone.asnumpy(), watched.asnumpy())


class Block(nn.Cell):
    """A dense layer with functions behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(3, 3)

    def construct(self, x: Tensor) -> Tensor:
        return mint.exp(mint.tanh(self.dense(x))) * x


@pytest.mark.parametrize("is_reentrant", [True, False])
def test_calls_that_are_made_again_in_the_backward_pass_say_so(tmp_path: Path, is_reentrant: bool) -> None:
    block = Block()
    block.recompute(use_reentrant=is_reentrant)
    net = nn.SequentialCell(block, nn.Dense(3, 1))

    def program(x: Tensor) -> Tensor:
        return net(x).sum()

    with record(tmp_path, level="mix", model=net, framework="mindspore") as session:
        ms.value_and_grad(program, None, net.trainable_params())(tensor(2, 3))
    data = read(tmp_path)["data"]
    for name in ("Mint.exp", "Mint.tanh", "Tensor.__mul__"):
        assert [data[f"{name}.{place}.forward"]["is_recompute"] for place in (0, 1)] == [False, True]
    assert [data[f"Cell.0.dense.Dense.forward.{place}"]["is_recompute"] for place in (0, 1)] == [False, True]
    assert data["Cell.1.Dense.forward.0"]["is_recompute"] is False
    assert not any("exception" in record for record in data.values())
    assert session.summary.raised == 0
    assert read(tmp_path, "construct.json")["Cell.1.Dense.forward.0"] is None


def test_calls_of_a_backward_function_are_not_recomputed(tmp_path: Path) -> None:
    class Double(nn.Cell):
        def construct(self, x: Tensor) -> Tensor:
            return x + x

        def bprop(self, x: Tensor, out: Tensor, gradient: Tensor) -> tuple[Tensor]:
            return (mint.mul(gradient, 2),)

    double = Double()

    def program(x: Tensor) -> Tensor:
        return double(x).sum()

    with record(tmp_path, framework="mindspore"):
        ms.grad(program)(tensor(3))
    assert read(tmp_path)["data"]["Mint.mul.0.forward"]["is_recompute"] is False


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
