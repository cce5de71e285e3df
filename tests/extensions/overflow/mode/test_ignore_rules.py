from __future__ import annotations

from pathlib import Path

import pytest

from msprobe_hooks.extensions.overflow.anomaly import find_scene, is_ignored, read_record_io
from pytest_msprobe.errors import RulesError
from pytest_msprobe.extensions.overflow.ignore_rules import load_rules
from tests.support.dumps.dump_files import Json
from tests.support.dumps.ranks import call, dump, tensor


def ignored(name: str, body: Json, file: Path | None = None) -> bool:
    finding = find_scene(read_record_io(dump({name: body}), name))
    assert finding is not None
    return is_ignored(finding, name, load_rules(file))


@pytest.mark.parametrize("api", ["empty", "empty_like", "empty_strided"])
def test_unwritten_memory_is_ignored(api: str) -> None:
    assert ignored(f"Torch.{api}.0.forward", call([], [tensor(bad=True)]))
    assert not ignored("Torch.ones.0.forward", call([], [tensor(bad=True)]))


@pytest.mark.parametrize(
    "name",
    """Distributed.recv Distributed.all_gather Distributed.reduce_scatter Distributed._reduce_scatter_base
    Distributed.all_gather_into_tensor Distributed.reduce_scatter_tensor Tensor.masked_fill_""".split(),
)
def test_an_ignored_input_is_ignored_alone_and_not_with_others(name: str) -> None:
    assert ignored(f"{name}.3.forward", call([tensor(bad=True), tensor()], [tensor()]))
    assert not ignored(f"{name}.3.forward", call([tensor(bad=True), tensor(bad=True)], [tensor()]))
    assert not ignored(f"{name}.3.forward", call([tensor(bad=True), tensor()], [tensor(bad=True)]))


def test_an_argument_may_be_ignored_by_name() -> None:
    assert ignored("Distributed.recv.0.forward", call([], [tensor()], tensor=tensor(bad=True)))
    assert not ignored("Distributed.recv.0.forward", call([], [tensor()], other=tensor(bad=True)))


def test_a_users_rules_stand_next_to_the_built_in_ones(tmp_path: Path) -> None:
    path = tmp_path / "ignore.yaml"
    path.write_text("ignore_nan_inf: [{api_name: Torch.linalg.inv, output_ignore: [{index: 0}]}]")
    body = call([tensor()], [tensor(bad=True)])
    assert ignored("Torch.linalg.inv.0.forward", body, path)
    assert ignored("Torch.empty.0.forward", body, path)
    assert not ignored("Torch.linalg.inv.0.forward", call([tensor()], [tensor(), tensor(bad=True)]), path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected one key, ignore_nan_inf"),
        ("[1]", "expected one key, ignore_nan_inf"),
        ("ignore_nan_inf: 3", "expected one key, ignore_nan_inf"),
        ("{ignore_nan_inf: [], more: 1}", "expected one key, ignore_nan_inf"),
        ("ignore_nan_inf: [", "not valid YAML"),
        ("ignore_nan_inf: !!int x", "not valid YAML at line 1: not a value of int"),
        (f"ignore_nan_inf: {'[' * 5000}{']' * 5000}", "nested too deeply"),
        (f"ignore_nan_inf: [{{api_name: a.b, input_ignore: [{{index: 0x1{'0' * 5000}}}]}}]", "counting from 0"),
        ("ignore_nan_inf: [3]", r"ignore_nan_inf\[0\]: not a rule; expected the keys api_name"),
        ("ignore_nan_inf: [{api_name: a.b}, {api: a.b}]", r"ignore_nan_inf\[1\]: unknown key 'api'"),
        ("ignore_nan_inf: [{api_name: empty}]", "api_name is 'empty'; expected type and name"),
        ("ignore_nan_inf: [{api_name: a.b, input_ignore: 0}]", "input_ignore is 0; expected a list"),
        ("ignore_nan_inf: [{api_name: a.b, input_ignore: [{index: -1}]}]", "'index': -1.*counting from 0"),
        ("ignore_nan_inf: [{api_name: a.b, output_ignore: [{name: x}]}]", "'name': 'x'"),
        ("ignore_nan_inf: [{api_name: a.b, input_ignore: [{index: true}]}]", "expected {index: ...} or {name: ...}"),
    ],
)
def test_an_error_in_a_file_of_rules_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "ignore.yaml"
    path.write_text(text)
    with pytest.raises(RulesError, match=said) as error:
        load_rules(path)
    assert str(error.value).startswith(f"{path}: ")


def test_a_missing_file_of_rules_is_named(tmp_path: Path) -> None:
    with pytest.raises(RulesError, match=r"gone\.yaml: cannot be read: No such file"):
        load_rules(tmp_path / "gone.yaml")
