"""What a saved case holds, and what becomes of it where saving meets a limit or a failing disk."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_msprobe.engine.replay.calls.arguments import Arguments, DeviceArgument
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.modes.check.save_case import case_name, save_case
from pytest_msprobe.modes.check.saved_case import read_case
from pytest_msprobe.storage.limits import SaveOptions, TensorFileError
from pytest_msprobe.storage.tensors import describe, read_tensor, write_tensors
from tests.support.dumps.dump_files import SOFTMAX, forward
from tests.support.dumps.dump_files import tensor as element

DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2),
    *(torch.complex32, torch.complex64, torch.complex128, torch.bool, torch.uint8, torch.uint16, torch.uint32),
    *(torch.uint64, torch.int8, torch.int16, torch.int32, torch.int64),
]


def bits(tensor: torch.Tensor) -> list[int]:
    return tensor.clone(memory_format=torch.contiguous_format).view(-1).view(torch.uint8).tolist()


@st.composite
def strided(draw: st.DrawFn) -> torch.Tensor:
    dtype = draw(st.sampled_from(DTYPES))
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    count = int(torch.tensor(shape).prod()) if shape else 1
    raw = draw(st.binary(min_size=count * dtype.itemsize, max_size=count * dtype.itemsize))
    raw = bytes(byte & 1 for byte in raw) if dtype is torch.bool else raw
    values = torch.frombuffer(bytearray(raw), dtype=torch.uint8) if raw else torch.zeros(0, dtype=torch.uint8)
    tensor = values.clone().view(dtype).view(shape)
    for change in draw(st.lists(st.sampled_from(["transposed", "sliced", "expanded", "conjugated"]), max_size=2)):
        if change == "expanded":
            tensor = tensor.unsqueeze(0).expand(2, *tensor.shape)
        elif change == "conjugated":
            tensor = tensor.conj()
        elif tensor.dim():
            tensor = tensor.transpose(0, -1) if change == "transposed" else tensor[::2]
    return tensor


@pytest.mark.parametrize(
    "tensor", [torch.randn(3, 4, dtype=torch.complex64).mH, torch.randn(5, dtype=torch.complex64).conj().imag]
)
def test_a_tensor_comes_back_with_its_lazy_bits(tmp_path: Path, tensor: torch.Tensor) -> None:
    write_tensors(tmp_path / "tensors.safetensors", {"x": tensor})
    found = read_tensor(tmp_path / "tensors.safetensors", "x", describe(tensor))
    assert (found.is_conj(), found.is_neg(), found.stride()) == (tensor.is_conj(), tensor.is_neg(), tensor.stride())
    assert torch.equal(found, tensor)


def test_a_sparse_tensor_is_refused_with_the_reason() -> None:
    with pytest.raises(TensorFileError, match="a sparse, nested or quantized tensor is not stored"):
        describe(torch.eye(2).to_sparse())


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@given(tensor=strided())
def test_a_tensor_comes_back_with_its_bits_and_its_strides(
    tmp_path_factory: pytest.TempPathFactory, tensor: torch.Tensor
) -> None:
    path = tmp_path_factory.mktemp("case") / "tensors.safetensors"
    write_tensors(path, {"x": tensor})
    found = read_tensor(path, "x", describe(tensor))
    assert (found.dtype, found.shape, found.stride()) == (tensor.dtype, tensor.shape, tensor.stride())
    assert bits(found) == bits(tensor)


def test_a_case_holds_inputs_and_all_three_results(save: Any) -> None:
    case = read_case(Path(save(SOFTMAX, "Functional.softmax.0.backward").folder))
    assert set(case.tensors) == {"args.0", "grad."} | {
        f"{side}.grad.args.0" for side in ("target", "golden", "baseline")
    }
    assert case.tensors["target.grad.args.0"].dtype == "torch.float32"
    assert case.tensors["golden.grad.args.0"].dtype == "torch.float64"
    assert case.result.verdict.outcome == "fail"
    assert (case.seed, case.policy, case.settings["torch"]) == (3, "default", torch.__version__)


CHANNELS_LAST = {"type": "torch.memory_format", "format": "channels_last"}


def value(kind: str, content: Any) -> Any:
    return {"type": kind, "value": content}


@pytest.mark.parametrize(
    ("api", "arguments", "keywords"),
    [
        ("Tensor.__getitem__", [element(6, 4), [value("slice", [None, 4, 2]), None, value("ellipsis", "...")]], {}),
        ("Tensor.to", [element(4), value("torch.dtype", "torch.float16")], {"copy": value("bool", True)}),
        ("Torch.full_like", [element(4), value("float", "NaN")], {"device": value("torch.device", "npu:0")}),
        ("Torch.full_like", [element(4), value("float", "-Infinity")], {}),
        ("Torch.mul", [element(4, dtype="complex64"), element(4, dtype="complex64")], {}),
        ("Torch.add", [element(4), element(4)], {"alpha": value("int", 3)}),
        ("Torch.reshape", [element(6, 4), value("torch.Size", [4, 6])], {}),
        ("Torch.cat", [[element(2), element(3, low=float("nan"), high=float("nan"))]], {"dim": value("int", 0)}),
        ("Tensor.contiguous", [element(1, 2, 3, 4)], {"memory_format": CHANNELS_LAST}),
        ("Torch.logical_not", [element(4, dtype="bool", low=False, high=True)], {}),
        ("Functional.cross_entropy", [element(4, 5), element(4, dtype="int32", low=0, high=9)], {}),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)  # fmt: skip
def test_arguments_of_every_kind_come_back(
    save: Any, replay: Any, setup: ReplayConfig, api: str, arguments: list[Any], keywords: Any
) -> None:
    records = {f"{api}.0.forward": forward(*arguments, output=[element(1)], **keywords)}
    saved = save(records, f"{api}.0.forward")
    case = read_case(Path(saved.folder))
    from pytest_msprobe.engine.replay.check import Replay

    again = Replay(
        case.call(),
        setup,
        lambda _, path: read_tensor(Path(saved.folder, "tensors.safetensors"), path, case.tensors[path]),
    )
    before, after = replay(records, f"{api}.0.forward")[0].trial.subject.arguments, again.trial.subject.arguments
    assert shown(after.args) == shown(before.args)
    assert shown(after.kwargs) == shown(before.kwargs)
    assert after.differentiable == before.differentiable


def shown(tree: Any) -> Any:
    if isinstance(tree, torch.Tensor):
        return (str(tree.dtype), tuple(tree.shape), tree.stride(), bits(tree))
    if isinstance(tree, (list, tuple)):
        return [type(tree).__name__, *map(shown, tree)]
    if isinstance(tree, dict):
        return {key: shown(item) for key, item in tree.items()}
    return "device" if isinstance(tree, DeviceArgument) else repr(tree)


def test_numpy_arguments_are_saved_as_tensors(replay: Any) -> None:
    array = torch.arange(3).numpy()
    assert [path for path, _ in Arguments((array,), {"x": [array]}, frozenset()).tensors()] == [
        "args.0",
        "kwargs.x.0",
    ]


def test_what_a_limit_leaves_out_is_the_results_before_the_inputs(save: Any, limits: SaveOptions) -> None:
    record, size = "Torch.exp.0.forward", 4 * 10**6
    records = {record: forward(element(10**6))}
    left_out = {
        units: save(records, record, replace(limits, case_limit=units * size + 10**5)).left_out
        for units in (5, 4, 2, 1)
    }
    assert left_out == {5: (), 4: ("baseline",), 2: ("baseline", "golden"), 1: ("baseline", "golden", "target")}
    [folder] = limits.folder.glob("Torch*")
    assert read_case(folder).left_out == left_out[1]
    refused = save(records, record, replace(limits, case_limit=size))
    assert refused.folder == ""
    assert "msprobe_save_limit" in refused.problem


def test_the_folder_takes_no_more_than_its_limit_however_many_cases_fail(save: Any, limits: SaveOptions) -> None:
    records = {f"Functional.softmax.{i}.forward": SOFTMAX["Functional.softmax.0.forward"] for i in range(8)}
    room = replace(limits, folder_limit=4 * save(records, "Functional.softmax.0.forward", limits).size)
    saved = [save(records, record, room) for record in records]
    assert 0 < sum(bool(case.folder) for case in saved) < len(saved)
    assert sum(file.stat().st_size for file in limits.folder.rglob("*") if file.is_file()) <= room.folder_limit


def test_a_case_has_its_tensors_and_no_map_of_them(save: Any) -> None:
    saved = save(SOFTMAX, "Functional.softmax.0.forward")
    assert [output.error_map for output in read_case(Path(saved.folder)).result.outputs] == [None]


def test_saving_again_replaces_the_case(save: Any, limits: SaveOptions) -> None:
    first, second = (save(SOFTMAX, "Functional.softmax.0.forward") for _ in range(2))
    assert first.folder == second.folder
    assert names(limits.folder) == [".lock", Path(first.folder).name]


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


@pytest.mark.parametrize(
    "name",
    ["../../x", "/etc/x", "a/b", "..", "", "a\0b", "{0.__class__}", "%s%n", "$(touch x)", "x" * 5000, "名", "\ud800"],
)  # fmt: skip
def test_a_name_is_one_folder_of_a_safe_name(replay: Any, name: str) -> None:
    _, _, origin = replay(SOFTMAX, "Functional.softmax.0.forward")
    found = case_name(name, origin, 0, Path("cases"))
    assert Path(found).name == found
    assert len(found) < 120
    assert found.replace("-", "").replace("_", "").replace(".", "").isalnum()
    assert not found.startswith(".")


def test_names_differ_where_anything_about_the_case_does(replay: Any) -> None:
    _, _, origin = replay(SOFTMAX, "Functional.softmax.0.forward")
    origins = [origin, replace(origin, dump=Path("rank1/dump.json")), replace(origin, explored=True)]
    records, folder = ("a/b", "a_b", "a:b"), Path("cases")
    made = {case_name(record, each, seed, folder) for record in records for each in origins for seed in (0, 1)}
    assert len(made) == 3 * 3 * 2


def test_what_lies_in_the_way_is_kept(save: Any, limits: SaveOptions) -> None:
    saved = save(SOFTMAX, "Functional.softmax.0.forward")
    (Path(saved.folder) / "case.json").rename(Path(saved.folder) / "notes.txt")
    assert "is not a saved case" in save(SOFTMAX, "Functional.softmax.0.forward").problem
    assert "notes.txt" in names(Path(saved.folder))


def test_a_folder_that_cannot_be_made_is_reported(save: Any, limits: SaveOptions, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    problem = save(SOFTMAX, "Functional.softmax.0.forward", replace(limits, folder=tmp_path / "file" / "cases")).problem
    assert "Not a directory" in problem


def _save_with_room_for(size: int, arguments: Any, sender: Any) -> None:
    # The system refuses to let a file grow, as a full disk would.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    sender.send(save_case(*arguments))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="limits a forked process")
@pytest.mark.parametrize("size", [1000, 1500])
def test_a_disk_that_fills_up_leaves_no_half_case(replay: Any, limits: SaveOptions, size: int) -> None:
    receiver, sender = multiprocessing.Pipe(duplex=False)
    context = multiprocessing.get_context("fork")
    records = SOFTMAX if size == 1000 else {"Torch.exp.0.forward": forward(element(2))}
    arguments = (*replay(records, next(iter(records))), limits)
    child = context.Process(target=_save_with_room_for, args=(size, arguments, sender))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    saved = receiver.recv()
    assert saved.folder == ""
    assert "File too large" in saved.problem
    assert names(limits.folder) == [".lock"]


def test_what_a_dying_process_left_is_cleared_away(save: Any, limits: SaveOptions) -> None:
    (limits.folder / ".saving-left").mkdir(parents=True)
    (limits.folder / ".saving-left" / "tensors.safetensors").write_text("half")
    saved = save(SOFTMAX, "Functional.softmax.0.forward")
    assert names(limits.folder) == [".lock", Path(saved.folder).name]


def test_the_wrong_file_next_to_a_case_is_refused(save: Any) -> None:
    folder = Path(save(SOFTMAX, "Functional.softmax.0.forward").folder)
    case = read_case(folder)
    write_tensors(folder / "tensors.safetensors", {"args.0": torch.zeros(2)})
    with pytest.raises(TensorFileError, match="but was saved as"):
        read_tensor(folder / "tensors.safetensors", "args.0", case.tensors["args.0"])
