from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from msprobe_hooks.dump import reader
from msprobe_hooks.dump.reader import read_dump
from msprobe_hooks.dump.schema import TensorElement, ValueElement, tensors_of
from msprobe_hooks.errors import DumpError, RecordError
from tests.support.dumps.dump_files import write_dump

DUMPS = Path(__file__).parents[2] / "data" / "dumps"


def write(folder: Path, data: Any, **top: Any) -> Path:
    return write_dump(folder, data, **top)


def tensor(**fields: Any) -> dict[str, Any]:
    return {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 3]} | fields


def test_records_come_in_recorded_order(tmp_path: Path) -> None:
    names = [f"Torch.mm.{i}.forward" for i in (2, 0, 1)]
    dump = read_dump(write(tmp_path, {name: {} for name in names}))
    assert list(dump.records) == names


def test_module_records_are_counted_apart(tmp_path: Path) -> None:
    dump = read_dump(write(tmp_path, {"Module.fc.Linear.forward.0": {}, "Torch.mm.0.forward": {}}, level="mix"))
    assert (dump.api_names, dump.module_count) == (["Torch.mm.0.forward"], 1)


def test_a_dump_without_framework_is_pytorchs(tmp_path: Path) -> None:
    assert read_dump(write(tmp_path, {}, framework=None)).framework == "pytorch"


@pytest.mark.parametrize("indent", [None, 1])
def test_bare_nan_and_infinity_are_read_as_numbers(tmp_path: Path, indent: int | None) -> None:
    element = tensor(Max=math.inf, Min=-math.inf, Mean=math.nan, Norm=1.5)
    path = write(tmp_path, {"Torch.mm.0.forward": {"input_args": [element]}})
    path.write_text(json.dumps(json.loads(path.read_text()), indent=indent))
    (read,) = tensors_of(read_dump(path).forward("Torch.mm.0.forward").args)
    assert (read.max, read.min, read.norm) == (math.inf, -math.inf, 1.5)
    assert math.isnan(read.mean or 0)


@pytest.mark.parametrize("text", ["NaN", 'a "NaN", b', ": Infinity,", "[-Infinity]", "\\"])
def test_text_that_looks_like_nan_stays_text(tmp_path: Path, text: str) -> None:
    body = {"input_args": [{"type": "str", "value": text}, {"type": "float", "value": math.nan}]}
    args = read_dump(write(tmp_path, {"Torch.f.0.forward": body})).forward("Torch.f.0.forward").args
    assert args[0] == ValueElement("str", text)
    assert isinstance(args[1], ValueElement)
    assert math.isnan(args[1].value)


def test_old_spellings_of_parameter_and_data_name_are_read(tmp_path: Path) -> None:
    element = tensor(type="torch.nn.parameter.Parameter", datapath="a.pt", data_name="b.pt")
    (read,) = (
        read_dump(write(tmp_path, {"Torch.f.0.forward": {"input_args": [element]}})).forward("Torch.f.0.forward").args
    )
    assert isinstance(read, TensorElement)
    assert read.data_name == "a.pt"


@pytest.mark.parametrize(
    ("body", "path", "problem"),
    [
        ({"input_args": [tensor(shape="2x3")]}, "input_args[0].shape", "expected an array of sizes, found a string"),
        ({"input_args": [tensor(shape=[-1])]}, "input_args[0].shape", "expected an array of sizes, found an array"),
        ({"input_args": [tensor(dtype=7)]}, "input_args[0].dtype", "expected a dtype's name, found a number"),
        ({"input_args": {}}, "input_args", "expected an array, found an object"),
        ({"input_kwargs": {"x": [tensor(Max="big")]}}, "input_kwargs.x[0].Max", "expected a number, found a string"),
        (
            {"input_args": [tensor(shape=[2**63])]},
            "input_args[0].shape",
            "expected the shape of a tensor, found one of",
        ),
        ({"input_args": [tensor(shape=[0, 10**400])]}, "input_args[0].shape", "expected the shape of a tensor, found"),
        ({"input_args": [tensor(shape=[2**32] * 64)]}, "input_args[0].shape", "expected the shape of a tensor, found"),
        ({"input_args": [tensor(Max=10**309)]}, "input_args[0].Max", "expected a number, found a number"),
        ({"details": 5}, "details", "expected an object, found a number"),
        ({"details": {"input.0": None}}, "details.input.0", "expected an object, found nothing"),
        ({"details": {"input.0": {"value": 1}}}, "details.input.0.type", "expected a type's name, found nothing"),
        ({"details": {"input": {"container": 1}}}, "details.input.container", "expected a type's name, found a number"),
        ([], "", "expected an object, found an array"),
    ],
)
def test_a_malformed_record_names_its_json_path(tmp_path: Path, body: Any, path: str, problem: str) -> None:
    dump = read_dump(write(tmp_path, {"Torch.f.0.forward": body, "Torch.g.0.forward": {}}))
    with pytest.raises(RecordError) as caught:
        dump.forward("Torch.f.0.forward")
    where = '$.data["Torch.f.0.forward"]' + (f".{path}" if path else "")
    assert str(caught.value).startswith(f"{where}: {problem}")
    assert dump.forward("Torch.g.0.forward").args == []


@pytest.mark.parametrize("levels", [101, 330, 3000])
@pytest.mark.parametrize(("opening", "closing"), ["[]", ('{"a": ', "}")], ids=["arrays", "objects"])
def test_nesting_without_end_costs_its_record_alone(tmp_path: Path, levels: int, opening: str, closing: str) -> None:
    path = write(tmp_path, {"Torch.f.0.forward": {"input_args": ["DEEP"]}, "Torch.g.0.forward": {}})
    path.write_text(path.read_text().replace('"DEEP"', opening * levels + '"x"' + closing * levels))
    dump = read_dump(path)
    with pytest.raises(RecordError, match="nested deeper than 100 levels") as caught:
        dump.forward("Torch.f.0.forward")
    assert len(str(caught.value)) < 400
    assert dump.forward("Torch.g.0.forward").args == []


