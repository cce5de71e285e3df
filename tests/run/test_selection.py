from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Write = Callable[..., Path]
Json = dict[str, Any]


@pytest.fixture
def chosen(pytester: pytest.Pytester) -> Callable[..., list[str]]:
    """Return the names of the records that these options leave."""

    def collect(*arguments: str) -> list[str]:
        result = pytester.runpytest_inprocess("--collect-only", "-q", "--msprobe-dump=dump.json", *arguments)
        return [line.partition("::")[2] for line in result.outlines if "::" in line]

    return collect


NAMES = [
    "Functional.conv2d.0.forward",
    "Functional.conv2d.0.backward",
    "Functional.conv1d.0.forward",
    "Torch.linalg.norm.0.forward",
    "Torch.norm.0.forward",
    "Tensor.add_.0.forward",
    "Torch.add.0.forward",
]


@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        (["--msprobe-only=conv2d"], [0, 1]),
        (["--msprobe-only=conv?d"], [0, 1, 2]),
        (["--msprobe-only=conv2d,Torch.linalg.*"], [0, 1, 3]),
        (["--msprobe-only=conv2d add"], [0, 1, 6]),
        (["--msprobe-only=conv2d", "--msprobe-only=add_"], [0, 1, 5]),
        (["--msprobe-only=Torch.*"], [3, 4, 6]),
        (["--msprobe-skip=Torch.*"], [0, 1, 2, 5]),
        (["--msprobe-skip=norm"], [0, 1, 2, 3, 5, 6]),
        (["--msprobe-only=Torch.*", "--msprobe-skip=linalg.norm,add"], [4]),
        (["--msprobe-only=nothing"], []),
        (["--msprobe-only=CONV2D"], []),
    ],
    ids=lambda value: " ".join(map(str, value)) or "none",
)
def test_apis_are_chosen_by_names_and_patterns(
    write_dump: Write, element: Any, forward: Any, chosen: Any, arguments: list[str], left: list[int]
) -> None:
    write_dump({name: forward(element(2)) for name in NAMES})
    assert chosen(*arguments) == [NAMES[i] for i in left]


def test_what_is_left_out_is_reported_as_deselected(
    pytester: pytest.Pytester, write_dump: Write, element: Any, forward: Any
) -> None:
    write_dump({name: forward(element(2)) for name in NAMES})
    pytester.makepyfile("def test_it(): pass")
    result = pytester.runpytest_inprocess(
        "--msprobe-dump=dump.json", "test_what_is_left_out_is_reported_as_deselected.py", "--msprobe-only=none"
    )
    result.assert_outcomes(passed=1, deselected=len(NAMES))


def test_records_with_unreadable_names_are_never_left_out_silently(
    write_dump: Write, element: Any, forward: Any, chosen: Any
) -> None:
    write_dump({"odd": {}, "Torch.add.0.forward": forward(element(2))})
    assert chosen("--msprobe-only=mul", "--msprobe-unique") == ["odd"]


def test_unique_folds_calls_that_differ_in_the_values_of_tensors_only(
    write_dump: Write, element: Any, forward: Any, chosen: Any
) -> None:
    write_dump(
        {
            "Torch.abs.0.forward": forward(element(2, 3)),
            "Torch.abs.1.forward": forward(element(2, 3, low=-7.0, high=9.0, md5="12345678", data_name="x.pt")),
        }
    )
    assert chosen("--msprobe-unique") == ["Torch.abs.0.forward"]


def test_unique_folds_backward_with_its_forward(write_dump: Write, element: Any, forward: Any, chosen: Any) -> None:
    x = element(2, 3, requires_grad=True)
    pair = {f"Torch.abs.{i}.{way}": body for i in (0, 1) for way, body in (("forward", forward(x)), ("backward", {}))}
    write_dump({**pair, "Torch.abs.2.forward": forward(x)})
    # The last call has no backward, so it is another one.
    assert chosen("--msprobe-unique") == ["Torch.abs.0.forward", "Torch.abs.0.backward", "Torch.abs.2.forward"]


def test_unique_keeps_whatever_could_make_a_difference(
    write_dump: Write, element: Any, forward: Any, chosen: Any
) -> None:
    def number(value: float) -> Json:
        return {"type": type(value).__name__, "value": value}

    x, y = element(2, 3), element(4, 3)
    different = [
        ("cat", forward([x, y], number(0))),
        ("cat", forward([y, x], number(0))),
        ("cat", forward([x, x], number(0))),
        ("cat", forward([x, x, x], number(0))),
        ("cat", forward([x, x], number(1))),
        ("cat", forward([x, x], dim=number(1))),
        ("cat", forward([element(2, 3, dtype="float16")] * 2, number(0))),
        ("cat", forward([element(2, 3, requires_grad=True)] * 2, number(0))),
        ("cat", forward([x, x], number(False))),
        ("stack", forward([x, x], number(0))),
    ]
    names = [f"Torch.{api}.{i}.forward" for i, (api, _) in enumerate(different)]
    twice = [f"Torch.{api}.{i + 100}.forward" for i, (api, _) in enumerate(different)]
    bodies = [body for _, body in different]
    write_dump(dict(zip(names + twice, bodies + bodies, strict=True)))
    assert chosen("--msprobe-unique") == names


def test_unique_folds_over_all_ranks(pytester: pytest.Pytester, write_dump: Write, element: Any, forward: Any) -> None:
    for rank in (0, 1):
        write_dump({"Torch.abs.0.forward": forward(element(2, 3))}, f"run/rank{rank}")
    result = pytester.runpytest_inprocess("--collect-only", "-q", "--msprobe-dump=run", "--msprobe-unique")
    assert [line for line in result.outlines if "::" in line] == ["run/rank0/dump.json::Torch.abs.0.forward"]


def test_what_msprobe_has_no_mark_for_is_no_unknown_mark(pytester: pytest.Pytester, write_dump: Write) -> None:
    packed = {"type": "torch.Tensor", "dtype": "torch.quint2x4", "shape": [2], "Max": 1.0, "Min": 0.0}
    write_dump({"torch.ops.library.scale.0.forward": {"input_args": [packed], "output": [packed]}})
    words = ["--msprobe-dump=dump.json", "--collect-only", "-m", "forward", "--strict-markers", "-Werror"]
    result = pytester.runpytest_inprocess(*words)
    assert result.ret == 0, result.stdout.str()
