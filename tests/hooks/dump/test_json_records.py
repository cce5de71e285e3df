"""Records as the JSON that they were read from."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from msprobe_hooks.dump.json_records import backward_body, forward_body
from msprobe_hooks.dump.names import split_direction
from msprobe_hooks.dump.reader import read_dump
from msprobe_hooks.dump.schema import backward_record, forward_record

REPOSITORY = Path(__file__).parents[3]
DUMPS = [
    REPOSITORY / "examples/check_a_dump/dump.json",
    *sorted((REPOSITORY / "tests/data/verdict_quality").rglob("dump.json")),
    *sorted((REPOSITORY / "tests/data/mindspore").rglob("dump.json")),
]


@pytest.mark.parametrize("path", DUMPS, ids=lambda path: "/".join(path.parts[-3:-1]))
def test_a_record_is_read_again_from_its_body(path: Path) -> None:
    dump = read_dump(path)
    for name in dump.api_names:
        if split_direction(name)[1] == "forward":
            forward = dump.forward(name)
            assert _same(forward_record(name, forward_body(forward)), forward)
        else:
            backward = dump.backward(name)
            assert _same(backward_record(name, backward_body(backward)), backward)


def test_classes_of_containers_and_what_is_no_number_are_kept() -> None:
    body = {
        "input_args": [{"type": "float", "value": float("inf")}, [{"type": "str", "value": "x"}], {}],
        "input_kwargs": {"memory_format": {"type": "torch.memory_format", "format": "torch.contiguous_format"}},
        "output": [{"type": "torch.Tensor", "dtype": "torch.float16", "shape": [2], "Max": float("inf"), "md5": "ab"}],
        "exception": "ValueError",
        "details": {"input.1": {"container": "tuple"}, "settings": {"axis": 1}},
    }
    record = forward_record("Torch.f.0.forward", body)
    assert forward_record(record.name, forward_body(record)) == record


def _same(read: object, record: object) -> bool:
    # NaN is no NaN's equal, and both print alike.
    return msgspec.to_builtins(read).__repr__() == msgspec.to_builtins(record).__repr__()
