from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.counts import FailureCounts, failure_counts
from tests.support.dumps.dump_files import forward, tensor, value

Write = Callable[..., Path]
Json = dict[str, Any]


def usage_error(pytester: pytest.Pytester, *arguments: str) -> str:
    """Run, and return the one line that a usage error is."""
    result = pytester.runpytest_inprocess(*arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    (line,) = (line for line in result.errlines if line)
    return line


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty"),
        (b" \n\t", "the file is empty"),
        (b'{"task": "statistics", "data": {"Torch.abs.0.forward": {"input_args": [', "the JSON ends too early"),
        (b"not JSON at all", "not valid JSON at line 1"),
        (b'{"task": "statistics",\n"level": L1}', "not valid JSON at line 2"),
        (b"[1, 2, 3]", "not a dump: it is no JSON object; pass the dump.json that a recording wrote"),
        (
            b'{"task": "statistics", "level": "L1"}',
            'not a dump: it has no "data"; pass the dump.json that a recording wrote',
        ),
        (
            b'{"task": "statistics", "level": "L1", "data": [1]}',
            "not a dump: Expected `object`, got `array` - at `$.data`; pass the dump.json that a recording wrote",
        ),
        (b'{"task": 7, "level": "L1", "data": {}}', "not a dump: "),
        (b"PK\x03\x04\xff\xfe\x00\x80", "not "),
        (b'{"task": "statistics", "level": "L1", "data": {"\xff": {}}}', "not UTF-8 text"),
    ],
    ids=["empty", "blank", "truncated", "text", "broken", "array", "no data", "data array", "task", "zip", "not UTF-8"],
)
def test_a_malformed_file_is_one_usage_error(pytester: pytest.Pytester, content: bytes, said: str) -> None:
    path = pytester.path / "dump.json"
    path.write_bytes(content)
    line = usage_error(pytester, "--msprobe-dump=dump.json")
    assert str(path) in line
    assert said in line


@pytest.mark.parametrize(
    ("key", "value", "known"),
    [
        ("framework", "jax", "allowed: pytorch, mindspore, mindtorch"),
        ("task", "dream", "allowed: statistics, tensor, "),
        ("level", "L9", "allowed: L0, L1, L2, mix, "),
    ],
)
def test_an_unknown_framework_task_or_level_is_a_usage_error_that_lists_the_known(
    pytester: pytest.Pytester, write_dump: Write, records: Json, key: str, value: str, known: str
) -> None:
    write_dump(records, **{key: value})
    line = usage_error(pytester, "--msprobe-dump=dump.json")
    assert f"\"{key}\" is '{value}'" in line
    assert known in line


@pytest.mark.parametrize(
    "arguments", [["--msprobe-dump=absent.json"], ["absent.json"], ["absent.json::Torch.abs.0.forward"]]
)
def test_a_missing_file_is_a_usage_error(pytester: pytest.Pytester, arguments: list[str]) -> None:
    line = usage_error(pytester, *arguments)
    assert str(pytester.path / "absent.json") in line
    assert "no such file" in line


def test_a_folder_without_a_dump_is_a_usage_error(pytester: pytest.Pytester) -> None:
    folder = pytester.mkdir("empty")
    assert f"{folder}: no dump.json in this folder or below it" in usage_error(pytester, "--msprobe-dump=empty")


def test_graphs_without_a_tensor_are_a_usage_error(pytester: pytest.Pytester) -> None:
    folder = pytester.mkdir("early")
    (folder / "rank_0" / "graphs").mkdir(parents=True)
    (folder / "rank_0" / "Net" / "0" / "0").mkdir(parents=True)
    text = f"{folder}: no kernel's tensor in the graphs of MindSpore; the run ended before the first"
    assert text in usage_error(pytester, "--msprobe-dump=early")


def test_an_enormous_file_is_refused_unread(pytester: pytest.Pytester) -> None:
    with (pytester.path / "dump.json").open("wb") as file:
        file.truncate(5 * 2**30)
    assert "larger than 4 GiB, the limit of a dump: 5.0 GiB" in usage_error(pytester, "--msprobe-dump=dump.json")


def test_one_bad_rank_among_good_ones_is_named(pytester: pytest.Pytester, write_dump: Write, records: Json) -> None:
    write_dump(records, "run/rank0")
    (write_dump(records, "run/rank1")).write_text("{")
    assert str(pytester.path / "run" / "rank1" / "dump.json") in usage_error(pytester, "--msprobe-dump=run")


