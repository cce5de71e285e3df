from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from msprobe_hooks.dump.derived_layouts import DerivedLayouts
from msprobe_hooks.dump.memory_layouts import LAYOUT_KEYS, Layout, contiguous_stride
from msprobe_hooks.dump.reader import Dump, read_dump
from msprobe_hooks.dump.schema import TensorElement, walk_tensors
from msprobe_hooks.record import record
from tests.support.dumps.random_programs import outside, run


def as_peers_write_it(tree: Any) -> Any:
    """Return a record without what says how tensors lay in memory."""
    if isinstance(tree, dict):
        return {
            key: as_peers_write_it(item) for key, item in tree.items() if not ("shape" in tree and key in LAYOUT_KEYS)
        }
    return [as_peers_write_it(item) for item in tree] if isinstance(tree, list) else tree


def recorded(folder: Path, program: Callable[[], Any], **options: Any) -> tuple[Dump, DerivedLayouts]:
    """Return the dump of a program, and what is derived from it without the layouts in it."""
    with record(folder / "recorded", **options), torch.no_grad():
        program()
    file = folder / "recorded" / "step0" / "rank" / "dump.json"
    body = as_peers_write_it(json.loads(file.read_text()))
    del body["tensor_layouts"]
    (folder / "dump.json").write_text(json.dumps(body))
    stripped = read_dump(folder / "dump.json")
    assert not stripped.has_layouts
    return read_dump(file), DerivedLayouts(stripped)


def inputs(dump: Dump, name: str) -> dict[str, TensorElement]:
    forward = dump.forward(name)
    return dict([*walk_tensors(forward.args, "input"), *walk_tensors(forward.kwargs, "kwargs")])


def real(element: TensorElement) -> Layout:
    return element.layout or Layout(contiguous_stride(element.shape))


def has_wrong(element: TensorElement, derived: Layout) -> bool:
    """Return whether a derived layout claims what was not so; strides of single elements mean nothing."""
    was = real(element)
    strides = zip(element.shape, derived.stride, was.stride, strict=True)
    return (
        any(size != 1 and ours != theirs for size, ours, theirs in strides)
        or derived.storage_offset not in (0, was.storage_offset)
        or derived.storage_size not in (None, was.storage_size)
        or (derived.is_conj, derived.is_neg) > (was.is_conj, was.is_neg)
    )


def derived_of(folder: Path, program: Callable[[], Any], name: str, **options: Any) -> dict[str, Layout]:
    """Return what is derived of a call's inputs, after a comparison with what was recorded."""
    dump, derived = recorded(folder, program, **options)
    found = dict(derived.of(name))
    assert not [path for path, layout in found.items() if has_wrong(inputs(dump, name)[path], layout)]
    assert all(layout.derived for layout in found.values())
    return found


def product(*shape: int) -> torch.Tensor:
    """Return what a recorded call makes, whose layout is certain."""
    return torch.mm(torch.randn(shape[0], 4), torch.randn(4, torch.Size(shape[1:]).numel())).view(shape)


@pytest.mark.parametrize("seed", range(24))
def test_no_layout_of_a_random_program_is_derived_wrongly(tmp_path: Path, seed: int) -> None:
    torch.manual_seed(seed)
    rng = random.Random(seed)
    given = [outside(rng, shape) for shape in [(2, 3, 4), (4, 6), (2, 4, 3, 5), (7,), (3, 5)]]
    mode = "statistics" if seed % 3 else "md5"
    dump, derived = recorded(tmp_path, lambda: run(rng, given, 50), summary_mode=mode)
    for name in dump.api_names:
        elements, found = inputs(dump, name), derived.of(name)
        wrong = {path: (layout, elements[path]) for path, layout in found.items() if has_wrong(elements[path], layout)}
        assert wrong == {}, name
        for number in {layout.storage for layout in found.values()} - {None}:
            sharing = [elements[path].layout for path, layout in found.items() if layout.storage == number]
            assert len({layout and layout.storage for layout in sharing} - {None}) == 1, name


VIEWS: dict[str, Callable[[torch.Tensor], Any]] = {
    "t": lambda x: x[0].t(),
    "transpose": lambda x: x.transpose(1, 2),
    "negative dimensions": lambda x: torch.transpose(x, -1, dim1=0),
    "swapaxes": lambda x: x.swapaxes(0, 2),
    "permute": lambda x: x.permute(2, 0, 1),
    "permute of a list": lambda x: torch.permute(x, (2, 0, 1)),
    "movedim": lambda x: x.movedim((0, 1), (2, 0)),
    "expand": lambda x: x.unsqueeze(1).expand(-1, 6, -1, -1),
    "slices": lambda x: x[:, 1:4:2],
    "a place": lambda x: x[1, ..., None],
    "narrow": lambda x: x.narrow(2, 1, 4),
    "select": lambda x: x.select(1, 2),
    "chunk": lambda x: x.chunk(2, -1)[0],
    "split": lambda x: x.split([1, 4], 1)[1],
    "unbind": lambda x: x.unbind(1)[3],
    "view": lambda x: x.transpose(0, 1).view(5, 3, 7, 1),
    "reshape": lambda x: x.transpose(1, 2).reshape(3, 7, 5, 1),
    "squeeze": lambda x: x.unsqueeze(1).transpose(0, 2).squeeze(2),
    "flatten": lambda x: x.transpose(0, 2).unsqueeze(1).flatten(0, 1),
    "in place": lambda x: x.transpose(0, 1).add_(1),
}


