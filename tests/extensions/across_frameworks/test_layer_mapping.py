"""Layer mapping: which record of one model is which of the other, from what its layers are called."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msprobe_hooks.dump.reader import Dump, read_dump
from msprobe_hooks.errors import DumpError
from pytest_msprobe.extensions.across_frameworks.layer_mapping import LayerMapping, match_layers, read_layers
from pytest_msprobe.extensions.across_frameworks.options import AcrossOptions
from pytest_msprobe.extensions.across_frameworks.translation import Mappings, translation
from pytest_msprobe.modes.compare.matching import match_records
from tests.support.dumps.dump_files import Json, write_dump

CALL: Json = {"input_args": [], "input_kwargs": {}, "output": []}
BACKWARD: Json = {"input": [], "output": []}


def model(folder: Path, parents: dict[str, str | None], stacks: Json | None = None, framework: str = "pytorch") -> Dump:
    """Write a dump whose records are the keys of ``parents``."""
    records = {name: BACKWARD if ".backward" in name else CALL for name in parents}
    path = write_dump(folder, records, parents=parents, stacks=stacks or {}, level="mix", framework=framework)
    return read_dump(path)


def mapping(folder: Path, text: str) -> LayerMapping:
    path = folder / "layers.yaml"
    path.write_text(text)
    return read_layers(path)


def matched(tmp_path: Path, text: str, ours: Json, theirs: Json, stacks: Json | None = None) -> dict[str, str]:
    target, golden = model(tmp_path / "target", ours, stacks), model(tmp_path / "golden", theirs)
    return match_layers(target, golden, mapping(tmp_path, text), str, str)


def test_equal_names_need_no_entry(tmp_path: Path) -> None:
    names = {"Module.a.Linear.forward.0": None, "Functional.relu.0.forward": "Module.a.Linear.forward.0"}
    assert matched(tmp_path, "TopLayer: {x: y}", names, names) == {name: name for name in names}


def test_a_dotted_path_skips_a_level(tmp_path: Path) -> None:
    ours = {"Module.language_model.embedding.Embedding.forward.0": None}
    theirs = {"Module.embedding.Embedding.forward.0": None}
    text = "TopLayer: {language_model.embedding: embedding}"
    assert list(matched(tmp_path, text, ours, theirs).values()) == list(theirs)


def test_the_longest_entry_comes_first(tmp_path: Path) -> None:
    ours = {"Module.a.b.L.forward.0": None, "Module.a.c.L.forward.0": None}
    theirs = {"Module.x.c.L.forward.0": None, "Module.y.L.forward.0": None}
    found = matched(tmp_path, "TopLayer: {a: x, a.b: y}", ours, theirs)
    assert found == {
        "Module.a.b.L.forward.0": "Module.y.L.forward.0",
        "Module.a.c.L.forward.0": "Module.x.c.L.forward.0",
    }


def test_the_parent_is_the_targets_class(tmp_path: Path) -> None:
    ours = {"Module.a.Attention.forward.0": None, "Module.a.q.L.forward.0": None, "Module.b.q.L.forward.0": None}
    theirs = {"Module.a.Other.forward.0": None, "Module.a.query.L.forward.0": None, "Module.b.q.L.forward.0": None}
    assert list(matched(tmp_path, "Attention: {q: query}", ours, theirs).values()) == list(theirs)


def test_the_old_word_for_the_root_is_understood(tmp_path: Path) -> None:
    found = matched(tmp_path, "Cell: {a: b}", {"Module.a.L.forward.0": None}, {"Module.b.L.forward.0": None})
    assert found == {"Module.a.L.forward.0": "Module.b.L.forward.0"}


def test_numbers_of_layers_are_mapped_as_texts(tmp_path: Path) -> None:
    ours, theirs = {"Module.layers.5.L.forward.0": None}, {"Module.layers.0.L.forward.0": None}
    assert list(matched(tmp_path, "layers: {'5': '0'}", ours, theirs).values()) == list(theirs)


def test_the_layers_of_a_pipeline_stage_count_from_zero(tmp_path: Path) -> None:
    head = {"Module.t.ParallelTransformer.forward.0": None}
    ours = head | {f"Module.t.layers.{i}.L.forward.0": None for i in (4, 5, 10)}
    theirs = head | {f"Module.t.layers.{i}.L.forward.0": None for i in (0, 1, 6)}
    assert list(matched(tmp_path, "TopLayer: {x: y}", ours, theirs).values()) == list(theirs)


def test_calls_of_one_place_are_paired_in_order_and_the_rest_has_none(tmp_path: Path) -> None:
    parent = "Module.a.L.forward.0"
    ours = {parent: None} | {f"Torch.mul.{i}.forward": parent for i in range(3)}
    theirs = {parent: None} | {f"Torch.mul.{i}.forward": parent for i in (7, 9)}
    found = matched(tmp_path, "TopLayer: {x: y}", ours, theirs)
    assert found == {
        parent: parent,
        "Torch.mul.0.forward": "Torch.mul.7.forward",
        "Torch.mul.1.forward": "Torch.mul.9.forward",
    }


def test_a_backward_call_stands_where_its_forward_call_does(tmp_path: Path) -> None:
    ours = {"Module.a.L.forward.0": None, "Torch.mul.0.forward": "Module.a.L.forward.0", "Torch.mul.0.backward": None}
    theirs = {"Module.b.L.forward.0": None, "Torch.mul.3.forward": "Module.b.L.forward.0", "Torch.mul.3.backward": None}
    assert list(matched(tmp_path, "TopLayer: {a: b}", ours, theirs).values()) == list(theirs)


def test_gradients_of_parameters_follow_their_layer(tmp_path: Path) -> None:
    ours = {"Module.a.L.forward.0": None, "Module.a.L.parameters_grad.0": None}
    theirs = {"Module.b.L.forward.0": None, "Module.b.L.parameters_grad": None}
    assert list(matched(tmp_path, "TopLayer: {a: b}", ours, theirs).values()) == list(theirs)


def test_a_function_of_the_framework_is_a_level_that_distinguishes_calls(tmp_path: Path) -> None:
    def frames(*functions: str) -> list[str]:
        return [f"File /v/site-packages/torch/nn/functional.py, line 1, in {name}, \n x" for name in functions] + [
            "File model.py, line 3, in forward, \n y"
        ]

    ours = {"Functional.linear.0.forward": None, "Functional.linear.1.forward": None}
    theirs = {"Functional.linear.8.forward": None, "Functional.linear.9.forward": None}
    target = model(
        tmp_path / "a", ours, {"Functional.linear.0.forward": frames("attend"), "Functional.linear.1.forward": frames()}
    )
    golden = model(
        tmp_path / "b",
        theirs,
        {"Functional.linear.8.forward": frames(), "Functional.linear.9.forward": frames("attend")},
    )
    found = match_layers(target, golden, mapping(tmp_path, "TopLayer: {x: y}"), str, str)
    assert found == {
        "Functional.linear.0.forward": "Functional.linear.9.forward",
        "Functional.linear.1.forward": "Functional.linear.8.forward",
    }


def test_runs_without_layers_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(DumpError, match=r"golden/construct.json: missing or empty.*level mix or L0"):
        matched(tmp_path, "TopLayer: {a: b}", {"Torch.add.0.forward": None}, {})


def test_cells_of_mindspore_meet_modules_of_pytorch(tmp_path: Path) -> None:
    ours = {"Cell.a.Dense.forward.0": None, "Mint.square.0.forward": "Cell.a.Dense.forward.0"}
    theirs = {"Module.b.Linear.forward.0": None, "Torch.square.4.forward": "Module.b.Linear.forward.0"}
    target, golden = model(tmp_path / "a", ours, framework="mindspore"), model(tmp_path / "b", theirs)
    mappings = Mappings(layers=mapping(tmp_path, "TopLayer: {a: b}"))
    assert list(translation(target, golden, mappings, AcrossOptions()).forced.values()) == list(theirs)


WORDS = st.sampled_from("a b c d e".split())
PATHS = st.lists(WORDS, min_size=1, max_size=4).map(tuple)


@given(
    paths=st.lists(PATHS, min_size=1, max_size=12, unique=True),
    renamed=st.dictionaries(WORDS, st.sampled_from("vwxyz"), min_size=1),
)
def test_renaming_layers_and_mapping_them_finds_every_record(
    tmp_path_factory: pytest.TempPathFactory, paths: list[tuple[str, ...]], renamed: dict[str, str]
) -> None:
    folder = tmp_path_factory.mktemp("models")
    renamed = {word: f"{new}{word}" for word, new in renamed.items()}
    ours: dict[str, str | None] = {f"Module.{'.'.join(path)}.Layer.forward.0": None for path in paths}
    theirs: dict[str, str | None] = {
        f"Module.{'.'.join(renamed.get(word, word) for word in path)}.Layer.forward.0": None for path in paths
    }
    # A parent is known by its class, or by its name where it was never called itself.
    parents = ["TopLayer", "Layer", *"abcde"]
    text = "\n".join(f"{parent}: {{{', '.join(f'{a}: {b}' for a, b in renamed.items())}}}" for parent in parents)
    found = match_layers(model(folder / "a", ours), model(folder / "b", theirs), mapping(folder, text), str, str)
    assert found == dict(zip(ours, theirs, strict=True))


@pytest.mark.parametrize("text", ["{}", "TopLayer: {}", "TopLayer: {no: where}", "TopLayer: {a: where}"])
@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_file_that_maps_nothing_leaves_every_partner(tmp_path: Path, text: str, is_reversed: bool) -> None:
    ours = {"Module.a.Linear.forward.0": None, "Mint.cos.0.forward": "Module.a.Linear.forward.0"}
    theirs = {"Module.b.Dense.forward.0": None, "Torch.cos.0.forward": "Module.b.Dense.forward.0"}
    dumps = [
        model(tmp_path / framework, parents, framework=framework)
        for framework, parents in (("mindspore", ours), ("pytorch", theirs))
    ]
    layers = mapping(tmp_path, text)
    target, golden = reversed(dumps) if is_reversed else dumps
    found = []
    for mappings in (Mappings(), Mappings(layers=layers)):
        rules = translation(target, golden, mappings, AcrossOptions()).matching_rules({}, fuzzy=False)
        found.append({match.target: match.golden for match in match_records(target, golden, rules).matches})
    assert found[0] == found[1]
    assert any("cos" in (name or "") and other for name, other in found[1].items())
    assert [*layers.unused()]