def test_under_xdist_a_malformed_file_is_reported_once_before_workers_start(pytester: pytest.Pytester) -> None:
    (pytester.path / "dump.json").write_text("{")
    result = pytester.runpytest_subprocess("-n2", "--msprobe-dump=dump.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "workers" not in result.stdout.str()
    assert result.stderr.str().count("the JSON ends too early") == 1


@pytest.mark.parametrize(
    ("place", "broken", "said"),
    [
        (("input_args", 0, "shape"), "4x8", "input_args[0].shape: expected an array of sizes, found a string"),
        (("input_args", 0, "dtype"), 7, "input_args[0].dtype: expected a dtype's name, found a number"),
        (("input_args",), {}, "input_args: expected an array, found an object"),
        (("input_kwargs", "dim"), "first", "input_kwargs.dim: expected an object, found a string"),
        (
            ("input_kwargs", "dim"),
            {"type": "float", "value": "x"},
            "input_kwargs.dim.value: expected a number, found a",
        ),
        (("output", 0, "Max"), [], "output[0].Max: expected a number, found an array"),
    ],
)
def test_exactly_the_malformed_record_fails_with_its_json_path(
    write_dump: Write, records: Json, check: Any, place: tuple[Any, ...], broken: Any, said: str
) -> None:
    name = "Functional.softmax.0.forward"
    path = write_dump(records)
    envelope = json.loads(path.read_text())
    parent = envelope["data"][name]
    for key in place[:-1]:
        parent = parent[key]
    parent[place[-1]] = broken
    path.write_text(json.dumps(envelope))
    checked = check("--msprobe-dump=dump.json", "--msprobe-device=sim")
    assert checked.wrong == {name}
    assert f'$.data["{name}"].{said}' in checked.cases[name].text
    assert checked.outcomes["Functional.softmax.0.backward"] == "skipped"
    assert checked.cases[name].properties["msprobe.verdict"] == "fail"


@pytest.mark.parametrize(
    "value",
    [
        {"type": "slice", "value": [1, 2, 3, 4]},
        {"type": "torch.Size", "value": {}},
        {"type": "complex", "value": [1, 2, 3]},
        {"type": "complex", "value": ["a", 1]},
        {"type": "complex", "value": [10**400, 1]},
        {"type": "torch.Size", "value": ["a"]},
    ],
    ids=str,
)
def test_a_value_that_its_type_cannot_have_skips_with_its_place(
    write_dump: Write, records: Json, check: Any, value: Json
) -> None:
    name = "Tensor.__getitem__.0.forward"
    body = records["Functional.softmax.0.forward"]
    write_dump({name: body | {"input_args": [*body["input_args"], value], "input_kwargs": {}}, **records})
    checked = check("--msprobe-dump=dump.json", "--msprobe-device=sim")
    assert {case for case, outcome in checked.outcomes.items() if outcome == "skipped"} == {name}
    assert not checked.wrong
    assert f"the recording lost an argument's value: args.1 of type {value['type']}" in checked.cases[name].text


def test_a_record_that_cannot_be_decoded_costs_no_other(write_dump: Write, records: Json, check: Any) -> None:
    deep, broken = "Torch.abs.0.forward", "Torch.abs.1.forward"
    path = write_dump({deep: "DEEP", broken: "BROKEN", **records})
    text = path.read_bytes().replace(b'"DEEP"', b'{"input_args": [' + b"[" * 5000 + b"]" * 5000 + b"]}")
    path.write_bytes(text.replace(b'"BROKEN"', b'{"input_args": ["\xb0", NaN]}'))
    checked = check("--msprobe-dump=dump.json", "--msprobe-device=sim")
    assert checked.cases.keys() == {deep, broken, *records}
    assert {broken} <= checked.wrong <= {deep, broken}


UNUSABLE = {
    "huge int": (value(10**30), "skipped", "the API rejects the rebuilt inputs on the CPU too"),
    "negative int": (value(-(2**63) - 1), "skipped", "the API rejects the rebuilt inputs on the CPU too"),
    "complex of words": ({"type": "complex", "value": ["a", 1]}, "skipped", "args.1 of type complex"),
    "complex beyond floats": ({"type": "complex", "value": [10**400, 1]}, "skipped", "args.1 of type complex"),
    "size of words": ({"type": "torch.Size", "value": ["a"]}, "skipped", "args.1 of type torch.Size"),
    "size beyond 64 bits": ({"type": "torch.Size", "value": [2**70]}, "skipped", "args.1 of type torch.Size"),
    "name with NUL": (tensor(4, data_name="a\0.pt"), "failed", "'a\\x00.pt': no tensor file can have this name"),
    "name too long": (tensor(4, data_name="a" * 300 + ".pt"), "failed", "no tensor file can have this name"),
    "name in a circle": (tensor(4, data_name="circle.pt"), "failed", "no tensor file can have this name"),
}


@pytest.mark.parametrize("timeout", [[], ["--msprobe-timeout=60"]], ids=["", "with a limit"])
def test_a_value_that_cannot_be_used_costs_its_record_and_names_itself(
    pytester: pytest.Pytester, write_dump: Write, check: Any, timeout: list[str]
) -> None:
    names = {kind: f"Torch.add.{number}.forward" for number, kind in enumerate(UNUSABLE)}
    (pytester.mkdir("dump_tensor_data") / "circle.pt").symlink_to("circle.pt")
    write_dump({names[kind]: forward(tensor(4), element) for kind, (element, *_) in UNUSABLE.items()})
    checked = check("--msprobe-dump=dump.json", "--msprobe-device=cpu", "--msprobe-journal=run.jsonl", *timeout)
    for kind, (_, outcome, said) in UNUSABLE.items():
        assert checked.outcomes[names[kind]] == outcome
        assert said in checked.cases[names[kind]].text
    assert failure_counts(checked.result, pytester.path / "run.jsonl") == FailureCounts(3, 3, 3)


@pytest.mark.parametrize("timeout", [[], ["--msprobe-timeout=60"]], ids=["", "with a limit"])
@pytest.mark.parametrize("shape", [[2**63 - 1, 4], [2**62] * 30, [0, 2**62], [1] * 70], ids=str)
def test_a_shape_that_no_machine_holds_is_an_item_like_any_other(
    pytester: pytest.Pytester, write_dump: Write, check: Any, timeout: list[str], shape: list[int]
) -> None:
    name = "Torch.abs.0.forward"
    write_dump({name: forward(tensor(*shape))})
    checked = check("--msprobe-dump=dump.json", "--msprobe-device=cpu", "--msprobe-journal=run.jsonl", *timeout)
    counts = failure_counts(checked.result, pytester.path / "run.jsonl")
    assert len(set(counts)) == 1
    assert "Error: " not in checked.cases[name].text


def test_arguments_that_an_api_does_not_take_are_refused_by_the_cpu(write_dump: Write, check: Any) -> None:
    index, float_index = tensor(2, dtype="int64", low=0, high=3), tensor(4)
    write_dump(
        {
            "Tensor.__setitem__.0.forward": forward(tensor(4), index, tensor(2), tensor(2)),
            "Torch.gather.0.forward": forward(tensor(4), value(9), index),
            "Torch.index_select.0.forward": forward(tensor(4), value(0), float_index),
        }
    )
    checked = check("--msprobe-dump=dump.json", "--msprobe-device=cpu")
    assert set(checked.outcomes.values()) == {"skipped"}
    for case in checked.cases.values():
        assert "the API rejects the rebuilt inputs on the CPU too" in case.text


def test_a_malformed_backward_record_leaves_its_forward_alone(write_dump: Write, records: Json, check: Any) -> None:
    name = "Functional.softmax.0.backward"
    records[name] = {"input": 5}
    write_dump(records)
    checked = check("--msprobe-dump=dump.json", "--msprobe-device=sim")
    assert checked.wrong == {name}
    assert f'$.data["{name}"].input: expected an array, found a number' in checked.cases[name].text


@pytest.mark.parametrize("body", ["[]", "7", '"text"', "null"])
def test_a_record_that_is_no_object_fails_alone(write_dump: Write, records: Json, check: Any, body: str) -> None:
    name = "Torch.abs.0.forward"
    path = write_dump({name: "BODY", **records})
    path.write_text(path.read_text().replace('"BODY"', body))
    checked = check("--msprobe-dump=dump.json", "--msprobe-device=sim")
    assert checked.wrong == {name}
    assert f'$.data["{name}"]: expected an object' in checked.cases[name].text