@pytest.mark.parametrize("view", VIEWS)
def test_the_layout_of_a_view_is_derived(tmp_path: Path, view: str) -> None:
    (layout,) = derived_of(tmp_path, lambda: torch.exp(VIEWS[view](product(3, 5, 7))), "Torch.exp.0.forward").values()
    assert layout.stride != contiguous_stride([2] * len(layout.stride))


def test_the_layout_of_a_conversion_to_channels_last_is_derived(tmp_path: Path) -> None:
    x = torch.randn(2, 3, 4, 5)

    def program() -> None:
        # Of one dtype, the tensor before could be the input as well where its sums are rounded alike.
        torch.exp(x.to(torch.float64, memory_format=torch.channels_last))

    found = derived_of(tmp_path, program, "Torch.exp.0.forward")
    assert found["input.0"].stride == (60, 1, 15, 3)


def test_heads_of_attention_share_the_storage_of_their_projection(tmp_path: Path) -> None:
    def program() -> None:
        projected = F.linear(torch.randn(2, 5, 8), torch.randn(24, 8))
        heads = [part.view(2, 5, 4, 2).transpose(1, 2) for part in projected.chunk(3, -1)]
        F.scaled_dot_product_attention(*heads)

    # Two dimensions of one size could have been exchanged unseen, which a checksum rules out.
    name = "Functional.scaled_dot_product_attention.0.forward"
    found = derived_of(tmp_path, program, name, summary_mode="md5")
    assert [found[f"input.{place}"] for place in range(3)] == [
        Layout((120, 2, 24, 1), 8 * place, 240, 0, derived=True) for place in range(3)
    ]


def complex_product(*shape: int) -> torch.Tensor:
    return torch.mm(torch.randn(shape[0], 4, dtype=torch.complex64), torch.randn(4, shape[1], dtype=torch.complex64))


@pytest.mark.parametrize("mode", ["statistics", "md5"])
def test_the_conjugate_bit_of_an_adjoint_is_derived(tmp_path: Path, mode: str) -> None:
    program = lambda: torch.exp(complex_product(3, 5).adjoint())  # noqa: E731
    found = derived_of(tmp_path, program, "Torch.exp.0.forward", summary_mode=mode)
    assert found == {"input.0": Layout((1, 5), 0, None, derived=True, is_conj=True)}


def test_a_copy_of_what_is_lazily_conjugated_is_not(tmp_path: Path) -> None:
    program = lambda: torch.exp(complex_product(3, 5).adjoint().clone())  # noqa: E731
    assert derived_of(tmp_path, program, "Torch.exp.0.forward") == {}


COMPLEX = {"type": "torch.Tensor", "dtype": "torch.complex64", "Max": 3.1, "Min": 0.2, "Mean": 1.32, "Norm": None}
PARTS = {"type": "torch.Tensor", "dtype": "torch.float32", "Max": 2.5, "Min": -1.5, "Mean": 0.25, "Norm": 4.0}


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        (["conj"], Layout((5, 1), derived=True, is_conj=True)),
        (["conj", "conj"], Layout((5, 1), derived=True)),
        (["mH"], Layout((1, 5), derived=True, is_conj=True)),
        (["H"], Layout((1, 5), derived=True, is_conj=True)),
        (["conj", "imag"], Layout((10, 2), 1, 30, derived=True, is_neg=True)),
        (["imag"], Layout((10, 2), 1, 30, derived=True)),
        (["imag", "_neg_view"], Layout((10, 2), 1, 30, derived=True, is_neg=True)),
    ],
)
def test_bits_are_derived_from_calls_that_set_them(tmp_path: Path, calls: list[str], expected: Layout) -> None:
    # What has a checksum is known apart from its conjugate.
    x = COMPLEX | {"shape": [3, 5], "md5": "0"}
    data = {"Torch.mm.0.forward": {"input_args": [], "input_kwargs": {}, "output": [x]}}
    for number, name in enumerate(calls):
        given, shape = x, x["shape"][::-1] if name in ("mH", "H") else x["shape"]
        x = (PARTS if name in ("imag", "_neg_view") else COMPLEX) | {"shape": shape, "md5": str(number + 1)}
        data[f"Tensor.{name}.{number}.forward"] = {"input_args": [given], "input_kwargs": {}, "output": [x]}
    data["Torch.exp.0.forward"] = {"input_args": [x], "input_kwargs": {}, "output": [x]}
    (tmp_path / "dump.json").write_text(json.dumps({"task": "statistics", "level": "L1", "data": data}))
    assert DerivedLayouts(read_dump(tmp_path / "dump.json")).of("Torch.exp.0.forward") == {"input.0": expected}


