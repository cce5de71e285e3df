"""What exploring finds, what it leaves alone, and what it prints."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from msprobe_hooks.dump.reader import read_dump
from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.engine.replay.judging.run_outputs import produced
from pytest_msprobe.engine.values.pytree import tensors_with_paths
from pytest_msprobe.extensions.explore.explore import Finding
from pytest_msprobe.extensions.explore.explore_failures import _names, snippet
from pytest_msprobe.extensions.explore.minimal_failure import shorten
from pytest_msprobe.extensions.explore.value_strategies import Drawing, resized, smallest_sizes, special_values
from tests.corpus.trials import read_calls
from tests.support.dumps.dump_files import forward
from tests.support.dumps.dump_files import tensor as element
from tests.support.nightly import nightly_but
from tests.support.replays.devices import Faulty
from tests.support.replays.exploring import explored

DUMPS = Path(__file__).parents[2] / "data" / "dumps"


def tensors(finding: Finding | None) -> list[torch.Tensor]:
    assert finding is not None
    return [tensor for _, tensor in finding.replay.trial.subject.arguments.tensors()]


# No alarm where nothing is wrong --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [pytest.param("gpt2", marks=pytest.mark.slow), "resnet18", "lstm-mix"])
def test_the_cpu_raises_no_alarm(name: str) -> None:
    dump, judged = read_dump(DUMPS / name / "dump.json"), 0
    for recorded in read_calls([dump.path], 1):
        directions = ["forward", "backward"] if recorded.call.backward else ["forward"]
        for direction in directions:
            exploration = explored(dump, f"{recorded.call.name.key}.{direction}", CpuDevice(), examples=10)
            assert exploration.finding is None, snippet(exploration.finding.replay, exploration.finding.result)
            judged += exploration.judged
    assert judged > 100


def test_a_random_api_is_not_explored(dump_of: Any) -> None:
    dump = dump_of({"Functional.dropout.0.forward": forward(element(100))})
    assert explored(dump, "Functional.dropout.0.forward", CpuDevice()).judged == 0


# What is found is small -----------------------------------------------------------------------------------------------

LIMITS = torch.finfo(torch.float32)


def without_nan(result: torch.Tensor) -> torch.Tensor:
    return result.nan_to_num(0.0, torch.inf, -torch.inf)


def flushed(result: torch.Tensor) -> torch.Tensor:
    return torch.where(result.abs() < LIMITS.smallest_normal, result * 0, result)


def last_lost(result: torch.Tensor) -> torch.Tensor:
    result.view(-1)[-1] = 0
    return result


@pytest.mark.parametrize(
    ("change", "record", "arguments", "found"),
    [
        (without_nan, "Torch.mul", [element(32, 48), element(32, 48)], [[[float("nan")]], [[0.0]]]),
        (last_lost, "Torch.exp", [element(32, 48)], [[[0.0]]]),
        (last_lost, "Torch.matmul", [element(32, 48), element(48, 16)], [[[1.0]], [[1.0]]]),
    ],
    ids=["nan", "last", "product"],
)
def test_a_fault_is_shrunk_to_the_smallest_input(
    dump_of: Any, change: Any, record: str, arguments: list[Any], found: list[Any]
) -> None:
    dump = dump_of({f"{record}.0.forward": forward(*arguments)})
    finding = explored(dump, f"{record}.0.forward", Faulty(change), examples=200).finding
    assert sorted(str(tensor.tolist()) for tensor in tensors(finding)) == sorted(
        str(torch.tensor(values).tolist()) for values in found
    )


def test_flushed_subnormals_are_shrunk_to_one_subnormal(dump_of: Any) -> None:
    dump = dump_of({"Torch.neg.0.forward": forward(element(32, 48))})
    [x] = tensors(explored(dump, "Torch.neg.0.forward", Faulty(flushed), examples=300).finding)
    assert x.numel() == 1
    assert 0 < abs(x.item()) < LIMITS.smallest_normal


def test_a_wrong_rounding_of_ties_is_shrunk_to_one_tie(dump_of: Any) -> None:
    class AwayFromZero(CpuDevice):
        def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
            [x] = args
            return torch.where(x.frac().abs() == 0.5, x.trunc() + x.sign(), x.round())

    dump = dump_of({"Torch.round.0.forward": forward(element(100, low=-3.0, high=3.0))})
    [x] = tensors(explored(dump, "Torch.round.0.forward", AwayFromZero()).finding)
    assert x.numel() == 1
    assert abs(x.item()) % 2 == 0.5


def test_a_kernel_that_ignores_strides_is_found(dump_of: Any) -> None:
    class Dense(CpuDevice):
        def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
            [x] = args
            return func(x.as_strided(x.shape, torch.empty(x.shape).stride()))

    dump = dump_of({"Torch.neg.0.forward": forward(element(6, 5))})
    finding = explored(dump, "Torch.neg.0.forward", Dense()).finding
    [x] = tensors(finding)
    assert not x.is_contiguous()
    assert x.numel() <= 4
    assert "as_strided" in snippet(finding.replay, finding.result)


def test_a_fault_of_gradients_is_found_with_what_arrives(dump_of: Any) -> None:
    class NoGradient(CpuDevice):
        def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
            output = func(*args, **kwargs)
            return tuple(grad * 0 for grad in output) if record.endswith("backward") else output

    records = {
        "Torch.exp.0.forward": forward(element(8, 8, requires_grad=True)),
        "Torch.exp.0.backward": {"input": [element(8, 8)], "output": [element(8, 8)]},
    }
    finding = explored(dump_of(records), "Torch.exp.0.backward", NoGradient()).finding
    assert finding is not None
    found = finding.replay.input_tensors("backward")
    assert {path: tensor.tolist() for path, tensor in found.items()} == {"args.0": [[0.0]], "grad.": [[1.0]]}


def test_a_smaller_input_fails_as_the_recorded_one_does(dump_of: Any) -> None:
    class RaisesWhereEmpty(Faulty):
        def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
            if not args[0].numel():
                raise ValueError("empty")
            return super().call(func, args, kwargs, record=record)

    dump = dump_of({"Torch.exp.0.forward": forward(element(8, 8))})
    finding = explored(dump, "Torch.exp.0.forward", RaisesWhereEmpty(last_lost)).finding
    assert finding is not None
    assert finding.result.verdict.standard == "ulp"


# Same inputs for the same seed, and an end ----------------------------------------------------------------------------


def test_a_seed_gives_the_same_finding_again(dump_of: Any) -> None:
    dump = dump_of({"Torch.mul.0.forward": forward(element(8, 8), element(8, 8))})
    texts = []
    for seed in (0, 0, 1, 2, 3):
        seen: list[Any] = []

        class Watching(CpuDevice):
            def call(self, func: Any, args: Any, kwargs: Any, *, record: str, seen: Any = seen) -> Any:
                seen.append(str([arg.tolist() for arg in args]))
                return func(*args, **kwargs)

        explored(dump, "Torch.mul.0.forward", Watching(), examples=20, seed=seed)
        texts.append(str(seen[1:]))
    assert texts[0] == texts[1]
    assert len(set(texts)) == 4


def test_time_ends_exploring(dump_of: Any) -> None:
    dump = dump_of({"Torch.exp.0.forward": forward(element(8, 8))})
    assert explored(dump, "Torch.exp.0.forward", CpuDevice(), examples=10**7, seconds=0.2).judged < 10**7
    finding = explored(dump, "Torch.exp.0.forward", Faulty(last_lost), examples=10**7, seconds=0.05).finding
    assert finding is None or finding.result.verdict.outcome == "fail"


# The code that is printed ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", nightly_but(["gpt2", "resnet18", "lstm-mix"], "gpt2", "lstm-mix"))
def test_what_is_printed_computes_what_is_right(name: str) -> None:
    dump, ran = read_dump(DUMPS / name / "dump.json"), 0
    for recorded in read_calls([dump.path], 1):
        for direction in ["forward", "backward"] if recorded.call.backward else ["forward"]:
            device = Faulty(lambda result: torch.where(result == 0, 1.0, -result).to(result.dtype))
            finding = explored(dump, f"{recorded.call.name.key}.{direction}", device, examples=5).finding
            if finding is None or finding.result.verdict.standard in ("run", "dtype"):
                continue
            code = snippet(finding.replay, finding.result)
            if "too many numbers" in code:
                continue
            names: dict[str, Any] = {"print": lambda *_: None}
            exec(compile(code, str(recorded.call.name), "exec"), names)
            right = produced(finding.replay.trial, direction)["baseline"]
            wanted = right["output"] if direction == "forward" else list(right["grad"].values())
            result = [tensor for _, tensor in tensors_with_paths(names["result"])]
            for ours, theirs in zip(result, [tensor for _, tensor in tensors_with_paths(wanted)], strict=True):
                assert torch.equal(ours.nan_to_num(), theirs.nan_to_num()), code
            ran += 1
    assert ran > 3


def test_values_are_printed_with_the_fewest_digits_that_name_them(dump_of: Any) -> None:
    dump = dump_of({"Torch.neg.0.forward": forward(element(3, dtype="bfloat16"))})
    finding = explored(dump, "Torch.neg.0.forward", Faulty(lambda x: x + 1)).finding
    assert finding is not None
    text = snippet(finding.replay, finding.result)
    assert re.search(r"^x = torch\.tensor\(\[[-\d.]+\], dtype=torch\.bfloat16\)$", text, re.MULTILINE), text
    assert "result = torch.neg(x)" in text
    assert "# wrong: output.0 is [" in text
    assert "# right: output.0 is [" in text


@pytest.mark.parametrize("key", ["x); import os; (", "torch", "result", "lambda", "a b", "é", "", "x"])
def test_a_keyword_never_becomes_code(key: str) -> None:
    names = _names({"args.0": torch.zeros(1), f"kwargs.{key}": torch.zeros(1)})
    assert list(names.values()) == ["x", "x1"]


# Parts ----------------------------------------------------------------------------------------------------------------


def test_equal_sizes_shrink_together_and_scalars_in_lists_with_them() -> None:
    body = forward(element(4, 8), element(8), eps={"type": "float", "value": 8.0})
    body["input_args"].append([{"type": "int", "value": 8}, {"type": "torch.Size", "value": [8, 3]}])
    body["input_args"].append({"type": "int", "value": 8})
    found = resized(body, "layer_norm", {8: 2})["input_args"]
    assert [found[0]["shape"], found[1]["shape"]] == [[4, 2], [2]]
    assert [found[2][0]["value"], found[2][1]["value"], found[3]["value"]] == [2, [2, 3], 8]
    assert body["input_args"][0]["shape"] == [4, 8]


@given(sizes=st.lists(st.integers(2, 40), unique=True, max_size=4), data=st.data())
def test_the_smallest_sizes_are_accepted(sizes: list[int], data: st.DataObject) -> None:
    divisors = {size: data.draw(st.integers(1, 5)) for size in sizes}

    def accepts(found: Any) -> bool:
        return all(found.get(size, size) % divisors[size] == size % divisors[size] for size in sizes)

    found = smallest_sizes(sorted(sizes, reverse=True), accepts)
    assert accepts(found)
    assert all(to < size for size, to in found.items())


def test_values_become_short_one_by_one() -> None:
    x = torch.tensor([[0.1234567, 5.4321], [3.0, float("nan")]]).t()
    found = shorten({"x": x}, lambda tensors: bool(tensors["x"][0, 1] > 2.5 and tensors["x"].isnan().any()))
    assert str(found["x"].tolist()) == str([[0.0, 3.0], [0.0, float("nan")]])
    assert found["x"].is_contiguous()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.float8_e5m2])
def test_special_values_survive_the_dtype(dtype: torch.dtype) -> None:
    made = {kind: torch.tensor(values, dtype=torch.float64).to(dtype) for kind, values in special_values(dtype).items()}
    smallest = made["subnormal"].double()
    assert 0 < smallest[0] < smallest[3] == torch.finfo(dtype).smallest_normal
    assert made["infinity"].double().isinf().all()
    assert made["nan"].double().isnan().all()
    assert made["largest"].double().isfinite().all()


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "gapped"])
def test_a_drawing_does_not_depend_on_its_layout(layout: Any) -> None:
    from msprobe_hooks.dump.schema import TensorElement

    drawing: Callable[[Any], torch.Tensor] = Drawing((1.0, 2.0, 3.0), layout=layout).tensor
    found = drawing(TensorElement("torch.Tensor", "torch.float32", (2, 2)))
    assert found.tolist() == [[1.0, 2.0], [3.0, 1.0]]
