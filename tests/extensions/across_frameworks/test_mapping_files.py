"""Mapping files with errors: each is named with file, line and what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_msprobe.errors import OptionError
from pytest_msprobe.extensions.across_frameworks.cell_mapping import read_cells
from pytest_msprobe.extensions.across_frameworks.layer_mapping import read_layers
from pytest_msprobe.extensions.across_frameworks.value_pairing import built_in, read_apis, table
from pytest_msprobe.modes.compare.matching.name_translation import read_mapping

DATA = Path(__file__).parents[2] / "data" / "across_frameworks"
PAIR = "ms_api: Mint.sub, pt_api: Torch.rsub"


@pytest.mark.parametrize(
    ("read", "text", "problem"),
    [
        (read_apis, "", r"the file is empty; a line looks like  - \{ms_api"),
        (read_apis, "a: [", r"not valid YAML at line \d: .*; a line looks like"),
        (read_apis, "[1, 2]", "line 1: not an API mapping"),
        (read_apis, "ms_api: Mint.sub", "line 1: pt_api is missing"),
        (read_apis, "- {ms_api: sub, pt_api: Torch.rsub}", "line 1: ms_api: 'sub' is not an API name"),
        (
            read_apis,
            f"-\n  {{{PAIR}, ms_argz: [0]}}",
            "line 2: unknown key 'ms_argz'; did you mean 'ms_args'\\? known are ms_api,",
        ),
        (read_apis, f"- {{{PAIR}, ms_args: [0]}}", "ms_args without pt_args"),
        (read_apis, f"- {{{PAIR}, ms_args: [0, 1], pt_args: [0]}}", "ms_args has 2 members and pt_args has 1"),
        (read_apis, f"- {{{PAIR}, ms_args: [0, 1], pt_args: [1, 1]}}", "pt_args lists 1 twice"),
        (read_apis, f"- {{{PAIR}, ms_args: 0, pt_args: 1}}", r"ms_args is not a list, such as \[0, 1\]"),
        (read_apis, f"- {{{PAIR}, ms_args: [[0]], pt_args: [1]}}", "a list in place of an index or a name"),
        (
            read_apis,
            f"- {{{PAIR}, ms_output: [0], pt_output: [0], ms_outputs: [0], pt_outputs: [0]}}",
            "ms_outputs is there in both spellings",
        ),
        (read_apis, f"- {{{PAIR}}}\n- {{{PAIR}}}", "line 2: 'Mint.sub' is mapped twice, also at .*line 1"),
        (read_cells, "a: b\na: c", "line 2: 'a' is there twice, first in line 1"),
        (read_cells, "- a", "line 1: not a cell mapping"),
        (read_cells, "a: [b]", "line 1: a list in place of a module's name"),
        (read_cells, "a:", "line 1: nothing in place of a module's name"),
        (read_layers, "Block: x", "line 1: Block maps its children"),
        (read_layers, "TopLayer: {a: b}\nCell: {c: d}", "line 2: 'Cell' is an older word for 'TopLayer'"),
        (read_layers, "Block:\n  a..b: c", r"line 2: 'a..b' is not a path"),
        (read_layers, "Block:\n  a: {b: c}", "line 2: a mapping in place of the golden path of a"),
        (read_mapping, "[1]", "line 1: not a data mapping"),
        (read_mapping, "a: b\na: c", "line 2: 'a' is there twice"),
    ],
)
def test_an_error_is_named_with_its_line(read: Callable[[Path], Any], text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "mapping.yaml"
    path.write_text(text)
    with pytest.raises(OptionError, match=problem) as raised:
        read(path)
    assert str(path) in str(raised.value)


def mapping(folder: Path, **kinds: str) -> tuple[str, str]:
    """Return the words that pass a mapping file of these keys."""
    path = folder / "mapping.yaml"
    path.write_text("".join(f"{kind}: {text}\n" for kind, text in kinds.items()))
    return "--msprobe-mapping", str(path)


def compare(pytester: pytest.Pytester, golden: str, *arguments: str) -> pytest.RunResult:
    sides = ("--msprobe-compare", str(DATA / "mindspore"), "--msprobe-golden", str(DATA / golden))
    return pytester.runpytest_inprocess(*sides, *arguments)


def test_a_file_that_is_not_there_is_named(pytester: pytest.Pytester) -> None:
    result = compare(pytester, "pytorch", "--msprobe-mapping=none.yaml")
    result.stderr.fnmatch_lines(["ERROR: --msprobe-mapping 'none.yaml': no such file"])


@pytest.mark.parametrize("name", ["api", "cell", "layer", "data", "model_names"])
def test_a_file_that_a_mapping_file_names_and_that_is_not_there_is_named(pytester: pytest.Pytester, name: str) -> None:
    words = mapping(pytester.path, **{name: "none.yaml"})
    result = compare(pytester, "pytorch", *words)
    result.stderr.fnmatch_lines([f"ERROR: *mapping.yaml, line 1: {name}: no such file: *none.yaml"])


def test_a_key_of_no_kind_is_refused_with_those_that_there_are(pytester: pytest.Pytester) -> None:
    result = compare(pytester, "pytorch", *mapping(pytester.path, apis="x.yaml"))
    result.stderr.fnmatch_lines(["ERROR: *mapping.yaml, line 1: 'apis' is not one of api, *; did you mean 'api'?*"])


def test_names_of_one_kind_in_two_files_are_refused(pytester: pytest.Pytester) -> None:
    words = mapping(pytester.path, cell="built-in")
    result = compare(pytester, "pytorch", *words, *words)
    result.stderr.fnmatch_lines(["ERROR: *mapping.yaml: --msprobe-mapping has the key cell twice; merge *"])


def test_names_may_stand_below_the_key_of_their_kind(pytester: pytest.Pytester) -> None:
    words = mapping(pytester.path, data="{Mint.mean.0.forward.output.0: N/A}")
    compare(pytester, "pytorch", *words).assert_outcomes(passed=35, skipped=1)


def test_a_mapping_without_a_comparison_is_refused(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("--msprobe-mapping=none.yaml")
    result.stderr.fnmatch_lines(["ERROR: --msprobe-mapping has nothing that it belongs to; use it with *"])


def test_runs_of_one_framework_need_no_api_mapping(pytester: pytest.Pytester) -> None:
    result = compare(pytester, "mindspore-changed", *mapping(pytester.path, api="built-in"))
    result.stderr.fnmatch_lines(
        ["ERROR: --msprobe-mapping with api needs one run of mindspore and one of pytorch: *leave it out"]
    )


def test_entries_that_no_call_has_a_use_for_are_reported(pytester: pytest.Pytester, tmp_path: Path) -> None:
    texts = {
        "api": "- {ms_api: Mint.matmull, pt_api: Torch.matmul}",
        "cell": "block.down: block.down\nnothing.Dense: x.Linear",
        "layer": "TopLayer:\n  block: block\n  blok: layer",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    words = mapping(tmp_path, **{name: f"{name}.yaml" for name in texts})
    compare(pytester, "pytorch", *words).stdout.fnmatch_lines(
        [
            "mapping without effect: *layer.yaml, line 3: no TopLayer of the target has blok",
            "mapping without effect: *api.yaml, line 1: no call is named Mint.matmull; did you mean 'Mint.matmul'[?]",
            "mapping without effect: *cell.yaml, line 2: no layer is named nothing.Dense",
        ]
    )


def test_a_data_mapping_of_a_value_that_is_not_there_fails_its_call(pytester: pytest.Pytester, tmp_path: Path) -> None:
    path = tmp_path / "data.yaml"
    path.write_text("Mint.mean.0.forward.output.0: Torch.mean.0.forward.output.3\n")
    result = compare(pytester, "pytorch", *mapping(tmp_path, data="data.yaml"))
    result.assert_outcomes(passed=34, failed=1, skipped=1)
    result.stdout.fnmatch_lines(
        ["*Torch.mean.0.forward*has no value Torch.mean.0.forward.output.3; correct that line*"]
    )


def test_a_value_that_a_data_mapping_leaves_out_is_not_judged(pytester: pytest.Pytester, tmp_path: Path) -> None:
    path = tmp_path / "data.yaml"
    path.write_text("Mint.mean.0.forward.output.0: N/A\n")
    compare(pytester, "pytorch", *mapping(tmp_path, data="data.yaml")).assert_outcomes(passed=35, skipped=1)


def test_a_journal_of_another_mapping_is_refused(pytester: pytest.Pytester, tmp_path: Path) -> None:
    path, journal = tmp_path / "cells.yaml", str(tmp_path / "journal")
    path.write_text("down.Dense: down.Linear\n")
    words = mapping(tmp_path, cell="cells.yaml")
    compare(pytester, "pytorch", *words, "--msprobe-journal", journal).assert_outcomes(passed=35, skipped=1)
    assert compare(pytester, "pytorch", *words, "--msprobe-resume", journal).ret in (0, 5)
    path.write_text("down.Dense: up.Linear\n")
    result = compare(pytester, "pytorch", *words, "--msprobe-resume", journal)
    result.stderr.fnmatch_lines(["ERROR: *cell_mapping*"])


def test_the_built_in_table_has_the_399_pairs_of_msprobe() -> None:
    own = "Tensor.astype"
    pairs = {ours: theirs for ours, theirs in table().items() if not ours.startswith("Primitive.") and ours != own}
    kinds = [(ours.partition(".")[0], theirs.partition(".")[0]) for ours, theirs in pairs.items()]
    assert len(pairs) == 399
    assert kinds.count(("Tensor", "Tensor")) == 192
    assert kinds.count(("Functional", "Torch")) == 169
    assert kinds.count(("Functional", "Functional")) == 38
    assert sum(ours.partition(".")[2] != theirs.partition(".")[2] for ours, theirs in pairs.items()) == 10


def test_prefixes_are_whole_words() -> None:
    assert built_in("Mint.add") == "Torch.add"
    assert built_in("MintFunctional.add") == "Functional.add"
    assert built_in("Tensor.Mint") == "Tensor.Mint"
    assert built_in("Minted.add") == "Minted.add"


def test_a_message_does_not_quote_a_long_word_in_full(tmp_path: Path) -> None:
    path = tmp_path / "apis.yaml"
    path.write_text(f"{{ms_api: {'1' * 5000}, pt_api: Torch.abs}}")
    with pytest.raises(OptionError, match="ms_api: '111") as caught:
        read_apis(path)
    assert len(str(caught.value)) < 600