def test_without_checksums_a_conjugate_is_not_known_from_what_it_is_of(tmp_path: Path) -> None:
    x = COMPLEX | {"shape": [3, 5]}
    data = {
        name: {"input_args": given, "input_kwargs": {}, "output": [x]}
        for name, given in {"Torch.mm.0.forward": [], "Tensor.conj.0.forward": [x], "Torch.exp.0.forward": [x]}.items()
    }
    (tmp_path / "dump.json").write_text(json.dumps({"task": "statistics", "level": "L1", "data": data}))
    assert DerivedLayouts(read_dump(tmp_path / "dump.json")).of("Torch.exp.0.forward") == {}


UNCERTAIN: dict[str, Callable[[], Any]] = {
    "a tensor from outside": lambda: torch.exp(OUTSIDE),
    "a view of a tensor from outside": lambda: torch.exp(OUTSIDE.transpose(0, 1)),
    "a copy that has the same values": lambda: (lambda x: (x.contiguous(), torch.exp(x)))(
        torch.arange(15.0).view(3, 5).t()
    ),
    "values that are all equal": lambda: torch.exp(torch.ones(3, 5).t()),
    "a mask": lambda: torch.exp((product(3, 5) > 0).float().t()),
    "a complex mask": lambda: torch.exp(torch.zeros(3, 5).index_fill(1, torch.tensor([2]), 1.0).cfloat().t()),
    "dimensions of one size": lambda: torch.exp(product(4, 4).t()),
    "one that was turned unseen": lambda: (lambda x: (torch.neg(x.mT), torch.exp(x.mT.contiguous().mT)))(product(3, 5)),
    "a result of an unknown call": lambda: torch.exp(torch.flip(product(3, 5).t(), (0,))),
    "one that was moved in place": lambda: torch.exp(product(3, 5).transpose_(0, 1)),
    "an index of numbers": lambda: torch.exp(product(3, 5)[:, torch.tensor([0, 2])]),
}
OUTSIDE = torch.randn(5, 3).t()


@pytest.mark.parametrize("program", UNCERTAIN)
def test_what_is_not_certain_is_left_out(tmp_path: Path, program: str) -> None:
    assert derived_of(tmp_path, UNCERTAIN[program], "Torch.exp.0.forward") == {}


def test_a_record_that_is_asked_for_alone_has_what_the_records_before_show(tmp_path: Path) -> None:
    def program() -> None:
        for _ in range(4):
            torch.exp(product(3, 5).t())

    _, derived = recorded(tmp_path, program)
    assert derived.of("Torch.exp.3.forward")["input.0"].stride == (1, 5)
    assert derived.of("Torch.exp.1.forward")["input.0"].stride == (1, 5)
    assert derived.of("Torch.exp.9.forward") == {}


@pytest.mark.parametrize(
    "arguments",
    [
        [{"type": "int", "value": 10**30}, {"type": "int", "value": 0}],
        [{"type": "int", "value": "x"}],
        [[[]], None, {"type": "slice", "value": [0, "a"]}],
        "text",
        {"a": 1},
    ],
)
def test_malformed_arguments_make_nothing_certain(tmp_path: Path, arguments: Any) -> None:
    product_of = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [3, 5], "Max": 2.0, "Min": -1.0}
    x = product_of | {"Mean": 0.25, "Norm": 4.0}
    given = [x, *arguments] if isinstance(arguments, list) else arguments
    names = ["transpose", "view", "expand", "__getitem__", "split", "narrow", "movedim", "chunk"]
    data = {"Torch.mm.0.forward": {"input_args": [], "input_kwargs": {}, "output": [x]}}
    data |= {f"Tensor.{name}.0.forward": {"input_args": given, "input_kwargs": {}, "output": [x]} for name in names}
    data |= {"Tensor.exp.0.forward": {"input_args": [x | {"shape": [2**70]}], "input_kwargs": 3, "output": [x]}}
    (tmp_path / "dump.json").write_text(json.dumps({"task": "statistics", "level": "L1", "data": data}))
    derived = DerivedLayouts(read_dump(tmp_path / "dump.json"))
    assert all(set(derived.of(name)) <= {"input.0"} for name in data)