def test_what_is_nested_as_deeply_as_records_may_be_is_read(tmp_path: Path) -> None:
    nested: Any = tensor()
    for _ in range(100):
        nested = [nested]
    dump = read_dump(write(tmp_path, {"Torch.f.0.forward": {"input_args": [nested]}}))
    assert len(tensors_of(dump.forward("Torch.f.0.forward").args)) == 1


@pytest.mark.parametrize("task", ["diff_check", "nan_check"])
def test_the_tasks_of_msprobe_26_are_known(tmp_path: Path, task: str) -> None:
    assert read_dump(write(tmp_path, {"Torch.f.0.forward": {}}, task=task)).task == task


def test_half_of_a_surrogate_pair_is_its_escape_as_text(tmp_path: Path) -> None:
    value = {"type": "str", "value": "i\ud800,i-> \U0001f600 \\ud800"}
    names = ["Torch.f.0.forward", "Torch.\udc00.0.forward"]
    dump = read_dump(write(tmp_path, {name: {"input_args": [value]} for name in names}))
    assert list(dump.records) == ["Torch.f.0.forward", r"Torch.\udc00.0.forward"]
    assert dump.forward(names[0]).args == [ValueElement("str", "i\\ud800,i-> \U0001f600 \\ud800")]


@pytest.mark.parametrize(
    ("body", "problem"),
    [(b'{"input_args": ["\xb0"]}', "not UTF-8 text"), (b'{"input_args": [%s]}' % (b"1" * 5000), "out of range")],
    ids=["not UTF-8", "5000 digits"],
)
def test_a_record_that_cannot_be_decoded_costs_itself_alone(tmp_path: Path, body: bytes, problem: str) -> None:
    path = write(tmp_path, {"Torch.f.0.forward": "BODY", "Torch.g.0.forward": {}})
    path.write_bytes(path.read_bytes().replace(b'"BODY"', body))
    dump = read_dump(path)
    with pytest.raises(RecordError, match=problem):
        dump.forward("Torch.f.0.forward")
    assert dump.forward("Torch.g.0.forward").args == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "the file is empty"),
        (b"  \n", "the file is empty"),
        (b'{"data": {"Torch.mm.0.forward": {"input', "the JSON ends too early"),
        (b"PK\x03\x04 zip", "not valid JSON at line 1"),
        (b'{\n"data": {},\n oops}', "not valid JSON at line 3"),
        (b"[]", "not a dump: it is no JSON object"),
        (b"{}", 'not a dump: it has no "data"; pass the dump.json that a recording wrote'),
        (b'{"data": []}', "not a dump: Expected"),
        (
            b'{"npu_path": "a/dump.json", "bench_path": "b/dump.json", "is_print_compare_log": true}',
            "pass its npu_path 'a/dump.json' as the target and its bench_path 'b/dump.json' as the golden run",
        ),
        (b'{"npu_path": "a", "bench_path": [1]}', "it is msprobe's compare.json: pass its npu_path 'a' as the target"),
        (b'{"data": {}, "task": "dance", "level": "L1"}', "\"task\" is 'dance'; allowed: statistics"),
        (b'{"data": {}, "task": "tensor"}', '"level" is missing; allowed: L0'),
        (b'{"data": {}, "task": "tensor", "level": "L1", "framework": "jax"}', "allowed: pytorch, mindspore"),
        (b'{"data": {"\xff": {}}, "task": "tensor", "level": "L1"}', "dump.json"),
    ],
)
def test_an_unusable_file_is_named_with_its_problem(tmp_path: Path, text: bytes, problem: str) -> None:
    path = tmp_path / "dump.json"
    path.write_bytes(text)
    with pytest.raises(DumpError) as caught:
        read_dump(path)
    assert str(caught.value).startswith(str(path))
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    "content", ['{"data": {}, "task": "tensor", "level": "LONG"}', '{"data": {}, "task": {"LONG": 1}}']
)
def test_what_a_message_quotes_is_cut_short(tmp_path: Path, content: str) -> None:
    path = tmp_path / "dump.json"
    path.write_text(content.replace("LONG", "L" * 1_000_000))
    with pytest.raises(DumpError) as caught:
        read_dump(path)
    assert len(str(caught.value)) < 1000


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DumpError, match="no such file"):
        read_dump(tmp_path / "dump.json")


def test_an_enormous_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "dump.json"
    with path.open("wb") as file:
        file.truncate(reader.MAX_FILE_BYTES + 1)
    with pytest.raises(DumpError, match=r"larger than 4 GiB, the limit of a dump: 4\.0 GiB"):
        read_dump(path)


@pytest.mark.parametrize("path", sorted(DUMPS.rglob("dump.json")), ids=lambda path: path.parent.name)
def test_every_record_of_a_real_dump_is_read(path: Path) -> None:
    dump = read_dump(path)
    for name in dump.api_names:
        record = dump.forward(name) if name.endswith(".forward") else dump.backward(name)
        assert record.name == name


def test_names_that_are_spelled_alike_once_they_can_be_typed_stay_apart(tmp_path: Path) -> None:
    body = {"input_args": [], "input_kwargs": {}, "output": []}
    names = ["Torch.a\x1b::b.0.forward", r"Torch.a\x1b:\x3ab.0.forward"]
    dump = read_dump(write_dump(tmp_path, dict.fromkeys(names, body)))
    assert [*dump.records] == [r"Torch.a\x1b:\x3ab.0.forward", r"Torch.a\x1b:\x3ab.0.forward#2"]
